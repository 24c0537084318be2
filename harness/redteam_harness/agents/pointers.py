"""JSON pointers (RFC 6901): what one names in a document, and setting it in a copy. Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["NoSuchPlace", "lookup", "replaced"]


class NoSuchPlace(LookupError):
    """A pointer names nothing in the document; the message says where it ends."""


def lookup(document: Any, pointer: str) -> Any:
    """What a pointer names.

    Raises:
        NoSuchPlace: there is no such key or item.
    """
    value, walked = document, ""
    for step in _steps(pointer):
        match value:
            case dict() if step in value:
                value = value[step]
            case list() if step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            case _:
                raise NoSuchPlace(f"{walked or 'the document'} is {_kind(value)} without {step!r}")
        walked = f"{walked}/{step}"
    return value


def replaced(document: Any, pointer: str, value: Any) -> Any:
    """A copy of a document in which the pointer names `value`; objects on the way are made.

    `-` is the place after a list's last item.

    Raises:
        NoSuchPlace: on the way is something that is neither an object nor a list, or no item of a list.
    """
    return _set(document, _steps(pointer), value, "")


def _set(document: Any, steps: list[str], value: Any, walked: str) -> Any:
    if not steps:
        return value
    step, *rest = steps
    place = f"{walked}/{step}"
    match document:
        case dict():
            return {**document, step: _set(document.get(step, {}), rest, value, place)}
        case list() if step == "-":
            return [*document, _set({}, rest, value, place)]
        case list() if step.isdecimal() and int(step) < len(document):
            at = int(step)
            return [*document[:at], _set(document[at], rest, value, place), *document[at + 1 :]]
    raise NoSuchPlace(f"{walked or 'the document'} is {_kind(document)} without {step!r}")


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _kind(value: Any) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case None:
            return "null"
        case bool():
            return "a truth value"
        case str():
            return "a text"
        case _:
            return "a number"
