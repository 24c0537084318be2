"""Rows for tables that a seed leaves empty: INSERTs of people and of what they own. Pure.

A dump of the structure alone has nobody to play. What is written here is plainly made up, obeys types, keys
and foreign keys as far as the catalog tells them, and is tried on a fork before anybody sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_harness.drafting.schema import ident, literal
from redteam_harness.drafting.words import CLIENTS, PEOPLE, STAFF, head, kind_of, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.drafting.owned import Owned
    from redteam_harness.drafting.schema import Column, ForeignKey, Schema, Table

__all__ = ["CannotInvent", "inserts"]

_COUNT = 3
_EACH = 2
_FIRST = 9001
_NAMES = (("Ada", "Marsh"), ("Ben", "Okafor"), ("Chiara", "Rossi"))
_CITIES = ("Leeds", "Porto", "Ghent")
_MAX_DEPTH = 6
_MAX_COLUMNS = 40


class CannotInvent(Exception):
    """A row cannot be made up: says of which table and column."""


class _Rows:
    def __init__(self, schema: Schema, *, upsert: bool) -> None:
        self._schema = schema
        self._upsert = upsert
        self._made: dict[tuple[int, int], dict[str, str]] = {}
        self._open: set[tuple[int, int]] = set()
        self.circular = False
        self.statements: list[str] = []

    def add(self, table: Table, number: int, given: dict[str, str], depth: int = 0) -> dict[str, str]:
        """One row, and before it those that it must refer to; its values as SQL, by column."""
        if (table.oid, number) in self._made:
            # A row that is still waiting for what it refers to is referred to itself.
            self.circular = self.circular or (table.oid, number) in self._open
            return self._made[table.oid, number]
        if depth > _MAX_DEPTH:
            raise CannotInvent(f"table {table.rule_name} refers to too many others, one behind the other")
        pointing = {name for key in table.foreign_keys for name in key.columns}
        values = dict(given)
        for name in table.key:
            if name not in pointing and (value := _value(table.column(name), table, number)) is not None:
                values.setdefault(name, value)
        self._made[table.oid, number] = values
        self._open.add((table.oid, number))
        for key in table.foreign_keys:
            if set(key.columns) <= values.keys() or not self._needed(key, table):
                continue
            values.update(self._pointing(key, number, depth))
        for column in table.columns[:_MAX_COLUMNS]:
            if column.name not in values and (value := _value(column, table, number)) is not None:
                values[column.name] = value
        self._open.discard((table.oid, number))
        self.statements.append(self._insert(table, values))
        return values

    def _insert(self, table: Table, values: dict[str, str]) -> str:
        columns = ", ".join(ident(name) for name in values)
        always = any(column.always and column.name in values for column in table.columns)
        statement = (
            f"INSERT INTO {table.sql} ({columns})"
            f"{' OVERRIDING SYSTEM VALUE' if always else ''}\n    VALUES ({', '.join(values.values())})"
        )
        if self._upsert and table.key:
            updates = ", ".join(
                f"{ident(name)} = EXCLUDED.{ident(name)}" for name in values if name not in table.key
            )
            keys = ", ".join(map(ident, table.key))
            statement += f"\n    ON CONFLICT ({keys}) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
        return f"{statement};"

    def _needed(self, key: ForeignKey, table: Table) -> bool:
        return any(table.column(name).not_null for name in key.columns)

    def _pointing(self, key: ForeignKey, number: int, depth: int) -> dict[str, str]:
        above = self._schema.tables.get(key.target)
        if above is None:
            raise CannotInvent("a foreign key leads to a table that is not read")
        if above.rows:
            selected = {
                name: f"(SELECT {ident(there)} FROM {above.sql} ORDER BY 1 LIMIT 1)"
                for name, there in zip(key.columns, key.target_columns, strict=True)
            }
            if len(selected) == 1:
                return selected
        made = self.add(above, number, {}, depth + 1)
        missing = [there for there in key.target_columns if there not in made]
        if missing:
            raise CannotInvent(f"column {missing[0]} of {above.rule_name} is filled by the database")
        return {name: made[there] for name, there in zip(key.columns, key.target_columns, strict=True)}


def inserts(person: Table, owned: Sequence[Owned], schema: Schema, *, upsert: bool = False) -> list[str]:
    """Statements that make three people, with two rows of each table of `owned` for each of them.

    Args:
        person: the table of people.
        owned: what belongs to them.
        schema: all tables.
        upsert: whether rows may be there already, as where a trigger makes them.

    Raises:
        CannotInvent: a chain of foreign keys is too long, or a type is none that can be made up.
    """
    rows = _Rows(schema, upsert=upsert)
    for number in range(_COUNT):
        rows.add(person, number, {})
    for one in owned:
        for number in range(_COUNT * _EACH):
            above = rows.add(person, number % _COUNT, {})
            for step in reversed(one.steps):
                missing = [name for name in step.above if name not in above]
                if missing:
                    raise CannotInvent(f"column {missing[0]} above {step.table.rule_name} is not known")
                given = {name: above[there] for name, there in zip(step.columns, step.above, strict=True)}
                above = rows.add(step.table, number, given)
    if rows.circular:
        # No order of rows satisfies foreign keys that go in a circle; all of them hold at the end.
        return [
            "SET session_replication_role = replica;",
            *rows.statements,
            "RESET session_replication_role;",
        ]
    return rows.statements


def _value(column: Column, table: Table, number: int) -> str | None:
    """A value as SQL; None leaves the column to the database."""
    if column.generated:
        return None
    in_key = any(column.name in key for key in (table.key, *table.unique))
    kind = kind_of(column.name, column.base)
    told = bool(column.labels) or kind in (
        "name",
        "first name",
        "last name",
        "email",
        "phone",
        "birth",
        "login",
        "status",
        "note",
        "place",
    )
    if not (column.required or (told and column.default is None) or in_key):
        return None
    if (
        in_key
        and not column.required
        and not column.is_whole
        and column.default is not None
        and (column.name not in table.key)
    ):
        return None
    return _typed(column, table, number, kind=kind, in_key=in_key)


def _typed(column: Column, table: Table, number: int, *, kind: str, in_key: bool) -> str:
    base = column.base
    if column.labels:
        return f"{literal(column.labels[0])}"
    if column.is_text:
        return literal(_text(column, table, number, kind=kind, in_key=in_key))
    if column.is_whole or base in ("numeric", "real", "double precision", "money"):
        first = 1980 if "year" in words(column.name) else 1
        return str((101 if base == "smallint" else _FIRST) + number if in_key else first + number)
    day = f"{1980 + number}-03-07" if kind == "birth" else "2026-11-30"
    if base == "uuid":
        return f"'00000000-0000-4000-8000-{_FIRST + number:012d}'"
    fixed = {
        "boolean": "false",
        "date": f"'{day}'",
        "timestamp without time zone": f"'{day} 09:00'",
        "timestamp with time zone": f"'{day} 09:00+00'",
        "time without time zone": "'09:00'",
        "time with time zone": "'09:00+00'",
        "interval": "'1 hour'",
        "json": "'{}'",
        "jsonb": "'{}'",
        "bytea": f"'\\x0{number}'",
        "inet": f"'10.0.0.{number + 1}'",
        "cidr": f"'10.0.{number}.0/24'",
        "tsvector": "''",
        "xml": "'<a/>'",
        "bit": "B'0'",
        "point": "'(0,0)'",
    }
    if base in fixed:
        return fixed[base]
    if base.endswith("[]"):
        return "'{}'"
    if base.endswith("range"):
        return "'empty'"
    raise CannotInvent(f"column {column.name} of {table.rule_name} is of type {column.type}")


def _text(column: Column, table: Table, number: int, *, kind: str, in_key: bool) -> str:
    first, last = _NAMES[number % _COUNT]
    one = head(table.name)
    text = {
        "first name": first,
        "last name": last,
        "name": f"{first} {last}" if one in CLIENTS | PEOPLE | STAFF else f"{one} {number + 1}",
        "email": f"{first}.{last}.{number}@mail.example".lower(),
        "phone": f"555 010{number}",
        "login": f"{first}{number}".lower(),
        "place": _CITIES[number % _COUNT],
        "note": f"A {one} for {first}",
    }.get(kind, f"{one} {number + 1}")
    if in_key and kind not in ("email", "login"):
        text = f"{one}-{_FIRST + number}"
    return text if column.length is None else text[-column.length :].strip("- ")
