"""What a person could have changed: one column of a row, and the value that it should get. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.words import kind_of, words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from redteam_harness.drafting.owned import Owned
    from redteam_harness.drafting.schema import Column, Table

__all__ = ["Change", "changes"]

_ENDINGS = ("cancelled", "canceled", "cancel", "closed", "withdrawn", "returned", "paused", "inactive")
_TEXTS = {
    "note": ("Please call before you come", "Call first", "Call"),
    "phone": ("555 0134", "5550134"),
    "place": ("Springfield", "York"),
    "other": ("Something else", "Other", "B"),
    "number": ("B-2047", "2047"),
    "title": ("Something new", "New"),
    "name": ("Robin", "Kim"),
    "full name": ("Robin Ashworth", "Kim"),
    "last name": ("Ashworth", "Kim"),
    "email": ("new.address@mail.example", "n@mail.example"),
}
_BOUND = frozenset(
    (
        *("access", "balance", "code", "currency", "grade", "id", "key", "language", "level", "locale"),
        *("permission", "permissions", "plan", "reason", "rights", "role", "tier", "timezone", "type"),
    )
)
_TITLES = frozenset(("subject", "summary", "title"))
_CHECKED = re.compile(r"'((?:[^']|'')*)'::")
_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One column to change.

    Attributes:
        owned: whose row it is in; None for the person's own row.
        column: which.
        value: the new value as text.
    """

    owned: Owned | None
    column: Column
    value: str


def changes(
    person: Table, owned: Collection[Owned], *, moving: Collection[tuple[str, str]], asked: Collection[str]
) -> list[Change]:
    """Changes worth trying, the likeliest wish first; whether the database takes one, only a trial says.

    Args:
        person: the table of people.
        owned: what belongs to them, the likeliest subject first.
        asked: expressions of facts that an agent asks for; other columns come first.
        moving: `rule name of a table, column` of what changes by itself.
    """
    weighed: list[tuple[float, int, Change]] = []
    for place, (one, table) in enumerate(
        [*((one, one.table) for one in owned if one.row_key), (None, person)]
    ):
        fixed = _fixed(table) | {column for name, column in moving if name == table.rule_name}
        for column in table.columns:
            told = one is None and any(f"p.{ident(column.name)}" in sql for sql in asked)
            if column.name in fixed or column.generated:
                continue
            for weight, value in _values(column, table, is_person=one is None):
                weighed.append((weight + 6 * told, place, Change(owned=one, column=column, value=value)))
                break
    weighed.sort(key=lambda one: one[0] + 0.5 * one[1])
    return [change for _, _, change in weighed[:_MAX]]


def _fixed(table: Table) -> set[str]:
    """Columns that name or bind rows: keys, and what points elsewhere. An email may be unique, and change."""
    found = {
        name
        for names in (table.key, *table.unique, *(key.columns for key in table.foreign_keys))
        for name in names
    }
    return {name for name in found if name in table.key or kind_of(name, table.column(name).base) != "email"}


def _values(column: Column, table: Table, *, is_person: bool) -> Iterator[tuple[float, str]]:
    """New values of a column, each with how unlikely a wish it is."""
    kind = kind_of(column.name, column.base)
    closed = column.labels or _checked(column, table)
    if closed or kind == "status":
        options = [*dict.fromkeys((*closed, *column.common))]
        least = options[-1:] if closed else [value for value in options if value != options[0]][:1]
        ending = next((value for value in options if value.lower() in _ENDINGS), None)
        if ending:
            yield 0.0, ending
        for value in least:
            if value:
                yield 4.0, value
        return
    if not column.is_text or kind in ("secret", "machine", "login", "first name", "gender"):
        return
    said = set(words(column.name))
    if said & _BOUND:
        return
    meant: str = kind
    if kind == "note" and said & _TITLES:
        meant = "title"
    elif kind == "name" and is_person:
        meant = "full name"
    texts = _TEXTS.get(meant)
    if texts is None:
        return
    fitting = [text for text in texts if column.length is None or len(text) <= column.length]
    weights = {"note": 1.0, "phone": 1.5, "place": 2.0, "number": 6.0, "name": 3.0}
    weights |= {"email": 2.5, "last name": 5.0, "other": 12.0}
    for text in fitting[:1]:
        yield weights[kind] + (0.0 if is_person or kind not in ("phone", "place") else 2.0), text


def _checked(column: Column, table: Table) -> tuple[str, ...]:
    """The constants of a check constraint that names this column alone, in order."""
    others = [re.escape(other.name) for other in table.columns if other.name != column.name]
    for check in table.checks:
        if not re.search(rf"\b{re.escape(column.name)}\b", check) or "= ANY" not in check:
            continue
        if others and re.search(rf"\b(?:{'|'.join(others)})\b", _CHECKED.sub("", check)):
            continue
        return tuple(text.replace("''", "'") for text in _CHECKED.findall(check))
    return ()
