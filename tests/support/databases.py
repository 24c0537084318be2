"""Databases for tests, made on the shared server and dropped with the scope that asked for them."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from redteam_forker.servers import Server

__all__ = ["connected", "scratch_database", "until_active"]


@contextlib.asynccontextmanager
async def connected(server: Server, database: str | None = None) -> AsyncIterator[asyncpg.Connection]:
    """An administration session that is closed with its scope."""
    connection = await server.connect(database)
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def scratch_database(server: Server, sql: str = "") -> AsyncIterator[str]:
    """A new, empty database in which `sql` was run; yields its name and drops it afterwards."""
    name = f"scratch_{secrets.token_hex(8)}"
    async with connected(server) as admin:
        await admin.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
        try:
            if sql:
                async with connected(server, name) as session:
                    await session.execute(sql)
            yield name
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def until_active(session: asyncpg.Connection, query: str) -> None:
    """Wait until some other session runs a statement that is LIKE `query`."""
    statement = """
        SELECT count(*) FROM pg_stat_activity
        WHERE query LIKE $1 AND state = 'active' AND pid <> pg_backend_pid()
    """
    with anyio.fail_after(20):
        while not await session.fetchval(statement, query):  # noqa: ASYNC110 - a server sets no event
            await anyio.sleep(0.005)
