"""The end state of a conversation, as rules may look at it: read only, with the world `before` beside it.

Rules run in one transaction that is rolled back, on an administration session, so row-level security hides
nothing from them. Each query runs under a savepoint: one that fails spoils no other.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from redteam_forker import before_schema, connect_fork_admin
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from redteam_forker import ChangeSet, Fork, Server

__all__ = ["RuleQueryFailed", "open_world"]

_RULE_TIMEOUT_S = 30


class RuleQueryFailed(Exception):
    """A rule's SQL failed on the database: the rule is at fault, not the agent. Says what Postgres said."""


# What SQL may run without naming it, or by a name that now means something else.
_CODE = frozenset(
    {
        "access method",
        "aggregate",
        "cast",
        "collation",
        "function",
        "language",
        "operator",
        "operator class",
        "operator family",
        "procedure",
        "rule",
        "setting",
        "text search configuration",
        "text search dictionary",
        "text search parser",
        "text search template",
        "transform",
        "type",
        "view",
    }
)

# The path without schemas that the conversation made: a table in one of them must not stand for another.
_PATH = """
SELECT pg_catalog.set_config('search_path', (
  SELECT coalesce(pg_catalog.string_agg(pg_catalog.format('%I', path.name), ', ' ORDER BY path.place), '')
  FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS path(name, place)
  WHERE NOT pg_catalog.format('%I', path.name) = ANY ($1::text[])
), true)
"""


class _World:
    def __init__(self, connection: asyncpg.Connection, made: str) -> None:
        self._connection = connection
        self._made = made

    async def fetch(self, sql: str, args: Sequence[object]) -> list[Mapping[str, Any]]:
        """The rows of one SELECT.

        Raises:
            RuleQueryFailed: Postgres refused it.
            EnvironmentFault: the database could not be reached.
        """
        if self._made:
            raise RuleQueryFailed(
                f"the conversation made or altered {self._made}, and a rule's SQL could run it "
                "with our rights"
            )
        try:
            async with self._connection.transaction():
                return [dict(row) for row in await self._connection.fetch(sql, *args)]
        except (
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,
            asyncpg.InternalClientError,
            OSError,
        ) as error:
            if isinstance(error, asyncpg.QueryCanceledError):
                raise RuleQueryFailed(f"the rule's SQL took longer than {_RULE_TIMEOUT_S} s") from error
            raise EnvironmentFault("the fork's database went away while its rules ran") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise RuleQueryFailed(str(error)) from error


@asynccontextmanager
async def open_world(
    server: Server, fork: Fork, changes: ChangeSet, *, before: bool
) -> AsyncIterator[_World]:
    """Open the end state of `fork`; with schema `before`, rebuilt from its change set, where it is wanted."""
    connection = await connect_fork_admin(server, fork)
    try:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        try:
            for statement in before_schema(changes) if before else ():
                await connection.execute(statement)
            fresh = [item.name for item in changes.objects if item.kind == "schema" and item.op == "create"]
            if fresh:
                await connection.fetchval(_PATH, fresh)
            await connection.execute(f"SET LOCAL statement_timeout = '{_RULE_TIMEOUT_S}s'")
            await connection.execute("SET TRANSACTION READ ONLY")
            made = [
                f"{item.kind} {item.name}"
                for item in changes.objects
                if item.kind in _CODE and item.op != "drop"
            ]
            yield _World(connection, ", ".join(made[:3]))
        finally:
            if not connection.is_closed():
                await transaction.rollback()
    finally:
        await connection.close(timeout=5)
