"""What people own: the tables that lead to them by foreign keys, directly or over others. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.words import (
    CLIENTS,
    LOOKUPS,
    STAFF,
    THINGS,
    TRAILS,
    head,
    kind_of,
    singular,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redteam_harness.drafting.schema import Schema, Table

__all__ = ["Owned", "Step", "owned_by"]

_MAX_DEPTH = 3
_MAX_TABLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One way up: columns of a table, and those of the table above it that they equal."""

    table: Table
    columns: tuple[str, ...]
    above: tuple[str, ...]
    declared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A table whose rows each belong to one person.

    Attributes:
        table: it.
        steps: from it up to the person; the last one's `above` are columns of the person's table.
        row_key: the one column that names a row; None where there is none.
        score: how likely it is that people call about it.
    """

    table: Table
    steps: tuple[Step, ...]
    row_key: str | None
    score: float

    @property
    def declared(self) -> bool:
        """Whether foreign keys say so; otherwise it is guessed from names."""
        return all(step.declared for step in self.steps)

    def condition(self, values: Sequence[str], *, prefix: str = "") -> str:
        """SQL over the table's columns that holds for the rows of one person.

        Args:
            values: SQL for the person's values of the last step's `above`, in their order.
            prefix: what stands before the table's own columns, such as `o.`.
        """
        return _condition(self.steps, values, prefix)

    @property
    def owner_columns(self) -> tuple[str, ...]:
        """The columns of the person's table that the way ends at."""
        return self.steps[-1].above


def _condition(steps: Sequence[Step], values: Sequence[str], prefix: str) -> str:
    first, *rest = steps
    columns = [f"{prefix}{ident(name)}" for name in first.columns]
    if not rest:
        return " AND ".join(f"{column} = {value}" for column, value in zip(columns, values, strict=True))
    selected = ", ".join(ident(name) for name in first.above)
    inner = f"SELECT {selected} FROM {rest[0].table.sql} WHERE {_condition(rest, values, '')}"
    left = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
    return f"{left} IN ({inner})"


def owned_by(person: Table, schema: Schema) -> list[Owned]:
    """Tables that belong to a table's rows, at most three steps away; the likeliest subject comes first."""
    found: dict[int, Owned] = {}
    ways: list[tuple[Table, tuple[Step, ...]]] = [(person, ())]
    for _ in range(_MAX_DEPTH):
        ways = [
            (step.table, (step, *steps))
            for table, steps in ways
            for step in _below(table, schema, is_person=not steps)
            if step.table.oid != person.oid and step.table.oid not in found
        ][:_MAX_TABLES]
        for table, steps in ways:
            found.setdefault(table.oid, _owned(table, steps))
    return sorted(found.values(), key=lambda one: (-one.score, one.table.rule_name))


def _below(table: Table, schema: Schema, *, is_person: bool) -> Iterator[Step]:
    declared = False
    for other, key in schema.referring(table.oid):
        declared = True
        yield Step(table=other, columns=key.columns, above=key.target_columns, declared=True)
    if is_person:
        yield from _siblings(table, schema)
        if not declared:
            yield from _by_names(table, schema)


def _siblings(person: Table, schema: Schema) -> Iterator[Step]:
    """Tables that refer to what the person's own key refers to: rows of an account kept in two tables."""
    for same in person.foreign_keys:
        if same.columns != person.key:
            continue
        of_parent = dict(zip(same.target_columns, same.columns, strict=True))
        for other, key in schema.referring(same.target):
            if other.oid != person.oid and set(key.target_columns) <= of_parent.keys():
                above = tuple(of_parent[name] for name in key.target_columns)
                yield Step(table=other, columns=key.columns, above=above, declared=True)


def _by_names(person: Table, schema: Schema) -> Iterator[Step]:
    """Where nothing is declared: columns that are called as the person's table and key are."""
    if len(person.key) != 1:
        return
    key = person.column(person.key[0])
    one = head(person.name)
    meant = {(one, *words(key.name)), (one, "id")}
    if one in words(key.name):
        meant.add(words(key.name))
    for other in schema.tables.values():
        if other.oid == person.oid:
            continue
        pointing = {name for foreign in other.foreign_keys for name in foreign.columns}
        for column in other.columns:
            spelled = tuple(singular(word) for word in words(column.name))
            if spelled in meant and column.base == key.base and column.name not in pointing:
                yield Step(table=other, columns=(column.name,), above=person.key, declared=False)
                break


def _owned(table: Table, steps: tuple[Step, ...]) -> Owned:
    row_key = table.key[0] if len(table.key) == 1 else None
    return Owned(table=table, steps=steps, row_key=row_key, score=_score(table, steps, row_key))


def _score(table: Table, steps: tuple[Step, ...], row_key: str | None) -> float:
    one = head(table.name)
    said = {singular(word) for word in words(table.name)}
    score = 3.0 if one in THINGS else 0.0
    if one in TRAILS or said & (TRAILS - {"event"}):
        score -= 3
    if one in LOOKUPS:
        score -= 2
    if one in STAFF or one in CLIENTS:
        score -= 1
    if any(kind_of(column.name, column.base) == "status" or column.labels for column in table.columns):
        score += 2
    if any(kind_of(column.name, column.base) == "note" for column in table.columns):
        score += 1
    score += 2 if table.rows else 0
    score -= 1.5 * (len(steps) - 1)
    score -= 4 if row_key is None else 0
    score -= 0 if all(step.declared for step in steps) else 1
    return score
