"""The database of the running code: production, or the fork of the conversation that is bound.

Which one is decided at every checkout (see `redteam_sdk.context`). Pools are kept by event loop and fork. A
fork's pool is small, is closed when its conversation ends, and is not opened again for that conversation.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import asyncpg

from redteam_sdk.context import resolve
from redteam_sdk.errors import EnvironmentFault, NoContext, UsageError
from redteam_sdk.faults import record_fault

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
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

# A fork's role admits 5 sessions. Three leave room for a second event loop's first one and for a replacement
# that connects while the server still counts its predecessor.
_FORK_POOL_SIZE = 3
_FORK_WAIT_S = 30.0
_CLOSE_WAIT_S = 2.0
_CLEAN_WAIT_S = 2.0
# More than any leeway of the clocks, so that no moment lies between "ended" and "expired".
_ENDED_GRACE = timedelta(minutes=10)


class _Fork(NamedTuple):
    host: str
    port: int
    database: str
    user: str


class _Loop:
    """The pools of one event loop. `guard` is held because the loop itself holds it only weakly."""

    def __init__(self) -> None:
        self.production: asyncpg.Pool | None = None
        self.forks: dict[_Fork, asyncpg.Pool] = {}
        self.guard: AsyncGenerator[None, None] | None = None


class _Production(NamedTuple):
    dsn: str | None
    pool: asyncpg.Pool | None


_production = _Production(None, None)
_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()
# Token ids of conversations that ended, until they expire anyhow: a late task must not open their fork again.
_ended: dict[str, datetime] = {}


def configure(dsn: str | None = None, *, pool: asyncpg.Pool | None = None) -> None:
    """Say where production is, once, before its first use. Without it `DATABASE_URL` is read at that use.

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
    """One connection for one `async with` block, taken when it is entered and given back at its end."""

    __slots__ = ("_connection", "_context", "_pool", "_quiet", "_timeout")

    def __init__(self, timeout: float | None = None, *, quiet: bool = False) -> None:
        self._timeout = timeout
        self._quiet = quiet
        self._pool: asyncpg.Pool | None = None
        self._context: Context | None = None
        self._connection: asyncpg.Connection | None = None

    async def __aenter__(self) -> asyncpg.Connection:
        if self._pool is not None:
            raise UsageError("a checkout is for one `async with` block; call db.connection() for each")
        context = resolve()
        if context is None:
            self._pool = await _production_pool()
            self._connection = await self._pool.acquire(timeout=self._timeout)
            return self._connection
        self._pool = await _fork_pool(context)
        self._context = context
        try:
            self._connection = await _acquire(self._pool, context, self._timeout)
        except EnvironmentFault as error:
            if not self._quiet:
                record_fault(error)
            raise
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._pool is not None
        if self._context is None:
            await self._pool.release(self._connection)
        else:
            cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
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
    return await _production_pool() if context is None else await _fork_pool(context)


def dsn() -> str:
    """The address for another driver, here and now. It holds a secret: pass it on, never print or keep it.

    Raises:
        NoContext: the process is armed, and no conversation is bound here or it is over.
        UsageError: production was configured with a pool, which has no address.
    """
    context = resolve()
    if context is not None:
        _refuse_ended(context)
        return context.dsn()
    if _production.pool is not None:
        raise UsageError(
            "production was configured with a pool; call db.configure(dsn) where db.dsn() is used"
        )
    return _production_dsn()


async def close_context(context: Context) -> None:
    """End a conversation's use of its fork: its pools are closed in every loop, and later checkouts refused.

    Connections that are still in use after two seconds are cut. Safe to call again.
    """
    now = datetime.now(UTC)
    for token_id in [token_id for token_id, expires_at in _ended.items() if expires_at < now]:
        del _ended[token_id]
    _ended[context.token_id] = max(context.expires_at, now) + _ENDED_GRACE
    fork = _fork_of(context)
    for loop, state in list(_loops.items()):
        stale = state.forks.pop(fork, None)
        if stale is not None:
            await _close_in(loop, stale)


