"""A tool's signature as a JSON Schema for a model, and a model's JSON arguments as the signature's types."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from redteam_sdk.errors import UsageError
from redteam_sdk.values import Unserialisable, to_json, type_name

__all__ = ["InvalidArguments", "convert_arguments", "schema"]

_PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    Decimal: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    UUID: {"type": "string", "format": "uuid"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    dict: {"type": "object"},
    list: {"type": "array"},
}
_SECTION = re.compile(
    r"^(Args|Arguments|Returns|Yields|Raises|Example|Examples|Note|Notes|Attributes):\s*$", re.M
)
_ENTRY = re.compile(r"^( *)\*{0,2}(\w+)(?: \([^)]*\))?: *(.*)$")


class InvalidArguments(UsageError):
    """The caller of a tool, usually a model, gave arguments that its signature does not take."""


def schema(fn: Callable[..., Any]) -> dict[str, Any]:
    """A tool's `name`, `description` and `input_schema`, from its signature, type hints and docstring.

    Raises:
        UsageError: a parameter has no name to call it by, or a type that JSON cannot carry.
    """
    description, about = _read_docstring(inspect.getdoc(fn) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, (hint, default) in _parameters(fn).items():
        entry = dict(_schema_of(hint, f"parameter {name!r} of tool {_name(fn)!r}"))
        if name in about:
            entry.setdefault("description", about[name])
        if default is inspect.Parameter.empty:
            required.append(name)
        else:
            with suppress(Unserialisable):  # a default that is no JSON still makes the parameter optional
                entry["default"] = to_json(default)
        properties[name] = entry
    return {
        "name": _name(fn),
        "description": description,
        "input_schema": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
    }


def convert_arguments(fn: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """JSON arguments as the types that the tool's signature names (dates, times, Decimal, enums, ...).

    Raises:
        InvalidArguments: an argument is unknown, missing, or of another type; the message says which and why.
    """
    parameters = _parameters(fn)
    unknown = sorted(set(arguments) - set(parameters))
    if unknown:
        raise InvalidArguments(
            f"{_name(fn)} takes no {', '.join(unknown)}; it takes {', '.join(parameters) or 'nothing'}"
        )
    missing = [
        name
        for name, (_, default) in parameters.items()
        if default is inspect.Parameter.empty and name not in arguments
    ]
    if missing:
        raise InvalidArguments(f"{_name(fn)} needs {', '.join(missing)}")
    return {name: _convert(parameters[name][0], value, name) for name, value in arguments.items()}


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _parameters(fn: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Each parameter's type and default (`Parameter.empty` for none), in order."""
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"tool {_name(fn)!r} has a type hint that does not exist when it runs ({error}); "
            "import it outside of TYPE_CHECKING"
        ) from error
    found: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(
                f"parameter {name!r} of tool {_name(fn)!r} cannot be given by name, as a model does"
            )
        found[name] = (hints.get(name, Any), parameter.default)
    return found


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and the entries of the `Args` section."""
    parts = _SECTION.split(text)
    about: dict[str, str] = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title not in ("Args", "Arguments"):
            continue
        lines = inspect.cleandoc(body).splitlines()
        name = ""
        for line in lines:
            entry = _ENTRY.match(line)
            if entry is not None and not entry[1]:
                name, about[entry[2]] = entry[2], entry[3].strip()
            elif name and line.strip():
                about[name] = f"{about[name]} {line.strip()}".strip()
    return parts[0].strip(), about


def _schema_of(hint: Any, where: str) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        texts = [extra for extra in arguments[1:] if isinstance(extra, str)]
        return {**_schema_of(arguments[0], where), **({"description": texts[0]} if texts else {})}
    if origin is Literal:
        return _enum([to_json(value) for value in arguments])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum([to_json(member) for member in hint])
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(part, where) for part in arguments]}
    if origin in (list, Sequence) and len(arguments) == 1:
        return {"type": "array", "items": _schema_of(arguments[0], where)}
    if origin in (dict, Mapping) and len(arguments) == 2 and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], where)}
    try:
        return dict(_PLAIN[hint])
    except (KeyError, TypeError):
        raise UsageError(
            f"{where} has the type {hint!r}, which has no JSON form here; use str, int, float, bool, Decimal,"
            " date, datetime, time, UUID, Literal, an Enum, list[...], dict[str, ...] or a union of these"
        ) from None


def _enum(values: list[Any]) -> dict[str, Any]:
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    return {"enum": values}


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _convert(arguments[0], value, where)
    if origin is Literal:
        # 1 == True in Python, not in JSON.
        for choice in arguments:
            if type(to_json(choice)) is type(value) and to_json(choice) == value:
                return choice
        raise _wrong(where, value, f"one of {', '.join(repr(to_json(choice)) for choice in arguments)}")
    if isinstance(hint, type) and issubclass(hint, Enum):
        for member in hint:
            if type(to_json(member)) is type(value) and to_json(member) == value:
                return member
        raise _wrong(where, value, f"one of {', '.join(repr(to_json(member)) for member in hint)}")
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, where)
    if origin in (list, Sequence) or hint is list:
        if not isinstance(value, list):
            raise _wrong(where, value, "a list")
        inner = arguments[0] if arguments else Any
        return [_convert(inner, item, f"{where}[{at}]") for at, item in enumerate(value)]
    if origin in (dict, Mapping) or hint is dict:
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        inner = arguments[1] if arguments else Any
        return {key: _convert(inner, item, f"{where}.{key}") for key, item in value.items()}
    return _convert_plain(hint, value, where)


def _convert_union(choices: Sequence[Any], value: Any, where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    wrong: list[str] = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(choice, value, where)
        except InvalidArguments as error:
            wrong.append(str(error))
    raise InvalidArguments("; or ".join(wrong))


def _convert_plain(hint: Any, value: Any, where: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint in (Any, object):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and number and (isinstance(value, int) or value.is_integer()):
        return int(value)  # models write 3.0 for 3
    if hint is float and number:
        return float(value)
    if hint is str and isinstance(value, str):
        return value
    if hint in (None, type(None)) and value is None:
        return None
    try:
        if hint is Decimal and (number or isinstance(value, str)):
            amount = Decimal(str(value))
            if amount.is_finite():
                return amount
        if isinstance(value, str) and hint in (datetime, date, time):
            return hint.fromisoformat(value)
        if isinstance(value, str) and hint is UUID:
            return UUID(value)
    except (ValueError, InvalidOperation):
        pass
    raise _wrong(where, value, _EXPECTED.get(hint, getattr(hint, "__name__", repr(hint))))


_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Decimal: "a number, or a text that is one",
    datetime: "a date and time like 2026-11-30T09:15:00",
    date: "a date like 2026-11-30",
    time: "a time like 09:15",
    UUID: "a UUID",
}


def _wrong(where: str, value: Any, expected: str) -> InvalidArguments:
    # The value came from the model just now; repeating the short ones helps it to correct itself.
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else type_name(value)
    return InvalidArguments(f"{where} is {shown[:100]}; it must be {expected}")
