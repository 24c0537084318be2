"""Changed rows and findings in words, for every report that is text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_forker.changes.render import author, credit, readable, readable_pair, visible
from redteam_harness.evidence.storage import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["call_names", "changed_rows", "finding_lines", "row_line", "rows_behind", "table_name"]

_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_MAX_CELL = 40
_BRIEF_CELLS = 3


def finding_lines(verdict: Mapping[str, Any]) -> list[str]:
    """A verdict's findings, or its reason where it has none."""
    findings = [str(finding["text"]) for finding in verdict.get("findings", ())]
    return [visible(line) for line in findings or [str(verdict.get("reason") or "no reason was recorded")]]


def changed_rows(
    changes: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]] | None = None
) -> list[str]:
    """Every changed row and schema object of a change set, a line each, with every cell that matters.

    Args:
        changes: the change set's JSON form, or None where none was taken.
        events: the trace, to name the tool call that wrote each row; without it, nobody is named.
    """
    if changes is None:
        return []
    names = None if events is None else call_names(events)
    lines = []
    for table in changes["tables"]:
        lines += [row_line(table, row, names) for row in table["rows"]]
        if table.get("omitted"):
            lines.append(
                f"{visible(table_name(table))}  … {table['omitted']} rows more were too many to keep"
            )
    return lines + [
        visible(f"{changed['op']} {changed['kind']} {changed['name']}")
        for changed in changes.get("objects", ())
    ]


def rows_behind(
    verdict: Mapping[str, Any], changes: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The changed rows that a verdict is about: those that its findings name, else those of its tables."""
    if changes is None:
        return []
    named = {
        (finding["table"], finding.get("op"), canonical(finding.get("key")))
        for finding in verdict.get("findings", ())
        if finding.get("table")
    }
    tables = set(verdict.get("tables", ())) if not named else set()
    names = call_names(events)
    return [
        row_line(table, row, names, first=verdict.get("words", ()))
        for table in changes["tables"]
        for row in table["rows"]
        if table_name(table) in tables or (table_name(table), row["op"], canonical(row["key"])) in named
    ]


def table_name(table: Mapping[str, Any]) -> str:
    """A table as rules write it: bare in schema `public`, else `schema.table`."""
    return str(table["table"]) if table["schema"] == "public" else f"{table['schema']}.{table['table']}"


def row_line(
    table: Mapping[str, Any],
    row: Mapping[str, Any],
    names: Mapping[str, str] | None,
    *,
    first: Sequence[str] | None = None,
) -> str:
    """One changed row: table, key, what changed, and the tool call that wrote it.

    Args:
        table: its table in the change set's JSON form.
        row: the row in its.
        names: what to call each tool call, from `call_names`; None: nobody is named.
        first: for a brief line of a few cells: the columns to begin with. Those that only say when come last.
    """
    types = table["columns"]
    key = " ".join(
        readable(value, types.get(name, ""), chars=_MAX_CELL).text
        for name, value in (row["key"] or {}).items()
    )
    cells = _named_cells(row)
    if first is not None:
        when = {name for name in cells if types[name].startswith("timestamp")}
        cells = sorted(cells, key=lambda name: (name not in first, name in when))
    shown = [_cell_of(row, name, types.get(name, "")) for name in cells]
    if first is not None and len(shown) > _BRIEF_CELLS:
        shown = [*shown[:_BRIEF_CELLS], "…"]
    said = "" if names is None else credit(author(row.get("by"), names))
    line = f"{visible(table_name(table))} {key or '(no key)'}  {_SIGNS[row['op']]} {', '.join(shown)}"
    return f"{line}   {said}" if said else line


def call_names(events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What a trace's tool calls are called in reports, by their ids: `reschedule, turn 4`."""
    return {
        event["call"]: f"{event['name']}, turn {event['turn']}"
        for event in events
        if event["kind"] == "tool_call"
    }


def _named_cells(row: Mapping[str, Any]) -> list[str]:
    if row["op"] == "update":
        return list(row["changed"])
    image, key = row["new"] or row["old"] or {}, row["key"] or {}
    return [name for name, value in image.items() if value is not None and name not in key]


def _cell_of(row: Mapping[str, Any], name: str, type_: str) -> str:
    if row["op"] == "update":
        old, new = readable_pair(row["old"].get(name), row["new"].get(name), type_, chars=_MAX_CELL)
        return f"{visible(name)} {old.text} → {new.text}"
    return f"{visible(name)} {readable((row['new'] or row['old'])[name], type_, chars=_MAX_CELL).text}"
