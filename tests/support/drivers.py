"""Every way to a database that the SDK has, each asked which one it sees.

`python -m support.drivers DSN` is a process that adopts what it was handed, asks them all about a production
at that address, and prints the answers as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING

import sqlalchemy

from redteam_sdk import context, db
from redteam_sdk.contrib import psycopg
from redteam_sdk.contrib.sqlalchemy import create_async_engine, create_engine
from redteam_sdk.errors import ContextError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["DRIVERS", "Drivers", "answer_of"]

DRIVERS = [
    "asyncpg",
    "SQLAlchemy on asyncpg",
    "SQLAlchemy on psycopg",
    "SQLAlchemy, sync",
    "psycopg",
    "psycopg, async",
    "psycopg_pool",
    "psycopg_pool, async",
]
_WHERE = "SELECT current_database()"


class Drivers:
    """Engines and pools for one production, made before anything is armed or bound, as modules make them."""

    def __init__(self, dsn: str) -> None:
        def url(driver: str) -> sqlalchemy.URL:
            return sqlalchemy.make_url(dsn).set(drivername=f"postgresql+{driver}")

        self._dsn = dsn
        self._on_asyncpg = create_async_engine(url("asyncpg"), pool_size=1)
        self._on_psycopg = create_async_engine(url("psycopg"), pool_size=1)
        self._sync = create_engine(url("psycopg"), pool_size=1)
        self._pool = psycopg.ConnectionPool(dsn, min_size=0, max_size=1)
        self._async_pool = psycopg.AsyncConnectionPool(dsn, min_size=0, max_size=1)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The pools open, as a service has them for its life; all is closed at the end."""
        self._pool.open()
        await self._async_pool.open()
        try:
            yield
        finally:
            await asyncio.to_thread(self._pool.close)
            await self._async_pool.close()
            await self._on_asyncpg.dispose()
            await self._on_psycopg.dispose()
            self._sync.dispose()
            await db.close()

    def sync(self) -> dict[str, Callable[[], str]]:
        """Those that plain code can use."""
        return {
            "SQLAlchemy, sync": self._ask_sync,
            "psycopg": self._ask_psycopg,
            "psycopg_pool": self._ask_pool,
        }

    async def ask(self, name: str) -> str:
        """The database that one of them sees."""
        if name in self.sync():
            return await asyncio.to_thread(self.sync()[name])
        if name == "asyncpg":
            return str(await db.fetchval(_WHERE))
        if name == "psycopg, async":
            async with await psycopg.connect_async(self._dsn) as connection:
                return str((await (await connection.execute(_WHERE)).fetchone() or [None])[0])
        if name == "psycopg_pool, async":
            async with self._async_pool.connection() as connection:
                return str((await (await connection.execute(_WHERE)).fetchone() or [None])[0])
        engine = self._on_asyncpg if name == "SQLAlchemy on asyncpg" else self._on_psycopg
        async with engine.connect() as session:
            return str(await session.scalar(sqlalchemy.text(_WHERE)))

    def _ask_sync(self) -> str:
        with self._sync.connect() as session:
            return str(session.scalar(sqlalchemy.text(_WHERE)))

    def _ask_psycopg(self) -> str:
        with psycopg.connect(self._dsn) as connection:
            return str((connection.execute(_WHERE).fetchone() or [None])[0])

    def _ask_pool(self) -> str:
        with self._pool.connection() as connection:
            return str((connection.execute(_WHERE).fetchone() or [None])[0])


async def answer_of(asked: Awaitable[str]) -> str:
    """The database, or the name of the refusal. Anything else is an error."""
    try:
        return await asked
    except ContextError as error:
        return type(error).__name__


async def _main(dsn: str) -> dict[str, str]:
    drivers = Drivers(dsn)
    db.configure(dsn)
    try:
        context.adopt()
    except ContextError as error:
        refusal = type(error).__name__
    else:
        refusal = ""
    answers = {"adopt": refusal}
    async with drivers.opened():
        for name in DRIVERS:
            answers[name] = await answer_of(drivers.ask(name))
        bound = context.current_or_none()
        if bound is not None:
            await db.close_context(bound)
    return answers


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(sys.argv[1]))))  # noqa: T201 - its output
