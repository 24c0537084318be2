"""A read-only look at one database at one instant, in which every value prints the same on both sides."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from redteam_forker.servers.server import Server

__all__ = ["snapshot"]

# What decides how a value prints (P62), what hides rows (P63), and what would cost twenty collections at once
# more than it gives one: parallel workers and compilation.
_SETTINGS = {
    "search_path": "pg_catalog",
    "row_security": "off",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "synchronize_seqscans": "off",
    "statement_timeout": "0",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}
_SET = ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items())


@contextlib.asynccontextmanager
async def snapshot(server: Server, database: str) -> AsyncIterator[asyncpg.Connection]:
    """One session in one REPEATABLE READ READ ONLY transaction, with pinned settings.

    Raises:
        asyncpg.PostgresError, OSError: as they come; `collect_changes` translates them.
    """
    connection = await server.connect(database)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(f"SELECT {_SET}")
            yield connection
    finally:
        await connection.close()
