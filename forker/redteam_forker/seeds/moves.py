"""Moves the dates of a seeded world by whole weeks, so that a Thursday stays a Thursday in any year.

Every row of a table with a moved column is taken out and put back in one transaction. An UPDATE in place
would meet its own transient duplicates (weekly slots under UNIQUE (provider, starts_at)); rows that come back
to an empty table cannot, and they meet check constraints, partition bounds and generated columns with their
final values only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg

from redteam_forker.errors import SeedError
from redteam_forker.names import quote_ident
from redteam_forker.seeds.quiet import quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date

    from redteam_forker.seeds.script import Seed

__all__ = ["MoveFacts", "move_dates", "weeks_between"]

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_MOVABLE = {
    "date": "{value} OPERATOR(pg_catalog.+) {days}",
    "timestamp without time zone": "{value} OPERATOR(pg_catalog.+) pg_catalog.make_interval(days => {days})",
    # The session's zone is UTC, where each day has 24 hours: an instant stays at its UTC clock time.
    "timestamp with time zone": "{value} OPERATOR(pg_catalog.+) pg_catalog.make_interval(days => {days})",
}
_RANGES = {
    "daterange": "date",
    "tsrange": "timestamp without time zone",
    "tstzrange": "timestamp with time zone",
}
_MULTIRANGES = {"datemultirange": "daterange", "tsmultirange": "tsrange", "tstzmultirange": "tstzrange"}

_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT oid, oid AS root FROM pg_type
  UNION ALL SELECT b.oid, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.root WHERE t.typtype = 'd'
)
SELECT c.oid, n.nspname AS schema, c.relname AS table, a.attname AS name, a.attnum,
  a.attgenerated <> '' AS generated,
  format_type(b.root, NULL) AS type,
  (SELECT i.inhparent FROM pg_catalog.pg_inherits i
   WHERE i.inhrelid = c.oid AND c.relispartition) AS partition_of
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN base b ON b.oid = a.atttypid
JOIN pg_type t ON t.oid = b.root AND t.typtype <> 'd'
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY c.oid, a.attnum
"""

_FOREIGN_KEYS = """
SELECT k.conname AS name, k.conrelid AS here, unnest(k.conkey) AS here_column,
  k.confrelid AS there, unnest(k.confkey) AS there_column
FROM pg_constraint k WHERE k.contype = 'f' AND k.conparentid = 0
"""

_CHILDREN = """
WITH RECURSIVE tree AS (
  SELECT $1::oid AS oid
  UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON tree.oid = i.inhparent
)
SELECT c.oid FROM tree JOIN pg_catalog.pg_class c USING (oid)
WHERE NOT c.relispartition AND c.relkind IN ('r', 'p')
"""

