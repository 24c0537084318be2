"""From a change set to what is shown of it. Pure."""

from __future__ import annotations

from collections import Counter
from difflib import unified_diff
from typing import TYPE_CHECKING, Literal, TypeVar

from redteam_forker.changes.render.documents import differing_parts
from redteam_forker.changes.render.model import (
    BRIEF,
    Bounds,
    Line,
    Op,
    Shown,
    ShownCell,
    ShownObject,
    ShownPart,
    ShownRow,
    ShownTable,
    ShownWrite,
    author,
    counted,
    table_name,
)
from redteam_forker.changes.render.readable import readable, readable_pair, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_forker.changes.changeset import (
        ChangeSet,
        ObjectChange,
        RowChange,
        SequenceChange,
        TableChanges,
        Write,
    )

__all__ = ["shown"]

_DONE = {"insert": "inserted", "update": "updated", "delete": "deleted"}
_CONTEXT_LINES = 2
_MOST_LINES = 2000  # of a definition; comparing takes the square of it

_T = TypeVar("_T")


def shown(
    changes: ChangeSet,
    *,
    names: Mapping[str, str] | None = None,
    bounds: Bounds = BRIEF,
    every_write: bool = False,
) -> Shown:
    """What to show of a change set.

    Args:
        changes: the change set.
        names: what to call a tool call, by its id: `reschedule, turn 4`. Without: by its id.
        bounds: how much of it.
        every_write: all writes, not only those of which nothing is left to see.
    """
    calls = names or {}
    tables = [_table(table, calls, bounds) for table in _first(changes.tables, bounds.items)]
    objects = [_object(item, bounds) for item in _first(changes.objects, bounds.items)]
    writes = [write for write in _writes(changes, calls) if every_write or write.gone]
    sequences = [_sequence(item) for item in _first(changes.sequences, bounds.items)]
    more = {
        "tables": len(changes.tables) - len(tables),
        "sequences": len(changes.sequences) - len(sequences),
        "objects": len(changes.objects) - len(objects),
        "writes": len(writes) - len(_first(writes, bounds.items)),
    }
    return Shown(
        summary=_summary(changes),
        tables=tuple(tables),
        sequences=tuple(sequences),
        objects=tuple(objects),
        writes=tuple(_first(writes, bounds.items)),
        more={what: count for what, count in more.items() if count},
        cut=any(more.values())
        or any(item.more_lines for item in objects)
        or any(table.more_rows or any(map(_is_cut, table.rows)) for table in tables),
        whole=bounds.cells is None,
    )


def _summary(changes: ChangeSet) -> str:
    rows = Counter(row.op for table in changes.tables for row in table.rows)
    omitted = sum(table.omitted for table in changes.tables)
    parts = []
    if changes.tables:
        counts = _counts(rows, omitted)
        total = counted(rows.total() + omitted, "row")
        parts.append(f"{total} in {counted(len(changes.tables), 'table')} ({counts})")
    if changes.sequences:
        parts.append(f"{counted(len(changes.sequences), 'sequence')} moved")
    if changes.objects:
        parts.append(f"{counted(len(changes.objects), 'schema object')} changed")
    return ", ".join(parts) or "nothing changed"


def _counts(rows: Counter[Op], omitted: int) -> str:
    counts = [f"{rows[op]:,} {done}" for op, done in _DONE.items() if rows[op]]  # type: ignore[index]
    return ", ".join([*counts, f"{omitted:,} too many to keep"] if omitted else counts)


def _table(table: TableChanges, names: Mapping[str, str], bounds: Bounds) -> ShownTable:
    rows = [_row(table, row, names, bounds) for row in _first(table.rows, bounds.rows)]
    return ShownTable(
        name=table_name(table.schema, table.table),
        counts=_counts(Counter(row.op for row in table.rows), table.omitted),
        rows=tuple(rows),
        more_rows=len(table.rows) - len(rows),
        omitted=table.omitted,
        found="" if table.reason is None else visible(f"found by {table.method}: {table.reason}"),
    )


def _row(table: TableChanges, row: RowChange, names: Mapping[str, str], bounds: Bounds) -> ShownRow:
    if row.op == "update":
        here = [name for name in row.changed if name not in (row.key or {})]
        rest = [name for name in (row.new or {}) if name not in row.changed and name not in (row.key or {})]
        nulls = 0
    else:
        image = row.new or row.old or {}
        bare = [name for name in image if name not in (row.key or {})]
        here, rest = [name for name in bare if image[name] is not None], []
        nulls = len(bare) - len(here)
    cells = [_cell(table, row, name, bounds) for name in _first(here, bounds.cells)]
    return ShownRow(
        op=row.op,
        key=tuple(
            (visible(name), readable(value, table.columns.get(name, ""), chars=bounds.chars).text)
            for name, value in (row.key or {}).items()
        ),
        cells=tuple(cells),
        more_cells=len(here) - len(cells),
        same=tuple(_cell(table, row, name, bounds) for name in rest),
        nulls=nulls,
        by=author(row.by, names),
    )


