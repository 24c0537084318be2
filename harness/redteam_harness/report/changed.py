"""Changed rows and findings in words, for every report that is text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.storage import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["changed_rows", "finding_lines", "row_line", "rows_behind", "table_name", "written_by"]

_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_MAX_CELL = 40
_BRIEF_CELLS = 3


def finding_lines(verdict: Mapping[str, Any]) -> list[str]:
    """A verdict's findings, or its reason where it has none."""
    findings = [str(finding["text"]) for finding in verdict.get("findings", ())]
    return findings or [str(verdict.get("reason") or "no reason was recorded")]


def changed_rows(changes: Mapping[str, Any] | None, events: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Every changed row and schema object of a change set, a line each, with every cell that matters.

    Args:
        changes: the change set's JSON form, or None where none was taken.
        events: the trace, to name the tool call that wrote each row.
    """
    if changes is None:
        return []
    lines = [row_line(table, row, events) for table in changes["tables"] for row in table["rows"]]
    return lines + [
        f"{changed['op']} {changed['kind']} {changed['name']}" for changed in changes.get("objects", ())
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
    return [
        row_line(table, row, events, first=verdict.get("words", ()))
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
    events: Sequence[Mapping[str, Any]],
    *,
    first: Sequence[str] | None = None,
) -> str:
    """One changed row: table, key, what changed, and the tool call that wrote it.

    Args:
        table: its table in the change set's JSON form.
        row: the row in its.
        events: the trace.
        first: for a brief line of a few cells: the columns to begin with. Those that only say when come last.
    """
    key = " ".join(str(value) for value in (row["key"] or {}).values()) or "(no key)"
    names = _named_cells(row)
    if first is not None:
        when = {name for name in names if table["columns"][name].startswith("timestamp")}
        names = sorted(names, key=lambda name: (name not in first, name in when))
    cells = [_cell_of(row, name) for name in names]
    if first is not None and len(cells) > _BRIEF_CELLS:
        cells = [*cells[:_BRIEF_CELLS], "…"]
    author = written_by(row, events)
    by = f"   by {author}" if author else ""
    return f"{table_name(table)} {key}  {_SIGNS[row['op']]} {', '.join(cells)}{by}"


def written_by(row: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> str:
    """The tool call whose transaction ids cover the row's, as `name, turn n`; empty where none does."""
    if row.get("xid") is None:
        return ""
    for event, after in _calls(events):
        first, end = event.get("xid"), after.get("xid")
        if first is not None and end is not None and int(first) <= int(row["xid"]) < int(end):
            return f"{event['name']}, turn {event['turn']}"
    return ""


def _calls(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    open_calls: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event["kind"] == "tool_call":
            open_calls[event["call"]] = event
        elif event["kind"] in ("tool_result", "tool_error") and event["call"] in open_calls:
            yield open_calls.pop(event["call"]), event


def _named_cells(row: Mapping[str, Any]) -> list[str]:
    if row["op"] == "update":
        return list(row["changed"])
    image, key = row["new"] or row["old"] or {}, row["key"] or {}
    return [name for name, value in image.items() if value is not None and name not in key]


def _cell_of(row: Mapping[str, Any], name: str) -> str:
    if row["op"] == "update":
        return f"{name} {_cell(row['old'][name])} → {_cell(row['new'][name])}"
    return f"{name} {_cell((row['new'] or row['old'])[name])}"


def _cell(value: str | None) -> str:
    if value is None:
        return "null"
    text = " ".join(value.split())
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
