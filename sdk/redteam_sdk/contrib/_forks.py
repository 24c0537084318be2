"""One pool for each fork, whatever makes it: made when it is wanted, closed when the fork's use ends."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from redteam_sdk.lifetimes import Fork, close_with_loop, enter, hold, run_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from redteam_sdk.claims import Context

__all__ = ["ForkPools"]

P = TypeVar("P")


class _Place(NamedTuple):
    """A pool serves one fork, in one process, in one event loop if it is bound to one."""

    fork: Fork
    pid: int
    loop: asyncio.AbstractEventLoop | None


class ForkPools(Generic[P]):
    """The pools of one engine or pool object.

    Args:
        make: makes the pool for a context's fork; it must not wait for anything.
        close: closes one within a few seconds, in its own event loop if there is one.
        by_loop: whether a pool belongs to the event loop in which it was made.
    """

    def __init__(
        self,
        make: Callable[[Context], P],
        close: Callable[[P], Awaitable[None]],
        *,
        by_loop: bool,
    ) -> None:
        self._make = make
        self._close = close
        self._by_loop = by_loop
        self._pools: dict[_Place, tuple[P, AsyncGenerator[None, None] | None]] = {}
        self._making = threading.Lock()  # so that two threads do not make two pools for one fork
        hold(self)

    def get(self, context: Context) -> P:
        """The pool for a context's fork.

        Raises:
            NoContext: the conversation is over.
        """
        fork = enter(context)
        place = _Place(fork, os.getpid(), asyncio.get_running_loop() if self._by_loop else None)
        with self._making:
            found = self._pools.get(place)
            if found is None:
                pool = self._make(context)
                guard = close_with_loop(lambda: self._close_one(place)) if self._by_loop else None
                found = self._pools[place] = (pool, guard)
        return found[0]

    async def close_fork(self, fork: Fork) -> None:
        """Close the pools of a fork, each in its loop."""
        for place in self._places(fork):
            if place.loop is None:
                await self._close_one(place)
            else:
                await run_in(place.loop, self._close_one(place))

    def drop_fork(self, fork: Fork) -> None:
        """Let go of the pools of a fork that is gone."""
        for place in self._places(fork):
            if place.loop is None:
                threading.Thread(target=asyncio.run, args=(self._close_one(place),), daemon=True).start()
            elif place.loop.is_running():
                asyncio.run_coroutine_threadsafe(self._close_one(place), place.loop)
            else:
                self._pools.pop(place, None)

    def _places(self, fork: Fork) -> list[_Place]:
        # A parent process's pools stay in the dictionary of its child, and are never touched there.
        return [place for place in list(self._pools) if place.fork == fork and place.pid == os.getpid()]

    async def _close_one(self, place: _Place) -> None:
        found = self._pools.pop(place, None)
        if found is not None:
            await self._close(found[0])
