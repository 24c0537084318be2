"""Keeps a table's triggers, rules and foreign keys out of the way while its rows are taken out and put back.

A superuser switches all of that off at once, except what is marked to fire always. Anybody else who owns the
tables switches triggers and rules off one by one, and takes foreign keys off and puts them on again, which
checks them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import asyncpg

from redteam_forker.errors import SeedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["quiet"]

_TREE = """
WITH RECURSIVE tree AS (
  SELECT unnest($1::oid[]) AS oid
  UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON tree.oid = i.inhparent
)
"""

# Statements to begin with and statements to end with, of triggers and rules that are on and not the system's
# own.
_TRIGGERS = (
    _TREE
    + """
SELECT format('ALTER TABLE %s DISABLE TRIGGER %I', t.tgrelid::regclass, t.tgname) AS off,
  format('ALTER TABLE %s ENABLE %s TRIGGER %I', t.tgrelid::regclass,
         CASE t.tgenabled WHEN 'R' THEN 'REPLICA' WHEN 'A' THEN 'ALWAYS' ELSE '' END, t.tgname) AS on
FROM pg_catalog.pg_trigger t JOIN tree ON tree.oid = t.tgrelid
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' ORDER BY t.oid
"""
)
_RULES = (
    _TREE
    + """
SELECT format('ALTER TABLE %s DISABLE RULE %I', r.ev_class::regclass, r.rulename) AS off,
  format('ALTER TABLE %s ENABLE %s RULE %I', r.ev_class::regclass,
         CASE r.ev_enabled WHEN 'R' THEN 'REPLICA' WHEN 'A' THEN 'ALWAYS' ELSE '' END, r.rulename) AS on
FROM pg_catalog.pg_rewrite r JOIN tree ON tree.oid = r.ev_class
WHERE r.ev_enabled <> 'D' AND r.rulename <> '_RETURN' ORDER BY r.oid
"""
)
_KEYS = (
    _TREE
    + """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', k.conrelid::regclass, k.conname) AS off,
  format('ALTER TABLE %s ADD CONSTRAINT %I %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid))
  || coalesce(format('; COMMENT ON CONSTRAINT %I ON %s IS %L', k.conname, k.conrelid::regclass,
                     obj_description(k.oid, 'pg_constraint')), '') AS on
FROM pg_catalog.pg_constraint k
WHERE k.contype = 'f' AND k.conparentid = 0
  AND (k.conrelid IN (SELECT oid FROM tree) OR k.confrelid IN (SELECT oid FROM tree)) ORDER BY k.oid
"""
)
_FORCED = (
    _TREE
    + """
SELECT format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY', c.oid::regclass) AS off,
  format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', c.oid::regclass) AS on
FROM pg_catalog.pg_class c JOIN tree USING (oid) WHERE c.relforcerowsecurity ORDER BY c.oid
"""
)


@contextlib.asynccontextmanager
async def quiet(connection: asyncpg.Connection, tables: Sequence[int]) -> AsyncIterator[None]:
    """Within a transaction: nothing fires, cascades or is hidden on these tables and what inherits from them.

    An error inside leaves the transaction to be rolled back, which puts everything on again.

    Args:
        connection: as a superuser, or as (a member of) the tables' owner.
        tables: their oids.

    Raises:
        SeedError: neither may this role switch triggers off, nor does it own the tables.
    """
    queries = [_TRIGGERS, _RULES]
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
    except asyncpg.InsufficientPrivilegeError:
        queries += [_FORCED, _KEYS]
    on: list[str] = []
    for query in queries:
        for row in await connection.fetch(query, list(tables)):
            await _execute(connection, row["off"])
            on.append(row["on"])
    await connection.execute("SET LOCAL row_security = off")
    yield
    # Deferred checks that are still to come would forbid the statements below.
    await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for statement in reversed(on):
        await _execute(connection, statement)


async def _execute(connection: asyncpg.Connection, statement: str) -> None:
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError as error:
        raise SeedError(
            f"seed.moves needs a superuser or the owner of what moves ({error.args[0]}); load with such "
            "a role, set seed.owners to strip, or GRANT SET ON PARAMETER session_replication_role to it"
        ) from error
