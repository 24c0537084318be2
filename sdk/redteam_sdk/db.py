"""The database of the running code: production, or the fork of the conversation that is bound.

Which one is decided at every checkout (see `redteam_sdk.context`). Pools are kept by event loop and fork. A
fork's pool is small, is closed when its conversation ends, and is not opened again for that conversation.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from redteam_sdk.context import resolve
from redteam_sdk.errors import EnvironmentFault, UsageError
from redteam_sdk.faults import record_fault
from redteam_sdk.lifetimes import end, refuse_ended
from redteam_sdk.pools import FORK_POOL_SIZE, Pools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from types import TracebackType

    from redteam_sdk.claims import Context

__all__ = [
    "Checkout",
    "close",
    "close_context",
    "configure",
    "connection",
    "dsn",
    "execute",
    "fetch",
    "fetchrow",
    "fetchval",
    "pool",
    "transaction",
]

_FORK_WAIT_S = 30.0
_CLEAN_WAIT_S = 2.0
_FULL_PAUSE_S = 0.1


class _Production(NamedTuple):
    dsn: str | None
    pool: asyncpg.Pool | None


_production = _Production(None, None)
_pools = Pools()


def configure(dsn: str | None = None, *, pool: asyncpg.Pool | None = None) -> None:
    """Say where production is, before its first use. Without it `DATABASE_URL` is read at that use, once.

    Said again, it holds from then on: what is in use stays in use, and nothing new is taken from there.

    Args:
        dsn: production's address; pools are made for it, one for each event loop, as they are needed.
        pool: a pool of yours instead. You close it.

    Raises:
        UsageError: both or neither are given.
    """
    global _production
    if (dsn is None) == (pool is None):
        raise UsageError("db.configure takes either a dsn or a pool")
    _production = _Production(dsn, pool)


class Checkout:
    """One connection for one `async with` block, taken when it is entered and given back at its end.

    Which database it is of is decided when it is entered. Neither method is an `async def`: what production
    awaits is its own pool's coroutine, with none of ours around it.
    """

    __slots__ = ("_connection", "_context", "_pool", "_production", "_timeout")

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout
        self._production: Any = None
        self._pool: asyncpg.Pool | None = None

    def __aenter__(self) -> Awaitable[asyncpg.Connection]:
        if self._production is not None or self._pool is not None:
            raise UsageError("a checkout is for one `async with` block; call db.connection() for each")
        context = resolve()
        if context is not None:
            return self._enter_fork(context)
        pool = _production.pool or _pools.production_nowait(_production.dsn)
        if pool is None:
            return self._enter_first()
        self._production = pool.acquire(timeout=self._timeout)
        entering: Awaitable[asyncpg.Connection] = self._production.__aenter__()
        return entering

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[None]:
        if self._production is not None:
            leaving: Awaitable[None] = self._production.__aexit__(kind, error, trace)
            return leaving
        return self._leave_fork(cancelled=kind is not None and issubclass(kind, asyncio.CancelledError))

    async def _enter_first(self) -> asyncpg.Connection:
        pool = await _pools.production(_production_dsn())
        self._production = pool.acquire(timeout=self._timeout)
        return await self._production.__aenter__()

    async def _enter_fork(self, context: Context) -> asyncpg.Connection:
        self._pool = await _pools.fork(context)
        self._context = context
        try:
            self._connection = await _acquire(self._pool, context, self._timeout)
        except EnvironmentFault as error:
            record_fault(error)
            raise
        return self._connection

    async def _leave_fork(self, *, cancelled: bool) -> None:
        assert self._pool is not None
        await _put_back(self._pool, self._connection, self._context, cancelled=cancelled)


def connection(*, timeout: float | None = None) -> Checkout:
    """A connection of its own for the block: `async with db.connection() as conn`.

    Args:
        timeout: seconds to wait for a free connection; production waits for ever unless told, a fork 30 s.

    Raises:
        NoContext: on entering: the process is armed, and no conversation is bound here or it is over.
        EnvironmentFault: on entering: the fork gave no connection.
    """
    return Checkout(timeout)


@asynccontextmanager
async def transaction(
    *, isolation: str | None = None, readonly: bool = False, deferrable: bool = False
) -> AsyncIterator[asyncpg.Connection]:
    """A connection of its own, inside a transaction that ends with the block. Raises as `connection` does."""
    async with (
        Checkout() as conn,
        conn.transaction(isolation=isolation, readonly=readonly, deferrable=deferrable),
    ):
        yield conn


async def fetch(query: str, *args: object, timeout: float | None = None) -> list[asyncpg.Record]:
    """All rows of a query, on a connection of its own. Raises as `connection` does."""
    async with Checkout() as conn:
        rows: list[asyncpg.Record] = await conn.fetch(query, *args, timeout=timeout)
        return rows


async def fetchrow(query: str, *args: object, timeout: float | None = None) -> asyncpg.Record | None:
    """The first row of a query, or None, on a connection of its own. Raises as `connection` does."""
    async with Checkout() as conn:
        return await conn.fetchrow(query, *args, timeout=timeout)


async def fetchval(query: str, *args: object, column: int = 0, timeout: float | None = None) -> Any:
    """One column of the first row of a query, or None. Raises as `connection` does."""
    async with Checkout() as conn:
        return await conn.fetchval(query, *args, column=column, timeout=timeout)


async def execute(query: str, *args: object, timeout: float | None = None) -> str:
    """Run a statement and return its status, for example `UPDATE 1`. Raises as `connection` does."""
    async with Checkout() as conn:
        status: str = await conn.execute(query, *args, timeout=timeout)
        return status


async def pool() -> asyncpg.Pool:
    """The pool that `connection` draws from here and now. Do not keep it: the next request may have another.

    Raises:
        NoContext: the process is armed, and no conversation is bound here or it is over.
    """
    context = resolve()
    return await _production_pool() if context is None else await _pools.fork(context)


def dsn() -> str:
    """The address for another driver, here and now. It holds a secret: pass it on, never print or keep it.

    Raises:
        NoContext: the process is armed, and no conversation is bound here or it is over.
        UsageError: production was configured with a pool, which has no address.
    """
    context = resolve()
    if context is not None:
        refuse_ended(context)
        return context.dsn()
    if _production.pool is not None:
        raise UsageError(
            "production was configured with a pool; call db.configure(dsn) where db.dsn() is used"
        )
    return _production_dsn()


async def close_context(context: Context) -> None:
    """End a conversation's use of its fork: what is open for it is closed everywhere, and it stays closed.

    Connections that are still in use after two seconds are cut. Safe to call again.
    """
    await end(context)


async def close() -> None:
    """Close the pools of the running event loop, production's and forks', except one given to `configure`."""
    await _pools.close_loop()


def _production_dsn() -> str:
    global _production
    if _production.dsn is None:
        address = os.environ.get("DATABASE_URL")
        if not address:
            raise UsageError(
                "production's database is unknown: call db.configure(dsn or pool), or set DATABASE_URL"
            )
        # Kept: production is one place for the whole life of the process, in every loop of it.
        _production = _Production(address, None)
    assert _production.dsn is not None
    return _production.dsn


async def _production_pool() -> asyncpg.Pool:
    if _production.pool is not None:
        return _production.pool
    return await _pools.production(_production_dsn())


async def _acquire(pool: asyncpg.Pool, context: Context, timeout: float | None) -> asyncpg.Connection:
    wait_s = _FORK_WAIT_S if timeout is None else timeout
    give_up = time.monotonic() + wait_s
    while True:
        try:
            return await pool.acquire(timeout=max(0.0, give_up - time.monotonic()))
        except TimeoutError:
            reason = (
                f"none of its {FORK_POOL_SIZE} connections came free in {wait_s:g} s; look for a leaked one"
            )
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = f"{type(error).__name__}: {error}"
            # All sessions of the role are taken, perhaps by other loops and processes: one will come free.
            if isinstance(error, asyncpg.TooManyConnectionsError) and time.monotonic() < give_up:
                reason = ""
        refuse_ended(context)
        if reason:
            # Outside of the handlers: asyncpg's frames hold the secret in their variables.
            raise EnvironmentFault(f"fork {context.database!r} gave no connection: {reason}")
        await asyncio.sleep(_FULL_PAUSE_S)


async def _put_back(
    pool: asyncpg.Pool, connection: asyncpg.Connection, context: Context, *, cancelled: bool
) -> None:
    """Give a fork's connection back. One that cannot be cleaned in time is cut, never handed on."""
    try:
        await pool.release(connection, timeout=_CLEAN_WAIT_S if cancelled else _FORK_WAIT_S)
    except TimeoutError:
        if cancelled:
            return  # the cancellation goes on; the server missed the request to stop the statement
    else:
        return
    raise EnvironmentFault(f"fork {context.database!r} did not take a connection back in {_FORK_WAIT_S:g} s")
