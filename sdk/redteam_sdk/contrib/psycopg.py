"""psycopg 3 and psycopg_pool: connections and pools that decide at every checkout.

```python
from redteam_sdk.contrib.psycopg import ConnectionPool      # instead of psycopg_pool's

pool = ConnectionPool("postgresql://...", open=True)
with pool.connection() as connection: ...
```

In production they are psycopg's. With a redteam context each fork has a small pool of its own, closed at the
conversation's end.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg
import psycopg_pool
from psycopg.conninfo import conninfo_to_dict

from redteam_sdk.context import resolve
from redteam_sdk.contrib import FORK_POOL_SIZE, kept, libpq_arguments
from redteam_sdk.contrib._forks import ForkPools
from redteam_sdk.errors import ContextError, EnvironmentFault
from redteam_sdk.faults import record_fault
from redteam_sdk.lifetimes import CLOSE_WAIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import TracebackType
    from typing import Self

    from redteam_sdk.claims import Context

__all__ = ["AsyncConnectionPool", "ConnectionPool", "connect", "connect_async"]

_POOL_OPTIONS = ("connection_class", "configure", "check", "reset", "timeout", "max_waiting")

P = TypeVar("P")


def connect(conninfo: str = "", **arguments: Any) -> psycopg.Connection[Any]:
    """As `psycopg.connect` with production's address; on a fork, the fork's.

    Raises:
        NoContext: the process is armed, and no conversation is bound here or it is over.
        EnvironmentFault: the fork gave no connection.
    """
    context = resolve()
    if context is None:
        return psycopg.connect(conninfo, **arguments)
    try:
        return psycopg.connect("", **_fork_arguments(context, conninfo, arguments))
    except psycopg.Error as error:
        reason = _reason(error)
    raise _recorded(context, reason)  # outside of the handler: psycopg's frames hold the secret


async def connect_async(conninfo: str = "", **arguments: Any) -> psycopg.AsyncConnection[Any]:
    """As `psycopg.AsyncConnection.connect`; see `connect`."""
    context = resolve()
    if context is None:
        return await psycopg.AsyncConnection.connect(conninfo, **arguments)
    try:
        return await psycopg.AsyncConnection.connect("", **_fork_arguments(context, conninfo, arguments))
    except psycopg.Error as error:
        reason = _reason(error)
    raise _recorded(context, reason)


class _Routed(Generic[P]):
    """What both pools share: production's pool, the forks' pools, and which lent out what."""

    def __init__(self, production: P, forks: ForkPools[P]) -> None:
        self._production = production
        self._forks = forks
        self._lent: dict[int, tuple[object, P]] = {}

    def _here(self) -> tuple[P, Context | None]:
        context = resolve()
        return (self._production, None) if context is None else (self._forks.get(context), context)


class ConnectionPool(_Routed["psycopg_pool.ConnectionPool[Any]"]):
    """As `psycopg_pool.ConnectionPool`, of which it has what is listed here. `conninfo` is production's.

    Args:
        conninfo: production's address.
        open: whether production's pool is opened at once; never in a process that belongs to redteam.
        kwargs: connection arguments; a fork's connection gets those that do not say where to connect.
        options: the other options of psycopg_pool's pool.
    """

    def __init__(
        self,
        conninfo: str = "",
        *,
        open: bool = False,  # noqa: A002 - psycopg_pool's name
        kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        production: psycopg_pool.ConnectionPool[Any] = psycopg_pool.ConnectionPool(
            conninfo, kwargs=kwargs, open=False, **options
        )

        def make(context: Context) -> psycopg_pool.ConnectionPool[Any]:
            return psycopg_pool.ConnectionPool(
                kwargs=_fork_arguments(context, conninfo, kwargs or {}), open=True, **_fork_options(options)
            )

        super().__init__(production, ForkPools(make, _close, by_loop=False))
        if open:
            self.open()

    def open(self, wait: bool = False, timeout: float = 30.0) -> None:
        """Open production's pool; in a process that belongs to redteam nothing is opened."""
        if _is_production():
            self._production.open(wait=wait, timeout=timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Close production's pool. The forks' are closed when their conversations end."""
        self._production.close(timeout)

    def getconn(self, timeout: float | None = None) -> psycopg.Connection[Any]:
        """A connection from the pool of here and now; give it back by `putconn`.

        Raises:
            NoContext: the process is armed, and no conversation is bound here or it is over.
            EnvironmentFault: the fork gave no connection.
        """
        pool, context = self._here()
        connection: psycopg.Connection[Any]
        if context is None:
            connection = pool.getconn(timeout)
            return connection
        try:
            connection = pool.getconn(timeout)
        except psycopg.Error as error:
            reason = _reason(error)
        else:
            self._lent[id(connection)] = (connection, pool)
            return connection
        raise _recorded(context, reason)

    def putconn(self, conn: psycopg.Connection[Any]) -> None:
        """Give a connection back to the pool that it came from."""
        lent = self._lent.pop(id(conn), None)
        (self._production if lent is None else lent[1]).putconn(conn)

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection[Any]]:
        """A connection for the block, which is one transaction. Raises as `getconn` does."""
        conn = self.getconn(timeout)
        try:
            with conn:
                yield conn
        finally:
            self.putconn(conn)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncConnectionPool(_Routed["psycopg_pool.AsyncConnectionPool[Any]"]):
    """As `psycopg_pool.AsyncConnectionPool`; see `ConnectionPool`. Open it with `await pool.open()`."""

    def __init__(self, conninfo: str = "", *, kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        options.pop("open", None)
        production: psycopg_pool.AsyncConnectionPool[Any] = psycopg_pool.AsyncConnectionPool(
            conninfo, kwargs=kwargs, open=False, **options
        )

        def make(context: Context) -> psycopg_pool.AsyncConnectionPool[Any]:
            return psycopg_pool.AsyncConnectionPool(
                kwargs=_fork_arguments(context, conninfo, kwargs or {}), open=False, **_fork_options(options)
            )

        super().__init__(production, ForkPools(make, _close_async, by_loop=True))

    async def open(self, wait: bool = False, timeout: float = 30.0) -> None:
        """Open production's pool; in a process that belongs to redteam nothing is opened."""
        if _is_production():
            await self._production.open(wait=wait, timeout=timeout)

    async def close(self, timeout: float = 5.0) -> None:
        """Close production's pool. The forks' are closed when their conversations end."""
        await self._production.close(timeout)

    async def getconn(self, timeout: float | None = None) -> psycopg.AsyncConnection[Any]:
        """A connection from the pool of here and now; raises as `ConnectionPool.getconn` does."""
        pool, context = self._here()
        connection: psycopg.AsyncConnection[Any]
        if context is None:
            connection = await pool.getconn(timeout)
            return connection
        try:
            await pool.open()  # nothing, once it is open
            connection = await pool.getconn(timeout)
        except psycopg.Error as error:
            reason = _reason(error)
        else:
            self._lent[id(connection)] = (connection, pool)
            return connection
        raise _recorded(context, reason)

    async def putconn(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Give a connection back to the pool that it came from."""
        lent = self._lent.pop(id(conn), None)
        await (self._production if lent is None else lent[1]).putconn(conn)

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection for the block, which is one transaction. Raises as `getconn` does."""
        conn = await self.getconn(timeout)
        try:
            async with conn:
                yield conn
        finally:
            await self.putconn(conn)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _is_production() -> bool:
    try:
        return resolve() is None
    except ContextError:
        return False


def _fork_arguments(context: Context, conninfo: str, arguments: dict[str, Any]) -> dict[str, Any]:
    production = {**conninfo_to_dict(conninfo), **arguments}
    return {**libpq_arguments(context), **kept(production)}


def _fork_options(options: dict[str, Any]) -> dict[str, Any]:
    chosen = {name: options[name] for name in _POOL_OPTIONS if name in options}
    return {**chosen, "min_size": 0, "max_size": FORK_POOL_SIZE, "num_workers": 1, "name": "redteam-fork"}


def _reason(error: psycopg.Error) -> str:
    return f"{type(error).__name__}: {error}".strip()


def _recorded(context: Context, reason: str) -> EnvironmentFault:
    error = EnvironmentFault(f"fork {context.database!r} gave no connection: {reason}")
    record_fault(error)
    return error


async def _close(pool: psycopg_pool.ConnectionPool[Any]) -> None:
    await asyncio.to_thread(pool.close, CLOSE_WAIT_S)


async def _close_async(pool: psycopg_pool.AsyncConnectionPool[Any]) -> None:
    await pool.close(CLOSE_WAIT_S)
