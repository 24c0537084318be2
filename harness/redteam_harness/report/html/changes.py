"""The change set's side of a conversation, and which of its rows a finding is about. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from redteam_forker.changes import ChangeSet
from redteam_forker.changes.render import Bounds, shown, visible
from redteam_harness.evidence.storage import canonical
from redteam_harness.report.changed import call_names, table_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_forker.changes import RowChange
    from redteam_forker.changes.render import Readable, Shown
    from redteam_forker.changes.render.model import ShownCell, ShownRow

__all__ = ["BOUNDS", "Rows", "changes_data"]

BOUNDS = Bounds(rows=500, cells=None, chars=12_000, parts=100, lines=400, items=200)
"""Enough for anybody who reads; what a runaway agent wrote by the million stays in changes.json."""


class Rows:
    """The rows of a shown change set, by what findings say of them.

    Args:
        changes: the change set's JSON form.
        calls: the index of each tool call's event, by its id.
    """

    def __init__(self, changes: Mapping[str, Any], calls: Mapping[str, int]) -> None:
        self._calls = calls
        self._by_table: dict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
        for number, table in enumerate(changes["tables"]):
            for place, row in enumerate(table["rows"][: BOUNDS.rows]):
                self._by_table[table_name(table)].append((row_id(number, place), row))

    def of_tables(self, tables: Sequence[str]) -> list[str]:
        """The ids of all rows of some tables."""
        return [id_ for table in tables for id_, _ in self._by_table.get(table, ())]

    def of(self, finding: Mapping[str, Any]) -> list[str]:
        """The ids of the rows that a finding or an attribution names; none if it names none.

        A row without a key is told by the call that wrote it, where that is known.
        """
        table, op, key = finding.get("table"), finding.get("op"), finding.get("key")
        found = [
            (id_, row)
            for id_, row in self._by_table.get(str(table), ())
            if op in (None, row["op"]) and canonical(key) == canonical(row["key"])
        ]
        event = finding.get("event")
        written = [id_ for id_, row in found if event in map(self._calls.get, row.get("by") or ())]
        # With neither key nor operation it is about a write; only what that call left can be meant.
        return written or ([] if key is None and op is None else [id_ for id_, _ in found])


def row_id(table: int, row: int) -> str:
    """What a row is called in the page."""
    return f"r{table}-{row}"


def changes_data(changes: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A change set as the page draws it.

    Raises:
        UsageError: it is of another version, or its digest is not that of its content.
    """
    whole = ChangeSet.from_json(changes)
    view = shown(whole, names=call_names(events), bounds=BOUNDS)
    calls = {event["call"]: index for index, event in enumerate(events) if event["kind"] == "tool_call"}
    return {
        "summary": view.summary,
        "tables": [
            {
                "name": table.name,
                "counts": table.counts,
                "found": table.found,
                "more": table.more_rows,
                "omitted": table.omitted,
                "rows": [
                    {"id": row_id(number, place), **_row(row, _writer(of.rows[place], calls))}
                    for place, row in enumerate(table.rows)
                ],
            }
            for number, (table, of) in enumerate(zip(view.tables, whole.tables, strict=False))
        ],
        **_beside_rows(view),
    }


def _beside_rows(view: Shown) -> dict[str, Any]:
    return {
        "sequences": [_cell(item) for item in view.sequences],
        "objects": [
            {
                "op": item.op,
                "title": item.title,
                "lines": [[line.sign, line.text] for line in item.lines],
                "more": item.more_lines,
            }
            for item in view.objects
        ],
        "writes": [
            {"op": item.op, "table": item.table, "rows": item.rows, "gone": item.gone, "by": item.by}
            for item in view.writes
        ],
        "more": dict(view.more),
    }


def _writer(row: RowChange, calls: Mapping[str, int]) -> int | None:
    """The event of the call that wrote a row, if it can only have been one."""
    return calls.get(row.by[0]) if row.by is not None and len(row.by) == 1 else None


def _row(row: ShownRow, writer: int | None) -> dict[str, Any]:
    return {
        "op": row.op,
        "key": [list(pair) for pair in row.key],
        "cells": [_cell(cell) for cell in row.cells],
        "same": [_cell(cell) for cell in row.same],
        "nulls": row.nulls,
        "by": row.by,
        "outside": row.background,
        "call": writer,
    }


def _cell(cell: ShownCell) -> dict[str, Any]:
    return {
        "name": cell.column,
        "old": _value(cell.old),
        "new": _value(cell.new),
        "parts": [[visible(part.path), part.old, part.new] for part in cell.parts],
        "more": cell.more_parts,
    }


def _value(value: Readable | None) -> list[Any] | None:
    """What comes before the part that differs, that part, what comes after it; and whether it is NULL."""
    if value is None:
        return None
    return [value.before, value.marked, value.after, value.kind == "null"]
