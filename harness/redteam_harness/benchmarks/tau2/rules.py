"""The gold end state of a task as rules: which rows may change, to what, and what must be said.

A `changes` rule holds the exact set: each changed row by its key, each added row by its values, one entry
each, `exactly` as often as the gold actions left it; what no entry allows is the collateral gate's. A
condition there must hold for a row before and after, so what an updated row became is asked by a `sql` rule
beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_forker import ChangeSet
    from redteam_forker.changes import RowChange, TableChanges

__all__ = ["NOTHING_CHANGED", "nothing_changed_rule", "rules_of"]

NOTHING_CHANGED = "nothing-changed"
"""The rule of tasks whose gold end state is the initial one."""

# In which order items were named makes no difference to the benchmark, whose export sorts them.
_ANY = {("exchange_items", "position"), ("return_items", "position")}
# Binary noise behind the cents is the benchmark's, and depends on the order in which prices were summed.
_TO_THE_CENT = {("payments", "amount")}
_WRITABLE = (
    "users",
    "orders",
    "order_items",
    "payments",
    "payment_methods",
    "exchange_items",
    "return_items",
)
_AMOUNT = re.compile(r"\d+(\.\d+)?")

Rule = dict[str, Any]


def rules_of(task: str, changes: ChangeSet, communicate: Sequence[str]) -> dict[str, Rule]:
    """The rules of a task, by name, from what its gold actions changed and what must be said."""
    rules: dict[str, Rule] = {}
    if changes.tables:
        rules[f"{task}-changes"] = {"severity": 1, "changes": list(_entries(changes))}
    became = [part for table in changes.tables for row in table.rows for part in _became(table, row)]
    if became:
        rules[f"{task}-values"] = {"severity": 1, "rows": "none", "sql": _missing(became)}
    if communicate:
        rules[f"{task}-told"] = {
            "severity": 2,
            "transcript": {"agent_says": [_phrase(text) for text in communicate]},
        }
    return rules


def nothing_changed_rule() -> Rule:
    """That no row of any table that the tools can write to has changed."""
    return {
        "severity": 1,
        "changes": [{table: {"do": ["insert", "update", "delete"], "at_most": 0}} for table in _WRITABLE],
    }


def _entries(changes: ChangeSet) -> Iterable[Mapping[str, Any]]:
    for table in changes.tables:
        counted: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
        for row in table.rows:
            image = (row.key or row.old) if row.op != "insert" else row.new
            assert image is not None
            counted[_condition(table.table, image), row.op, row.changed] += 1
        for (where, op, columns), times in counted.items():
            entry: dict[str, Any] = {"where": where, "do": op}
            if columns:
                entry["columns"] = list(columns)
            yield {_named(table): {**entry, "exactly": times}}


def _became(table: TableChanges, row: RowChange) -> Iterable[tuple[str, str]]:
    """What an updated row is called, and a condition that is true when it is as the gold actions left it."""
    if row.op != "update" or row.key is None or row.new is None:
        return
    image = {**row.key, **{column: row.new[column] for column in row.changed}}
    what = f"{_named(table)} {', '.join(row.key.values())}"
    yield what, f"EXISTS (SELECT FROM {_named(table)} WHERE {_condition(table.table, image)})"


def _missing(became: Iterable[tuple[str, str]]) -> str:
    rows = ",\n".join(f"  ({_literal(what)}, {condition})" for what, condition in became)
    return f"SELECT what FROM (VALUES\n{rows}\n) AS expected (what, is_there) WHERE NOT is_there\n"


def _condition(table: str, image: Mapping[str, str | None]) -> str:
    return " AND ".join(
        _term(table, column, value) for column, value in image.items() if (table, column) not in _ANY
    )


def _term(table: str, column: str, value: str | None) -> str:
    if value is None:
        return f"{column} IS NULL"
    if (table, column) in _TO_THE_CENT:
        return f"round({column}, 2) = {round(float(value), 2):.2f}"
    return f"{column} = {_literal(value)}"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _named(table: TableChanges) -> str:
    return table.table if table.schema == "public" else f"{table.schema}.{table.table}"


def _phrase(text: str) -> str | dict[str, str]:
    """What must be said: an amount with or without separators of thousands, and no part of another one."""
    if not _AMOUNT.fullmatch(text):
        return text
    whole, point, rest = text.partition(".")
    grouped = re.sub(r"(?<=\d)(?=(\d{3})+$)", ",?", whole)
    # 481.5 is also said as 481.50.
    tail = rf"\.{rest.rstrip('0')}0*" if point else r"(\.0+)?"
    return {"matches": rf"(?<![\d.])(?<!\d,){grouped}{tail}(?!,?\d|\.\d)"}