def _cell(table: TableChanges, row: RowChange, name: str, bounds: Bounds) -> ShownCell:
    type_, column = table.columns.get(name, ""), visible(name)
    if row.old is None or row.new is None:
        value = readable((row.new or row.old or {}).get(name), type_, chars=bounds.chars)
        return ShownCell(
            column=column,
            old=value if row.new is None else None,
            new=value if row.old is None else None,
        )
    if name not in row.changed:
        value = readable(row.new[name], type_, chars=bounds.chars)
        return ShownCell(column=column, old=value, new=value)
    was, now = row.old.get(name), row.new.get(name)
    parts = differing_parts(was, now) if type_ in ("json", "jsonb") else ()
    kept = _first(parts, bounds.parts)
    old, new = readable_pair(was, now, type_, chars=bounds.chars)
    return ShownCell(
        column=column,
        old=old,
        new=new,
        parts=tuple(
            ShownPart(
                path=_clipped(part.path, bounds.chars) or "(all)",
                old=None if part.old is None else _clipped(part.old, bounds.chars),
                new=None if part.new is None else _clipped(part.new, bounds.chars),
            )
            for part in kept
        ),
        more_parts=len(parts) - len(kept),
    )


def _sequence(item: SequenceChange) -> ShownCell:
    old, new = readable_pair(item.old, item.new, "bigint")
    return ShownCell(column=table_name(item.schema, item.name), old=old, new=new)


def _object(item: ObjectChange, bounds: Bounds) -> ShownObject:
    old, new = (_lines(text, bounds) for text in (item.old, item.new))
    lines: list[Line] = []
    for number, line in enumerate(unified_diff(old, new, n=_CONTEXT_LINES, lineterm="")):
        if line.startswith("@@"):
            if len(lines):
                lines.append(Line(sign="…", text=""))
        elif number > 1:  # the first two name files
            sign: Literal["+", "-", " "] = "+" if line[0] == "+" else "-" if line[0] == "-" else " "
            lines.append(Line(sign=sign, text=line[1:]))
    kept = _first(lines, bounds.lines)
    return ShownObject(
        op=item.op,
        title=visible(f"{item.kind} {item.name}"),
        lines=tuple(kept),
        more_lines=len(lines) - len(kept),
    )


def _lines(definition: str | None, bounds: Bounds) -> list[str]:
    # Only a line feed ends a line: other separators are to be seen, not obeyed.
    lines = [] if definition is None else definition.split("\n")
    return [_clipped(line.expandtabs(4), bounds.chars and 2 * bounds.chars) for line in lines[:_MOST_LINES]]


def _writes(changes: ChangeSet, names: Mapping[str, str]) -> list[ShownWrite]:
    """All writes; how many of its rows each left no difference in, as far as that is certain."""
    left = Counter(
        (table.schema, table.table, row.xid)
        for table in changes.tables
        for row in table.rows
        if row.xid is not None
    )
    # A deleted row whose deleter is not known, or a row that was not kept, may be any write's.
    unsure = Counter(
        {
            (table.schema, table.table): table.omitted + sum(row.xid is None for row in table.rows)
            for table in changes.tables
        }
    )
    return [
        _write(write, left[write.schema, write.table, write.xid], unsure, names) for write in changes.writes
    ]


def _write(write: Write, left: int, unsure: Counter[tuple[str, str]], names: Mapping[str, str]) -> ShownWrite:
    return ShownWrite(
        op=write.op,
        table=table_name(write.schema, write.table),
        rows=write.rows,
        gone=max(write.rows - left - unsure[write.schema, write.table], 0),
        by=author(write.by, names),
    )


def _is_cut(row: ShownRow) -> bool:
    return row.more_cells > 0 or any(
        cell.more_parts or any(side.cut for side in (cell.old, cell.new) if side is not None)
        for cell in row.cells
    )


def _clipped(text: str, chars: int | None) -> str:
    if chars is not None and len(text) > chars:
        return visible(text[: chars - 1]) + "…"
    return visible(text)


def _first(items: Sequence[_T], count: int | None) -> Sequence[_T]:
    return items if count is None else items[:count]
