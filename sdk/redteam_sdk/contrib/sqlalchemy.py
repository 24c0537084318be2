"""SQLAlchemy 2, async (asyncpg, psycopg) and sync (psycopg): engines that decide at every checkout.

```python
from redteam_sdk.contrib.sqlalchemy import create_async_engine   # instead of sqlalchemy.ext.asyncio's

engine = create_async_engine("postgresql+asyncpg://...")
sessions = async_sessionmaker(engine)
```

It is an ordinary engine for production's address. Its pool hands a request's own fork, and nothing else, to
code that runs with a redteam context: each fork has a pool of its own, closed at the conversation's end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg
import sqlalchemy
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio
from sqlalchemy.pool import AsyncAdaptedQueuePool, Pool, QueuePool
from sqlalchemy.util import greenlet_spawn

from redteam_sdk.context import resolve
from redteam_sdk.contrib import FORK_POOL_SIZE, kept, libpq_arguments
from redteam_sdk.contrib._forks import ForkPools
from redteam_sdk.errors import EnvironmentFault, UsageError
from redteam_sdk.faults import record_fault
from redteam_sdk.pools import fork_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import URL, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

    from redteam_sdk.claims import Context

    _Base = Pool
else:
    _Base = object

__all__ = ["create_async_engine", "create_engine"]

_WAIT_S = 30.0


def create_engine(url: str | URL, **options: Any) -> Engine:
    """As `sqlalchemy.create_engine`, for `postgresql+psycopg`. `url` is production's.

    Raises:
        UsageError: another driver, or a pool of your own.
    """
    return sqlalchemy.create_engine(url, **_routed(url, options, QueuePool))


def create_async_engine(url: str | URL, **options: Any) -> AsyncEngine:
    """As `sqlalchemy.ext.asyncio.create_async_engine`, for asyncpg and psycopg. `url` is production's.

    Raises:
        UsageError: another driver, or a pool of your own.
    """
    return sqlalchemy_asyncio.create_async_engine(url, **_routed(url, options, AsyncAdaptedQueuePool))


def _routed(url: str | URL, options: dict[str, Any], usual: type[Pool]) -> dict[str, Any]:
    """The engine's options, with its class of pool made to decide at every checkout."""
    address = sqlalchemy.make_url(url)
    driver = address.get_driver_name()
    if address.get_backend_name() != "postgresql" or driver not in ("asyncpg", "psycopg", "psycopg_async"):
        raise UsageError(
            f"an engine for forks uses postgresql+asyncpg or postgresql+psycopg, not {address.drivername}"
        )
    if "pool" in options or "creator" in options or "async_creator" in options:
        raise UsageError("an engine for forks makes its own pool; give poolclass and pool_size instead")
    chosen = options.get("poolclass") or usual
    shape = kept({**address.query, **options.get("connect_args", {})})
    routed = type(f"Routed{chosen.__name__}", (_Routed, chosen), {"redteam_shape": shape})
    return {**options, "poolclass": routed}


class _Routed(_Base):
    """Before a class of pool: production is the pool itself, and each fork has another behind it."""

    redteam_shape: dict[str, Any]
    _forks: ForkPools[_ForkPool | _AsyncForkPool] | None = None

    def connect(self) -> PoolProxiedConnection:
        context = resolve()
        if context is None:
            return super().connect()
        if self._forks is None:
            self._forks = ForkPools(self._make_fork_pool, _close, by_loop=self._dialect.is_async)
        try:
            return self._forks.get(context).connect()
        except (EnvironmentFault, sqlalchemy.exc.TimeoutError) as error:
            record_fault(error)
            raise

    def recreate(self) -> Pool:
        # After Engine.dispose(). What is open for forks is closed at their end, from where it always was.
        again = super().recreate()
        again._forks = self._forks  # type: ignore[attr-defined]  # noqa: SLF001 - it is of this class
        return again

    def _make_fork_pool(self, context: Context) -> _ForkPool | _AsyncForkPool:
        make = _AsyncForkPool if self._dialect.is_async else _ForkPool
        # Dialect and listeners are the engine's, as in a pool that it would make anew.
        return make(
            _creator(self._dialect, context, self.redteam_shape),
            pool_size=FORK_POOL_SIZE,
            max_overflow=0,
            timeout=_WAIT_S,
            pre_ping=self._pre_ping,
            reset_on_return=self._reset_on_return,
            dialect=self._dialect,
            _dispatch=self.dispatch,
        )


class _Ending(_Base):
    """Before a class of pool: once the fork's use has ended, what comes back is closed."""

    ended = False

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        if self.ended:
            record.close()
        else:
            super()._do_return_conn(record)


class _ForkPool(_Ending, QueuePool):
    pass


class _AsyncForkPool(_Ending, AsyncAdaptedQueuePool):
    pass


async def _close(pool: _ForkPool | _AsyncForkPool) -> None:
    pool.ended = True
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        if isinstance(pool, _AsyncForkPool):
            await greenlet_spawn(pool.dispose)
        else:
            await asyncio.to_thread(pool.dispose)


def _creator(dialect: Any, context: Context, shape: dict[str, Any]) -> Callable[[], DBAPIConnection]:
    where = fork_arguments(context) if dialect.driver == "asyncpg" else libpq_arguments(context)
    failures = (dialect.loaded_dbapi.Error, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)

    def connect() -> DBAPIConnection:
        # The dialect's own arguments, such as its adapters, from an address that says nothing.
        positional, named = dialect.create_connect_args(sqlalchemy.URL.create("postgresql"))
        try:
            connection: DBAPIConnection = dialect.connect(*positional, **{**named, **where, **shape})
        except failures as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            return connection
        # Outside of the handler: the driver's frames hold the secret in their variables.
        raise EnvironmentFault(f"fork {context.database!r} gave no connection: {reason.strip()}")

    return connect