async def close() -> None:
    """Close the pools of the running event loop, production's and forks', except one given to `configure`."""
    state = _loops.pop(asyncio.get_running_loop(), None)
    if state is not None and state.guard is not None:
        await state.guard.aclose()


def _fork_of(context: Context) -> _Fork:
    return _Fork(context.host, context.port, context.database, context.user)


def _refuse_ended(context: Context) -> None:
    if context.token_id in _ended:
        raise NoContext(f"conversation {context.conversation!r} is over; its fork takes no more work")


def _production_dsn() -> str:
    address = _production.dsn if _production.dsn is not None else os.environ.get("DATABASE_URL")
    if not address:
        raise UsageError(
            "production's database is unknown: call db.configure(dsn or pool), or set DATABASE_URL"
        )
    return address


async def _production_pool() -> asyncpg.Pool:
    if _production.pool is not None:
        return _production.pool
    state = _loops.get(asyncio.get_running_loop())
    if state is None:
        state = await _open_loop()
    if state.production is None or state.production.is_closing():
        state.production = await asyncpg.create_pool(_production_dsn(), min_size=0)
    return state.production


async def _fork_pool(context: Context) -> asyncpg.Pool:
    _refuse_ended(context)
    state = _loops.get(asyncio.get_running_loop()) or await _open_loop()
    fork = _fork_of(context)
    found = state.forks.get(fork)
    if found is None or found.is_closing():
        # With min_size=0 no connection is made here, so nothing is waited for and no task comes between.
        found = await asyncpg.create_pool(
            host=context.host,
            port=context.port,
            database=context.database,
            user=context.user,
            password=context.password,
            min_size=0,
            max_size=_FORK_POOL_SIZE,
            target_session_attrs="any",  # else PGTARGETSESSIONATTRS, which is about production, decides
        )
        state.forks[fork] = found
    return found


async def _acquire(pool: asyncpg.Pool, context: Context, timeout: float | None) -> asyncpg.Connection:
    wait_s = _FORK_WAIT_S if timeout is None else timeout
    try:
        return await pool.acquire(timeout=wait_s)
    except TimeoutError:
        reason = f"none of its {_FORK_POOL_SIZE} connections came free in {wait_s:g} s; look for a leaked one"
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = f"{type(error).__name__}: {error}"
    _refuse_ended(context)
    # Outside of the handlers: asyncpg's frames hold the secret in their variables.
    raise EnvironmentFault(f"fork {context.database!r} gave no connection: {reason}")


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


async def _open_loop() -> _Loop:
    """Start to keep pools for the running loop, and have them closed when `asyncio.run` ends it."""
    for loop in [loop for loop in _loops if loop.is_closed()]:
        del _loops[loop]
    state = _loops[asyncio.get_running_loop()] = _Loop()
    state.guard = _guard(state)
    await anext(state.guard)
    return state


async def _guard(state: _Loop) -> AsyncGenerator[None, None]:
    # asyncio closes the asynchronous generators that a loop has begun before it closes the loop: the one
    # public place to close pools that belong to it.
    try:
        yield
    finally:
        mine = [*state.forks.values(), *([state.production] if state.production is not None else [])]
        state.forks, state.production = {}, None
        for item in mine:
            await _close_pool(item)


async def _close_in(loop: asyncio.AbstractEventLoop, pool: asyncpg.Pool) -> None:
    if loop is asyncio.get_running_loop():
        await _close_pool(pool)
    elif loop.is_running():
        closing = _close_pool(pool)
        try:
            done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closing, loop))
            await asyncio.wait_for(done, 2 * _CLOSE_WAIT_S)
        except (TimeoutError, RuntimeError):
            closing.close()  # that loop hangs or has just ended; dropping the fork ends its sessions


async def _close_pool(pool: asyncpg.Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), _CLOSE_WAIT_S)
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pool.terminate()
