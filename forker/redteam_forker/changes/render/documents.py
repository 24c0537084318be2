"""Where two JSON documents differ: the paths of the parts, each with what was there and what is. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Part", "differing_parts"]

_LARGEST = 1_000_000
"""Longer documents are shown as texts: taking them apart would cost more than anybody would read."""
_LONGEST_LIST = 500
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part that differs.

    Attributes:
        path: from the document's root: `address.city`, `tags[2]`; of a list as it was, or as it is where the
            part is new.
        old: its JSON, or None where there was none.
        new: the same on the other side.
    """

    path: str
    old: str | None
    new: str | None


def differing_parts(old: str | None, new: str | None) -> tuple[Part, ...]:
    """The parts in which two documents differ, in the order of the old one.

    Empty where they are no documents with parts, are equal, or are too large to be taken apart.
    """
    if old is None or new is None or len(old) + len(new) > _LARGEST:
        return ()
    try:
        was, now = _parsed(old), _parsed(new)
        if not isinstance(was, dict | list) or type(was) is not type(now):
            return ()
        return tuple(_compared(was, now, ""))
    except (ValueError, ArithmeticError, RecursionError):
        return ()


def _parsed(text: str) -> Any:
    # Decimals keep every digit; 1.0 equals 1.00, as the change set compares them.
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=str)


def _compared(old: Any, new: Any, path: str) -> Iterator[Part]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            inner = _member(path, name)
            if name not in new:
                yield Part(path=inner, old=_text(old[name]), new=None)
            elif name not in old:
                yield Part(path=inner, old=None, new=_text(new[name]))
            else:
                yield from _compared(old[name], new[name], inner)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compared_lists(old, new, path)
    elif type(old) is not type(new) or old != new:  # True equals 1 in Python
        yield Part(path=path, old=_text(old), new=_text(new))


def _compared_lists(old: list[Any], new: list[Any], path: str) -> Iterator[Part]:
    if max(len(old), len(new)) > _LONGEST_LIST:
        if old != new:
            yield Part(path=path, old=f"{len(old)} items", new=f"{len(new)} items, not the same")
        return
    matcher = SequenceMatcher(None, [_text(item) for item in old], [_text(item) for item in new], False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        paired = min(i_end - i, j_end - j)
        for step in range(paired):
            yield from _compared(old[i + step], new[j + step], f"{path}[{i + step}]")
        for index in range(i + paired, i_end):
            yield Part(path=f"{path}[{index}]", old=_text(old[index]), new=None)
        for index in range(j + paired, j_end):
            yield Part(path=f"{path}[{index}]", old=None, new=_text(new[index]))


def _member(path: str, name: str) -> str:
    if not _PLAIN.fullmatch(name):
        return f"{path}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{path}.{name}" if path else name


def _text(value: Any) -> str:
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{_text(str(name))}: {_text(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_text(item) for item in value) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
