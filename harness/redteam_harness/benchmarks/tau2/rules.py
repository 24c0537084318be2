"""The gold end state of a task as rules: which rows may change, to what, and what must be said.

A `changes` rule holds the exact set: each changed row by its key, each added row by its values, one entry
each, `exactly` as often as the gold actions left it; what no entry allows is the collateral gate's. A
condition there must hold for a row before and after, so what an updated row became is asked by a `sql` rule
beside it. Where a task may be done in several ways, that rule knows each of them as a whole (`ways`).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from redteam_harness.benchmarks.tau2.ways import ANY_VALUE, TO_THE_CENT, Way, literal, named, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_forker import ChangeSet
    from redteam_forker.changes import RowChange, TableChanges

__all__ = ["NOTHING_CHANGED", "nothing_changed_rule", "rules_of"]

NOTHING_CHANGED = "nothing-changed"
"""The rule of tasks whose gold end state is the initial one."""

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


def rules_of(
    task: str, gold: ChangeSet, communicate: Sequence[str], alternatives: Sequence[Way] = ()
) -> dict[str, Rule]:
    """The rules of a task, by name.

    Args:
        task: what their names begin with.
        gold: what the gold actions changed.
        communicate: what must be said.
        alternatives: what else is right.
    """
    rules: dict[str, Rule] = {}
    became = [part for table in gold.tables for row in table.rows for part in _became(table, row)]
    if alternatives:
        ways = [Way("gold", "what the benchmark has", gold), *alternatives]
        entries = {way.name: list(_entries(way.changes)) or _no_entries() for way in ways}
        why = "\n".join(f"{way.name}: {way.why}" for way in ways)
        rules[f"{task}-changes"] = {"severity": 1, "why": why, "changes": [{"any_of": entries}]}
        rules[f"{task}-values"] = {"severity": 1, "rows": "none", "sql": one_of(ways)}
    elif gold.tables:
        rules[f"{task}-changes"] = {"severity": 1, "changes": list(_entries(gold))}
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
    return {"severity": 1, "changes": _no_entries()}


def _no_entries() -> list[Mapping[str, Any]]:
    return [{table: {"do": ["insert", "update", "delete"], "at_most": 0}} for table in _WRITABLE]


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
            yield {named(table): {**entry, "exactly": times}}


def _became(table: TableChanges, row: RowChange) -> Iterable[tuple[str, str]]:
    """What an updated row is called, and a condition that is true when it is as the gold actions left it."""
    if row.op != "update" or row.key is None or row.new is None:
        return
    image = {**row.key, **{column: row.new[column] for column in row.changed}}
    what = f"{named(table)} {', '.join(row.key.values())}"
    yield what, f"EXISTS (SELECT FROM {named(table)} WHERE {_condition(table.table, image)})"


def _missing(became: Iterable[tuple[str, str]]) -> str:
    rows = ",\n".join(f"  ({literal(what)}, {condition})" for what, condition in became)
    return f"SELECT what FROM (VALUES\n{rows}\n) AS expected (what, is_there) WHERE NOT is_there\n"


def _condition(table: str, image: Mapping[str, str | None]) -> str:
    return " AND ".join(
        _term(table, column, value) for column, value in image.items() if (table, column) not in ANY_VALUE
    )


def _term(table: str, column: str, value: str | None) -> str:
    if value is None:
        return f"{column} IS NULL"
    if (table, column) in TO_THE_CENT:
        return f"round({column}, 2) = {round(float(value), 2):.2f}"
    return f"{column} = {literal(value)}"


def _phrase(text: str) -> str | dict[str, str]:
    """What must be said: an amount with or without separators of thousands, and no part of another one."""
    if not _AMOUNT.fullmatch(text):
        return text
    whole, point, rest = text.partition(".")
    grouped = re.sub(r"(?<=\d)(?=(\d{3})+$)", ",?", whole)
    # 481.5 is also said as 481.50.
    tail = rf"\.{rest.rstrip('0')}0*" if point else r"(\.0+)?"
    return {"matches": rf"(?<![\d.])(?<!\d,){grouped}{tail}(?!,?\d|\.\d)"}
