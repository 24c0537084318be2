"""Pools of asyncpg, by event loop and by what they lead to. They are closed with their loop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import asyncpg

from redteam_sdk.lifetimes import CLOSE_WAIT_S, Fork, close_with_loop, enter, hold, run_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from redteam_sdk.claims import Context

__all__ = ["FORK_POOL_SIZE", "Pools", "fork_arguments"]

# A fork's role admits 5 sessions. Three leave room for the bookkeeping's and for a second event loop's first.
FORK_POOL_SIZE = 3


def fork_arguments(context: Context) -> dict[str, Any]:
    """What asyncpg needs to connect to a fork, and nothing that the environment says of production."""
    return {
        "host": context.host,
        "port": context.port,
        "database": context.database,
        "user": context.user,
        "password": context.password,
        # Else PGTARGETSESSIONATTRS and PGSSLMODE, which are about production, decide.
        "target_session_attrs": "any",
        "ssl": False if context.host.startswith("/") else "prefer",
    }


class _Loop:
    """The pools of one event loop. `guard` is held because the loop itself holds it only weakly."""

    def __init__(self) -> None:
        self.production: tuple[str, asyncpg.Pool] | None = None
        self.older: list[asyncpg.Pool] = []
        self.forks: dict[Fork, asyncpg.Pool] = {}
        self.guard: AsyncGenerator[None, None] | None = None

    async def close(self) -> None:
        mine = [*self.forks.values(), *self.older]
        if self.production is not None:
            mine.append(self.production[1])
        self.forks, self.older, self.production = {}, [], None
        for pool in mine:
            await _close(pool)


class Pools:
    """All pools of this process that are ours."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()
        self._parents: list[object] = []
        self._watching = False
        hold(self)

    def production_nowait(self, dsn: str | None) -> asyncpg.Pool | None:
        """The running loop's pool for production at this address, or None before `production` made it."""
        state = self._loops.get(asyncio.get_running_loop())
        if state is not None and state.production is not None:
            made_for, pool = state.production
            if made_for == dsn and not pool.is_closing():
                return pool
        return None

    async def production(self, dsn: str) -> asyncpg.Pool:
        """The running loop's pool for production at this address."""
        found = self.production_nowait(dsn)
        if found is not None:
            return found
        state = self._loops.get(asyncio.get_running_loop()) or self._open_loop()
        if state.production is not None:
            # Configured anew: what is in use stays in use, and nothing new is taken from it.
            state.older.append(state.production[1])
        # With min_size=0 no connection is made here, so nothing is waited for and no task comes between.
        pool = await asyncpg.create_pool(dsn, min_size=0)
        state.production = (dsn, pool)
        return pool

    async def fork(self, context: Context) -> asyncpg.Pool:
        """The running loop's pool for a fork.

        Raises:
            NoContext: the conversation is over.
        """
        fork = enter(context)
        state = self._loops.get(asyncio.get_running_loop()) or self._open_loop()
        found = state.forks.get(fork)
        if found is None or found.is_closing():
            found = await asyncpg.create_pool(**fork_arguments(context), min_size=0, max_size=FORK_POOL_SIZE)
            state.forks[fork] = found
        return found

    async def close_fork(self, fork: Fork) -> None:
        """Close a fork's pools in every loop. What is still in use after two seconds is cut."""
        for loop, state in list(self._loops.items()):
            pool = state.forks.pop(fork, None)
            if pool is not None:
                await run_in(loop, _close(pool))

    def drop_fork(self, fork: Fork) -> None:
        """Cut a fork's connections in every loop."""
        for loop, state in list(self._loops.items()):
            pool = state.forks.pop(fork, None)
            if pool is not None:
                with suppress(RuntimeError):  # the loop has just ended, and with it the connections
                    loop.call_soon_threadsafe(pool.terminate)

    async def close_loop(self) -> None:
        """Close the pools of the running event loop."""
        state = self._loops.pop(asyncio.get_running_loop(), None)
        if state is not None and state.guard is not None:
            await state.guard.aclose()

    def _open_loop(self) -> _Loop:
        """Start to keep pools for the running loop, and have them closed when `asyncio.run` ends it."""
        if not self._watching and hasattr(os, "register_at_fork"):
            self._watching = True
            os.register_at_fork(after_in_child=self._forget)
        for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
            self._loops.pop(loop, None)
        state = self._loops[asyncio.get_running_loop()] = _Loop()
        state.guard = close_with_loop(state.close)
        return state

    def _forget(self) -> None:
        """In a child process: the connections are the parent's. They are never touched, not even closed."""
        self._parents.append(self._loops)
        self._loops = WeakKeyDictionary()


async def _close(pool: asyncpg.Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CLOSE_WAIT_S)
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pool.terminate()
