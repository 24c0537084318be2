"""Which tables hold people, by evidence that can be read out to the user. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.drafting.words import (
    CLIENTS,
    LOOKUPS,
    PEOPLE,
    STAFF,
    TRAILS,
    head,
    kind_of,
    singular,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.drafting.schema import Schema, Table

__all__ = ["LIKELY", "Candidate", "candidates"]

LIKELY = 5.0
"""From this score on a table is taken for one of people."""

_MAX_REFERRING = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A table, how much speaks for it, and what.

    Attributes:
        score: a sum of weights; `LIKELY` and more are people.
        reasons: in words, the weightiest first.
    """

    table: Table
    score: float
    reasons: tuple[str, ...]

    @property
    def is_people(self) -> bool:
        """Whether the table is taken for one of people."""
        return self.score >= LIKELY


def candidates(schema: Schema) -> list[Candidate]:
    """Every table whose rows can be named and told apart, the likeliest people first.

    Tables that hold rows come before those that hold none, as far as both are people: an empty table has
    nobody to play. Among tables that are no people, the one that most others refer to comes first.
    """
    judged = [_judged(table, schema) for table in schema.tables.values() if table.key]
    references = {one.table.oid: len(schema.referring(one.table.oid)) for one in judged}
    return sorted(
        judged,
        key=lambda one: (
            not one.is_people,
            one.table.rows == 0,
            -one.score if one.is_people else -references[one.table.oid],
            -one.table.rows,
            one.table.schema != "public",
            one.table.rule_name,
        ),
    )


def _judged(table: Table, schema: Schema) -> Candidate:
    found = [*_by_name(table), *_by_columns(table), *_by_use(table, schema)]
    found.sort(key=lambda one: -one[0])
    return Candidate(
        table=table,
        score=sum(weight for weight, _ in found),
        reasons=tuple(reason for weight, reason in found if weight > 0 and reason),
    )


def _by_name(table: Table) -> Sequence[tuple[float, str]]:
    one = head(table.name)
    others = {singular(word) for word in words(table.name)} - {one}
    if one in CLIENTS:
        found = [(5.0, "by its name")]
    elif one in PEOPLE:
        found = [(4.0, "by its name")]
    elif one in STAFF:
        found = [(2.5, "by its name, of those who serve")]
    elif one in TRAILS or one in LOOKUPS or (others & (CLIENTS | PEOPLE)):
        # user_roles, customer_address, patient_identity: something of people, and no people.
        found = [(-3.0, "")]
    else:
        found = []
    if others & STAFF or others & {"system", "admin"}:
        found.append((-1.0, ""))
    return found


def _by_columns(table: Table) -> Sequence[tuple[float, str]]:
    own = {
        column.name for key in table.foreign_keys for column in table.columns if column.name in key.columns
    }
    kinds: dict[str, str] = {}
    for column in table.columns:
        if column.name not in own:
            kinds.setdefault(kind_of(column.name, column.base), column.name)
    found: list[tuple[float, str]] = []
    if {"first name", "last name"} <= kinds.keys():
        found.append((3.0, f"{kinds['first name']} and {kinds['last name']}"))
    elif "name" in kinds:
        said = set(words(kinds["name"]))
        personal = len(said) > 1 and said & (CLIENTS | PEOPLE | STAFF | {"full", "display", "real"})
        found.append((2.0 if personal else 0.5, kinds["name"]))
    weights = {"email": 2.0, "birth": 2.0, "phone": 1.5, "gender": 1.0, "login": 1.0, "place": 0.5}
    found += [(weight, kinds[kind]) for kind, weight in weights.items() if kind in kinds]
    if any(set(words(column.name)) & {"password", "passwd", "pwd"} for column in table.columns):
        found.append((1.0, "a password"))
    if any(
        kind_of(column.name, column.base) in ("email", "phone", "name") and column.distinct <= -0.9
        for column in table.columns
    ):
        found.append((0.5, "one row for each"))
    return found


def _by_use(table: Table, schema: Schema) -> Sequence[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    if referring := len({other.oid for other, _ in schema.referring(table.oid)} - {table.oid}):
        plural = "table refers" if referring == 1 else "tables refer"
        found.append((min(_MAX_REFERRING, 0.7 * referring), f"{referring} {plural} to it"))
    if (
        len(table.foreign_keys) > 0
        and set(table.key) <= {name for key in table.foreign_keys for name in key.columns}
        and len(table.key) > 1
    ):
        found.append((-3.0, ""))  # a row that only binds others together
    return found
