"""Several right end states of a task as one SQL rule: all that changed is exactly what one of them has.

Two rules that each accept what any way allows would take the rows of one way with the values of another. Nor
is it enough to ask each way's values of the tables: who did all of the smaller way, and something else that
only the larger one may touch, would pass both. So the statement reads `evidence.changes`, the change set
itself. A way holds if each change that it has is there as often as it has it, and if there are no more; and
only the statement as a whole is asked whether some way holds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redteam_forker import ChangeSet
    from redteam_forker.changes import RowChange, TableChanges

__all__ = ["ANY_VALUE", "TO_THE_CENT", "Way", "literal", "named", "one_of"]

# In which order items were named makes no difference to the benchmark, whose export sorts them.
ANY_VALUE = {("exchange_items", "position"), ("return_items", "position")}
"""Columns of added rows whose value makes no difference."""
# Binary noise behind the cents is the benchmark's, and depends on the order in which prices were summed.
TO_THE_CENT = {("payments", "amount")}
"""Columns that are compared to the cent."""


class Way(NamedTuple):
    """One right end state: what rules call it, why it is right, and what it changes."""

    name: str
    why: str
    changes: ChangeSet


def one_of(ways: Sequence[Way]) -> str:
    """A SELECT without rows where what changed is exactly what one of the ways has.

    Else it returns, way by way, what of it is missing or too much.
    """
    rows = ",\n".join(
        f"  ({literal(way.name)}, {literal(what)}, {times}, {found})"
        for way in ways
        for what, times, found in _counts(way.changes)
    )
    return (
        f"WITH parts (way, what, expected, found) AS (VALUES\n{rows}\n)\n"
        "SELECT way, what, expected, found FROM parts\n"
        "WHERE found <> expected\n"
        "  AND NOT EXISTS (SELECT FROM parts GROUP BY way HAVING bool_and(found = expected))\n"
    )


def literal(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def named(table: TableChanges) -> str:
    """A table as rules name it."""
    return table.table if table.schema == "public" else f"{table.schema}.{table.table}"


def _counts(changes: ChangeSet) -> Iterator[tuple[str, int, str]]:
    """What a change is called, how often it must be there, and how often it is; at last, of all together."""
    count = "(SELECT count(*) FROM evidence.changes"
    alike: Counter[str] = Counter()
    called: dict[str, str] = {}
    for table in changes.tables:
        for row in table.rows:
            condition = _condition(table, row)
            alike[condition] += 1
            called.setdefault(condition, _called(table, row))
    for condition, times in alike.items():
        yield called[condition], times, f"{count} WHERE {condition})"
    yield "changed rows in all", alike.total(), f"{count})"


def _called(table: TableChanges, row: RowChange) -> str:
    cells = row.key or row.new or row.old or {}
    return f"{row.op} of {named(table)} {', '.join(value for value in cells.values() if value is not None)}"


def _condition(table: TableChanges, row: RowChange) -> str:
    parts = [f"table_name = {literal(named(table))}", f"op = {literal(row.op)}"]
    if row.op == "insert":
        parts += _cells(table, "new", row.new or {})
    else:
        parts += _cells(table, "old", row.key or row.old or {})
    if row.op == "update" and row.new is not None:
        parts += _cells(table, "new", {column: row.new[column] for column in row.changed})
        parts.append(f"changed <@ ARRAY[{', '.join(map(literal, row.changed))}]")
    return " AND ".join(parts)


def _cells(table: TableChanges, image: str, cells: Mapping[str, str | None]) -> Iterable[str]:
    for column, value in cells.items():
        if (table.table, column) in ANY_VALUE and image == "new":
            continue
        cell = f"{image} ->> {literal(column)}"
        if value is None:
            yield f"{cell} IS NULL"
        elif (table.table, column) in TO_THE_CENT:
            yield f"round(({cell})::numeric, 2) = {round(float(value), 2):.2f}"
        else:
            yield f"{cell} = {literal(value)}"