_MATERIALIZED = """
SELECT format('%I.%I', n.nspname, c.relname) AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'm' AND c.relispopulated ORDER BY c.oid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFacts:
    """What moved.

    Attributes:
        weeks: by how many weeks; negative when today lies before the anchor.
        columns: `schema.table.column` of each moved column, as the seed lists them.
    """

    weeks: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    table: int
    schema: str
    table_name: str
    name: str
    number: int
    type: str
    generated: bool
    partition_of: int | None

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.table_name}.{self.name}"


def weeks_between(anchor: date, today: date) -> int:
    """From the anchor's ISO week to today's."""
    monday_then = anchor.toordinal() - anchor.weekday()
    monday_now = today.toordinal() - today.weekday()
    return (monday_now - monday_then) // 7


async def move_dates(connection: asyncpg.Connection, seed: Seed, *, today: date) -> MoveFacts:
    """Move the seed's dates so that its anchor's ISO week becomes today's ISO week.

    Triggers and rules do not fire. NULL, infinity and empty ranges stay. A timestamptz keeps its UTC clock
    time; its local clock time shifts by an hour where a daylight saving change lies between the two weeks.
    Populated materialized views are refreshed. The columns are checked also when there is nothing to move.

    Args:
        connection: an administration session on the database, outside a transaction.
        seed: names the columns and the anchor.
        today: the day to move to.

    Raises:
        SeedError: no such column (with those there are), a type that cannot move, a foreign key of which only
            one side moves, a constraint that the moved rows break, or tables that are not ours.
    """
    if not seed.moves or seed.anchor is None:
        return MoveFacts(weeks=0, columns=())
    async with connection.transaction():
        await connection.execute("SET LOCAL search_path = pg_catalog")
        await connection.execute("SET LOCAL TimeZone = 'UTC'")
        columns = [_Column(**_fields(row)) for row in await connection.fetch(_COLUMNS)]
        moved = [_find(columns, name) for name in dict.fromkeys(seed.moves)]
        _check_keys(await connection.fetch(_FOREIGN_KEYS), columns, moved)
        weeks = weeks_between(seed.anchor, today)
        if weeks:
            await _move(connection, columns, moved, weeks)
    return MoveFacts(weeks=weeks, columns=tuple(column.label for column in moved))


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "table": row["oid"],
        "schema": row["schema"],
        "table_name": row["table"],
        "name": row["name"],
        "number": row["attnum"],
        "type": row["type"],
        "generated": row["generated"],
        "partition_of": row["partition_of"],
    }


def _find(columns: list[_Column], move: str) -> _Column:
    parts = [
        quoted.replace('""', '"') if quoted else plain.strip()
        for quoted, plain in _PART.findall(move.strip())
    ]
    if len(parts) not in (2, 3):
        raise SeedError(f"seed.moves: {move!r} is not table.column or schema.table.column")
    *schema, table, name = parts
    there = [
        column
        for column in columns
        if column.table_name == table and (not schema or column.schema == schema[0])
    ]
    if not there:
        known = sorted({f"{column.schema}.{column.table_name}" for column in columns})
        raise SeedError(f"seed.moves: there is no table for {move!r}; there are {_some(known)}")
    schemas = sorted({column.schema for column in there})
    if len(schemas) > 1:
        if "public" not in schemas:
            raise SeedError(f"seed.moves: {move!r} may be in {', '.join(schemas)}; write schema.table.column")
        there = [column for column in there if column.schema == "public"]
    named = [column for column in there if column.name == name]
    if not named:
        known = [column.name for column in there]
        raise SeedError(
            f"seed.moves: table {there[0].schema}.{table} has no column {name!r}; it has {_some(known)}"
        )
    column = named[0]
    if column.generated:
        raise SeedError(f"seed.moves: {column.label} is generated from other columns; move those instead")
    if column.type not in (*_MOVABLE, *_RANGES, *_MULTIRANGES):
        raise SeedError(
            f"seed.moves: {column.label} is of type {column.type}; "
            "only date, timestamp and timestamptz move, and ranges of them"
        )
    if column.partition_of is not None:
        raise SeedError(f"seed.moves: {column.label} is in a partition; name the partitioned table instead")
    return column


def _some(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _check_keys(
    keys: Iterable[Mapping[str, int | str]], columns: list[_Column], moved: list[_Column]
) -> None:
    """Foreign keys are not checked while triggers are off, so both sides must move, or neither."""
    by_place = {(column.table, column.number): column for column in columns}
    moving = {(column.table, column.number) for column in moved}
    for key in keys:
        here = (key["here"], key["here_column"])
        there = (key["there"], key["there_column"])
        if (here in moving) != (there in moving):
            mover, other = (here, there) if here in moving else (there, here)
            raise SeedError(
                f"seed.moves: {by_place[mover].label} is bound to {by_place[other].label} by foreign key "  # type: ignore[index]
                f"{key['name']}; move both"
            )


async def _move(
    connection: asyncpg.Connection, columns: list[_Column], moved: list[_Column], weeks: int
) -> None:
    # Check constraints and generated columns may call functions that look names up.
    await connection.execute("SET LOCAL search_path TO DEFAULT")
    names: dict[int, set[str]] = defaultdict(set)
    for column in moved:
        # Inheritance children have the column too; each table's own rows move once.
        for row in await connection.fetch(_CHILDREN, column.table):
            names[row["oid"]].add(column.name)
    async with quiet(connection, list(names)):
        for table, moving in names.items():
            of_table = [column for column in columns if column.table == table]
            await _rewrite(connection, of_table, moving, weeks * 7)
    for row in await connection.fetch(_MATERIALIZED):
        await connection.execute(f"REFRESH MATERIALIZED VIEW {row['name']}")


def _shifted(type_: str, value: str, days: int) -> str:
    """An expression for `value`, which is of type `type_`, that many days later."""
    if type_ in _MULTIRANGES:
        part = _shifted(_MULTIRANGES[type_], "part", days)
        return (
            f"CASE WHEN {value} IS NOT NULL THEN coalesce((SELECT pg_catalog.range_agg({part}) "
            f"FROM pg_catalog.unnest({value}) AS part), pg_catalog.{type_}()) END"
        )
    if type_ in _RANGES:
        low, high = (
            _shifted(_RANGES[type_], f"pg_catalog.{end}({value})", days) for end in ("lower", "upper")
        )
        bounds = (
            f"CASE WHEN pg_catalog.lower_inc({value}) THEN '[' ELSE '(' END || "
            f"CASE WHEN pg_catalog.upper_inc({value}) THEN ']' ELSE ')' END"
        )
        return (
            f"CASE WHEN pg_catalog.isempty({value}) THEN {value} "
            f"WHEN {value} IS NOT NULL THEN pg_catalog.{type_}({low}, {high}, {bounds}) END"
        )
    return _MOVABLE[type_].format(value=value, days=days)


async def _rewrite(
    connection: asyncpg.Connection, columns: list[_Column], moving: set[str], days: int
) -> None:
    table = f"{quote_ident(columns[0].schema)}.{quote_ident(columns[0].table_name)}"
    kept = [column for column in columns if not column.generated]
    targets = ", ".join(quote_ident(column.name) for column in kept)
    values = ", ".join(
        _shifted(column.type, quote_ident(column.name), days)
        if column.name in moving
        else quote_ident(column.name)
        for column in kept
    )
    kind = await connection.fetchval(
        "SELECT relkind FROM pg_catalog.pg_class WHERE oid = $1", columns[0].table
    )
    only = "" if kind == b"p" else "ONLY "
    try:
        await connection.execute(
            f"CREATE TEMPORARY TABLE forker_moved ON COMMIT DROP AS SELECT {targets} FROM {only}{table}"
        )
        await connection.execute(f"DELETE FROM {only}{table}")
        await connection.execute(
            f"INSERT INTO {table} ({targets}) OVERRIDING SYSTEM VALUE "
            f"SELECT {values} FROM pg_temp.forker_moved"
        )
        await connection.execute("DROP TABLE pg_temp.forker_moved")
    except asyncpg.IntegrityConstraintViolationError as error:
        # A partition that is not there is a check violation too. DETAIL is left out: it holds the row.
        raise SeedError(
            f"seed.moves: the rows of {columns[0].schema}.{columns[0].table_name}, moved by {days // 7} "
            f"weeks, break the schema: {error.args[0]}; loosen it, or move the columns that belong together"
        ) from error
