"""The evidence as relations: schema `evidence` of a `sql` rule, and what a `python` rule's function is given.

In SQL nothing is made in the conversation's database. A statement that reads `evidence.calls` is run with one
WITH query in front that reads the calls from a JSON parameter, so what an agent or a tool said is only data.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pglast import parse_sql
from pglast.parser import scan
from pglast.visitors import Visitor

from redteam_rubrics.calls import calls_of
from redteam_rubrics.parameters import placeholders, value_text
from redteam_rubrics.statements import EVIDENCE
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redteam_rubrics.evidence import Evidence

__all__ = ["RELATIONS", "plain", "relations_of", "rows_of", "with_evidence"]

RELATIONS: Mapping[str, Mapping[str, str]] = {
    "lines": {"event": "int", "turn": "int", "speaker": "text", "text": "text"},
    "calls": {
        "event": "int",
        "turn": "int",
        "id": "text",
        "tool": "text",
        "arguments": "jsonb",
        "returned": "boolean",
        "result": "jsonb",
        "error": "text",
        "message": "text",
    },
    "outbox": {
        "event": "int",
        "turn": "int",
        "tool": "text",
        "arguments": "jsonb",
        "result": "jsonb",
        "error": "text",
        "fault": "text",
        "happened": "boolean",
    },
    "changes": {
        "table_name": "text",
        "op": "text",
        "key": "jsonb",
        "old": "jsonb",
        "new": "jsonb",
        "changed": "text[]",
        "by": "text[]",
    },
    "writes": {"table_name": "text", "op": "text", "rows": "bigint", "by": "text[]"},
    "objects": {"op": "text", "kind": "text", "name": "text"},
}
"""The relations by name, each with its columns and their types."""


def rows_of(evidence: Evidence, relation: str) -> list[dict[str, Any]]:
    """The rows of one relation, in the order in which things happened."""
    return [dict(zip(RELATIONS[relation], row, strict=True)) for row in _ROWS[relation](evidence)]


def plain(evidence: Evidence) -> dict[str, Any]:
    """All that is known of a conversation, as JSON-like data: every relation, and who spoke."""
    return {
        "conversation": evidence.conversation,
        "disposition": evidence.disposition,
        "persona": _person(evidence.persona),
        "claimed": None if evidence.claimed is None else _person(evidence.claimed),
        **{name: rows_of(evidence, name) for name in RELATIONS},
    }


def relations_of(sql: str) -> tuple[str, ...]:
    """The relations of schema `evidence` that a SELECT reads, each once, in their order.

    Raises:
        UsageError: there is no such relation; names those there are.
    """
    named = dict.fromkeys(name for _, name, _ in _Uses.of(sql).tables)
    unknown = [name for name in named if name not in RELATIONS]
    if unknown:
        raise UsageError(
            f"there is no {EVIDENCE}.{unknown[0]}: schema {EVIDENCE} is what is known of the conversation, "
            f"and there are: {', '.join(RELATIONS)}"
        )
    return tuple(named)


def with_evidence(sql: str, evidence: Evidence) -> tuple[str, str, list[str]]:
    """Make a checked SELECT with `evidence.relation` in it runnable.

    Returns:
        What goes in front of the statement around it (`WITH ...`, or nothing), the SELECT as it is to be
        written, and the statement's arguments.
    """
    uses = _Uses.of(sql)
    names = relations_of(sql)
    queries: list[str] = []
    for number, name in enumerate(names, 1):
        columns = ", ".join(f'"{column}" {kind}' for column, kind in RELATIONS[name].items())
        queries.append(
            f'"{_query(name)}" AS MATERIALIZED '
            f"(SELECT * FROM pg_catalog.json_to_recordset(${number}::json) AS rows ({columns}))"
        )
    text = sql
    for start, end, replacement in sorted(uses.replacements(sql), reverse=True):
        text = text[:start] + replacement + text[end:]
    head = f"WITH {', '.join(queries)}\n" if queries else ""
    return head, text, [json.dumps(_readable(rows_of(evidence, name))) for name in names]


def columns_read(sql: str) -> tuple[tuple[str, str], ...]:
    """The columns that a SELECT reads of relations of schema `evidence`, by a name of theirs.

    A name that also stands for something else in the statement is left out, and so is a bare column.
    """
    uses = _Uses.of(sql)
    found = [(uses.names[table], column) for table, column in uses.columns_by_name if table in uses.names]
    return tuple((relation, column) for relation, column in dict.fromkeys(found) if relation)


class _Uses(Visitor):
    """Where a statement names relations of schema `evidence`, and columns by way of them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[int, str, bool]] = []
        self.columns: list[tuple[int, str]] = []
        self.columns_by_name: list[tuple[str, str]] = []
        self.names: dict[str, str] = {}

    @classmethod
    def of(cls, sql: str) -> _Uses:
        uses = cls()
        uses(parse_sql(placeholders(sql)))
        return uses

    # The names are pglast's: it calls visit_<class of the node>.
    def visit_RangeVar(self, _: Any, node: Any) -> None:  # noqa: N802
        is_ours = node.schemaname == EVIDENCE
        if is_ours:
            self.tables.append((int(node.location), node.relname, node.alias is not None))
        name = node.relname if node.alias is None else node.alias.aliasname
        relation = node.relname if is_ours else ""
        self.names[name] = relation if self.names.get(name, relation) == relation else ""

    def visit_RangeSubselect(self, _: Any, node: Any) -> None:  # noqa: N802
        if node.alias is not None:
            self.names[node.alias.aliasname] = ""

    def visit_RangeFunction(self, _: Any, node: Any) -> None:  # noqa: N802
        if node.alias is not None:
            self.names[node.alias.aliasname] = ""

    def visit_ColumnRef(self, _: Any, node: Any) -> None:  # noqa: N802
        names = [getattr(field, "sval", None) for field in node.fields]
        if len(names) == 3 and names[0] == EVIDENCE and names[1] in RELATIONS:
            self.columns.append((int(node.location), str(names[1])))
        if len(names) in (2, 3) and None not in names:
            self.columns_by_name.append((str(names[-2]), str(names[-1])))

    def replacements(self, sql: str) -> Iterator[tuple[int, int, str]]:
        for start, name, has_alias in self.tables:
            alias = "" if has_alias else f' AS "{name}"'
            yield start, _end_of_second_name(sql, start), f'"{_query(name)}"{alias}'
        for start, name in self.columns:
            yield start, _end_of_second_name(sql, start), f'"{name}"'


