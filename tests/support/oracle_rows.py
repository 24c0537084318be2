"""Reads a database whole, for the oracle: every row of every table, as COPY prints it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from support.databases import connected
from support.oracle_values import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from redteam_forker.servers import Server

__all__ = ["Cells", "Row", "Side", "Unit", "pin", "read_side"]

# Everything that changes what prints or what is seen. `collect_changes` promises these forms.
_PINNED = {
    "search_path": "pg_catalog",
    "row_security": "off",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    "lock_timeout": "0",
    "statement_timeout": "0",
}

_OURS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relpersistence <> 't'"
_UNITS = f"""
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
  format('%I.%I', n.nspname, c.relname) AS sql
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND c.relispopulated AND NOT c.relispartition AND {_OURS}
"""
_LEAVES = """
SELECT t.relid::oid AS oid, format('%I.%I', n.nspname, c.relname) AS sql
FROM pg_partition_tree($1::oid::regclass) t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
"""
_COLUMNS = """
SELECT a.attrelid AS relation, a.attnum AS number, a.attname AS name, quote_ident(a.attname) AS sql,
  a.atttypid AS type,
  format_type(a.atttypid, a.atttypmod) AS shown, a.attnotnull AS not_null,
  CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END AS missing
FROM pg_attribute a WHERE a.attrelid = ANY($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_UNIQUES = """
SELECT i.indrelid AS relation, (i.indkey::int2[])[0:i.indnkeyatts - 1] AS numbers, i.indisprimary AS primary
FROM pg_index i
WHERE i.indrelid = ANY($1::oid[])
  AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indisprimary DESC, i.indnkeyatts, i.indexrelid
"""
_SEQUENCES = """
SELECT format('%I.%I', n.nspname, c.relname) AS sql, n.nspname AS schema, c.relname AS name,
  s.seqstart AS start
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relpersistence <> 't'
"""
Cells = tuple[str | None, ...]


class Row(NamedTuple):
    """One row, and the 32-bit id of the transaction that wrote it."""

    cells: Cells
    xmin: int


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One table, with all that is stored below a partitioned one."""

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    uniques: tuple[tuple[int, ...], ...]
    primary: tuple[int, ...] | None
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One database, read whole."""

    units: Mapping[int, Unit]
    sequences: Mapping[tuple[str, str], str | None]
    large_objects: Mapping[int, bytes]

    def rows(self) -> int:
        """How many rows it has in all."""
        return sum(len(unit.rows) for unit in self.units.values())


async def read_side(server: Server, database: str) -> Side:
    """Every row of every table, every sequence, every large object."""
    async with connected(server, database) as session:
        await pin(session)
        found = await session.fetch(_UNITS)
        leaves = {
            unit["oid"]: [tuple(row) for row in await session.fetch(_LEAVES, unit["oid"])]
            if unit["kind"] == "p"
            else [(unit["oid"], unit["sql"])]
            for unit in found
        }
        every = [unit["oid"] for unit in found] + [oid for many in leaves.values() for oid, _ in many]
        columns: dict[int, list[Column]] = defaultdict(list)
        for row in await session.fetch(_COLUMNS, every):
            columns[row["relation"]].append(Column(*list(row)[1:]))
        uniques = await session.fetch(_UNIQUES, [unit["oid"] for unit in found])
        units = {}
        for unit in found:
            oid = unit["oid"]
            # A partitioned table has no rows that are older than a column; its leaves know what theirs hold.
            given = {
                column.name: column.missing
                for leaf, _ in leaves[oid]
                for column in columns[leaf]
                if column.missing is not None
            }
            own = tuple(column._replace(missing=given.get(column.name)) for column in columns[oid])
            not_null = {column.number for column in own if column.not_null}
            keys = [row for row in uniques if row["relation"] == oid and not_null.issuperset(row["numbers"])]
            rows: list[Row] = []
            for _, source in leaves[oid]:
                rows += await _read(session, source, [column.sql for column in own])
            units[oid] = Unit(
                oid=oid,
                schema=unit["schema"],
                name=unit["name"],
                columns=own,
                uniques=tuple(tuple(row["numbers"]) for row in keys),
                primary=next((tuple(row["numbers"]) for row in keys if row["primary"]), None),
                rows=tuple(rows),
            )
        objects = await session.fetch("SELECT oid, lo_get(oid) FROM pg_largeobject_metadata")
        return Side(
            units=units,
            sequences=await _sequences(session),
            large_objects={row[0]: row[1] for row in objects},
        )


async def pin(session: asyncpg.Connection) -> None:
    """Settings under which values print as a change set has them, and nothing is hidden."""
    for name, value in _PINNED.items():
        await session.execute(f"SET {name} = '{value}'")


async def _read(session: asyncpg.Connection, source: str, columns: Sequence[str]) -> list[Row]:
    chunks: list[bytes] = []

    async def keep(chunk: bytes) -> None:
        chunks.append(chunk)

    query = f"SELECT {', '.join(['xmin', *columns])} FROM ONLY {source}"
    await session.copy_from_query(query, output=keep)
    rows = []
    for line in b"".join(chunks).decode().split("\n")[:-1]:
        xmin, *cells = (_unescaped(text) for text in line.split("\t"))
        assert xmin is not None
        rows.append(Row(tuple(cells), int(xmin)))
    return rows


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(text: str) -> str | None:
    if text == "\\N":
        return None
    head, *rest = text.split("\\")
    out, taken = [head], False
    for piece in rest:
        if taken:  # the second backslash of a pair
            out.append(piece)
            taken = False
        elif piece == "":
            out.append("\\")
            taken = True
        else:
            out.append(_ESCAPES.get(piece[0], piece[0]) + piece[1:])
    return "".join(out)


async def _sequences(session: asyncpg.Connection) -> dict[tuple[str, str], str | None]:
    values: dict[tuple[str, str], str | None] = {}
    for row in await session.fetch(_SEQUENCES):
        last, called = await session.fetchrow(f"SELECT last_value, is_called FROM {row['sql']}")
        fresh = None if last == row["start"] else f"next {last}"
        values[row["schema"], row["name"]] = str(last) if called else fresh
    return values
