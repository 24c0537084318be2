"""Writes to every table of somebody else's schema: a few of its rows, whatever its types and constraints are.

Each is tried in a savepoint of its own, since most schemas refuse some of it.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from support.databases import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_forker.servers import Server

__all__ = ["scribble"]

_TABLES = """
SELECT c.oid::regclass::text AS name, array_agg(quote_ident(a.attname) ORDER BY a.attnum) AS columns,
  array_agg(t.typcategory::text ORDER BY a.attnum) AS categories,
  array_agg(t.oid::regtype::text ORDER BY a.attnum) AS types
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND a.attnum > 0
  AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity <> 'a'
GROUP BY c.oid ORDER BY 1
"""

# By the type's category: another value than the one that is there, or one that only prints otherwise.
_OTHERS = {
    "N": ("{c} + 1", "{c} * 1.0", "-{c}"),
    "S": ("{c} || 'x'", "''", "upper({c})"),
    "B": ("NOT {c}",),
    "D": ("{c} + interval '1 day'", "'infinity'"),
    "T": ("{c} * 2",),
    "A": ("{c} || {c}", "'{{}}'"),
    "U": ("{c}", "gen_random_uuid()::text::{t}"),
    "E": ("enum_last({c})", "enum_first({c})"),
    "R": ("'empty'", "{c}"),
    "V": ("~{c}",),
}
_ALWAYS = ("NULL", "DEFAULT", "{c}")


class _Table(NamedTuple):
    name: str
    columns: list[str]
    categories: list[str]
    types: list[str]


async def scribble(server: Server, database: str, seed: int) -> tuple[set[str], set[str]]:
    """Write to every table; the tables that took something, and those that took nothing."""
    rng = random.Random(seed)
    took: set[str] = set()
    refused: set[str] = set()
    async with connected(server, database) as session:
        await session.execute("SET lock_timeout = '1s'")
        for row in await session.fetch(_TABLES):
            table = _Table(*row.values())
            done = [await _tried(session, statement) for statement in _statements(table, rng)]
            (took if any(done) else refused).add(table.name)
    return took, refused


async def _tried(session: asyncpg.Connection, statement: str) -> bool:
    """Whether a statement wrote a row; what it refused leaves nothing but dead rows."""
    async with session.transaction():
        with contextlib.suppress(asyncpg.PostgresError):
            async with session.transaction():
                status: str = await session.execute(statement)
                # A deferred constraint would refuse it all at the end.
                await session.execute("SET CONSTRAINTS ALL IMMEDIATE")
                return not status.endswith(" 0")
    return False


def _statements(table: _Table, rng: random.Random) -> Iterator[str]:
    name, columns = table.name, table.columns
    for _ in range(6):
        at = rng.randrange(len(columns))
        forms = _OTHERS.get(table.categories[at], ()) + _ALWAYS
        value = rng.choice(forms).format(c=columns[at], t=table.types[at])
        yield f"UPDATE {name} SET {columns[at]} = {value} WHERE {_some(name, rng)}"
    listed = ", ".join(columns)
    yield f"UPDATE {name} SET {columns[0]} = {columns[0]} WHERE {_some(name, rng)}"
    yield f"DELETE FROM {name} WHERE {_some(name, rng)}"
    yield f"INSERT INTO {name} DEFAULT VALUES"
    yield f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {name} WHERE {_some(name, rng)}"
    for at, category in enumerate(table.categories):
        if category in "NS":  # a copy of a row under another key
            other = {"N": f"{columns[at]} + 100000", "S": f"{columns[at]} || 'copy'"}[category]
            values = ", ".join(other if place == at else column for place, column in enumerate(columns))
            yield f"INSERT INTO {name} ({listed}) SELECT {values} FROM {name} WHERE {_some(name, rng)}"
            break


def _some(name: str, rng: random.Random) -> str:
    """A few rows by their place, so that nothing is asked of the types."""
    return (
        f"(tableoid, ctid) IN (SELECT tableoid, ctid FROM {name} ORDER BY 1, 2 "
        f"OFFSET {rng.randrange(40)} LIMIT {rng.randrange(1, 4)})"
    )