def _end_of_second_name(sql: str, start: int) -> int:
    """Where `schema.name`, which begins at `start`, ends."""
    tokens = [token for token in scan(sql) if token.start >= start and "COMMENT" not in token.name]
    return int(tokens[2].end) + 1


def _query(relation: str) -> str:
    """The name of the WITH query that stands for a relation: none that a rule's author would choose."""
    return f"__rt_{EVIDENCE}_{relation}"


def _lines(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    for index, event in enumerate(evidence.events):
        if event["kind"] in ("user", "agent"):
            yield index, event.get("turn"), event["kind"], event["text"]


def _calls(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    for call in calls_of(evidence):
        facts = (call.event, call.turn, call.id, call.tool, dict(call.arguments))
        yield *facts, call.returned, call.result, call.error, call.message


def _outbox(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    for index, event in evidence.of_kind("external"):
        facts = (index, event.get("turn"), event["name"], dict(event["arguments"]))
        # Without a fault that was played, what its mock returned is what happened.
        happened = event.get("happened", event.get("error") is None)
        yield *facts, event.get("result"), event.get("error"), event.get("fault"), happened


def _changes(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    for table in evidence.changes.tables:
        for row in table.rows:
            images = tuple(None if cells is None else dict(cells) for cells in (row.key, row.old, row.new))
            yield table.name, row.op, *images, list(row.changed), _by(row.by)


def _writes(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    for write in evidence.changes.writes:
        yield write.table, write.op, write.rows, _by(write.by)


def _objects(evidence: Evidence) -> Iterator[tuple[Any, ...]]:
    for change in evidence.changes.objects:
        yield change.op, change.kind, change.name


_ROWS: Mapping[str, Callable[[Evidence], Iterator[tuple[Any, ...]]]] = {
    "lines": _lines,
    "calls": _calls,
    "outbox": _outbox,
    "changes": _changes,
    "writes": _writes,
    "objects": _objects,
}


def _by(calls: tuple[str, ...] | None) -> list[str] | None:
    return None if calls is None else list(calls)


def _person(row: Mapping[str, object]) -> dict[str, Any]:
    """A row of the cast as stored evidence has it: what JSON has no form for is Postgres' text of it."""
    return {
        column: value if isinstance(value, str | int | float | bool | None) else value_text(value)
        for column, value in row.items()
    }


def _readable(value: Any) -> Any:
    """A value without what Postgres' JSON cannot hold: NUL, half a character, a number that is none."""
    match value:
        case str():
            whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {_readable(str(name)): _readable(item) for name, item in value.items()}
        case list() | tuple():
            return [_readable(item) for item in value]
        case _:
            return value
