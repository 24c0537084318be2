"""Sentences about rows, for readers who are no engineers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_rubrics.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_rubrics.evidence import ChangedRow, Evidence, TableChanges, Write

__all__ = [
    "MAX_FINDINGS",
    "about_omitted",
    "about_row",
    "about_write",
    "capped",
    "cut",
    "done",
    "listed",
    "pairs",
]

MAX_FINDINGS = 200
_MAX_COLUMNS = 3
_MAX_TEXT = 80
_DONE = {"insert": "added", "update": "changed", "delete": "deleted"}


def cut(text: str, limit: int = _MAX_TEXT) -> str:
    """A text on one line, with an ellipsis where it was too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def listed(words: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def done(operations: Iterable[str]) -> str:
    """What was done to a row: `added`, `added or changed`."""
    return listed((_DONE[operation] for operation in operations), "or")


def pairs(cells: Mapping[str, object]) -> str:
    """The first few columns of a row: `id = 5, kind = office`."""
    shown = [
        f"{name} = {'empty' if value is None else cut(str(value))}"
        for name, value in list(cells.items())[:_MAX_COLUMNS]
    ]
    return ", ".join(shown) + (", …" if len(cells) > _MAX_COLUMNS else "")


def about_row(evidence: Evidence, table: TableChanges, row: ChangedRow, complaint: str) -> Finding:
    """A finding about one changed row: what happened to it, who did it, and what is wrong with that.

    Args:
        evidence: names the tool call that wrote the row, where that is known.
        table: the table of the row.
        row: the row.
        complaint: the part of the sentence after the colon.
    """
    name = table.name if row.key is None else f"{table.name} ({pairs(row.key)})"
    match row.op:
        case "insert":
            event = f"a row was added to {name}"
        case "delete":
            event = f"a row of {name} was deleted"
        case "update":
            event = f"in {name}, {_difference(row)}"
    if row.key is None:
        image = row.new if row.new is not None else row.old
        event += f" ({pairs(image or {})})"
    if row.by == ():
        event += ", outside any tool call"
    return Finding(
        text=f"{event[0].upper()}{event[1:]}: {complaint}.",
        table=table.name,
        op=row.op,
        key=row.key,
        columns=row.changed,
        event=evidence.writer(row.by),
    )


def about_omitted(table: TableChanges, complaint: str) -> Finding:
    """A finding about the changed rows of a table that were too many to keep."""
    verb = "row was" if table.omitted == 1 else "rows were"
    event = f"{table.omitted} more changed {verb} too many to keep"
    return Finding(text=f"In {table.name}, {event}: {complaint}.", table=table.name)


def about_write(evidence: Evidence, write: Write, complaint: str) -> Finding:
    """A finding about a write of which nothing is left."""
    rows = "1 row" if write.rows == 1 else f"{write.rows} rows"
    event = f"{rows} of {write.table} {'was' if write.rows == 1 else 'were'} {done([write.op])}"
    outside = ", outside any tool call" if write.by == () else ""
    return Finding(
        text=f"{event}{outside}, and nothing of it is left: {complaint}.",
        table=write.table,
        event=evidence.writer(write.by),
    )


def capped(findings: list[Finding]) -> tuple[Finding, ...]:
    """All findings, or the first `MAX_FINDINGS` and one that says how many more there are."""
    if len(findings) <= MAX_FINDINGS:
        return tuple(findings)
    more = Finding(text=f"And {len(findings) - MAX_FINDINGS} more, not listed here.")
    return (*findings[:MAX_FINDINGS], more)


def _difference(row: ChangedRow) -> str:
    old, new = row.old or {}, row.new or {}
    parts = [
        f"{name} changed from {_value(old.get(name))} to {_value(new.get(name))}"
        for name in row.changed[:_MAX_COLUMNS]
    ]
    if len(row.changed) > _MAX_COLUMNS:
        parts.append(f"{len(row.changed) - _MAX_COLUMNS} more columns changed")
    return listed(parts) if parts else "the row changed"


def _value(cell: str | None) -> str:
    return "empty" if cell is None else f"'{cut(cell)}'"
