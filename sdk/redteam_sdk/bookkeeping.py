"""Asks a fork's server for its next transaction id, on a connection that no tool ever holds.

One small connection for each conversation that is recorded, on an event loop in a thread of its own: so a
plain function can be asked about as an `async def` can, also one that runs on the agent's own event loop.
Nothing of this happens in production, nor where nothing is recorded.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import asyncpg

from redteam_sdk.context import resolve
from redteam_sdk.errors import ContextError
from redteam_sdk.lifetimes import CLOSE_WAIT_S, Fork, enter, hold
from redteam_sdk.pools import fork_arguments

if TYPE_CHECKING:
    import concurrent.futures

    from redteam_sdk.claims import Context

__all__ = ["next_xid", "next_xid_async"]

_XID = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_WAIT_S = 2.0
# The waiting thread gives up a little later than the clerk, which then knows that it failed.
_PATIENCE_S = _WAIT_S + 0.5
# A fork that gave no number is not asked again for so long: tools are not to be slowed down at every call.
_REST_S = 5.0
_TROUBLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


def next_xid() -> int | None:
    """The number that the bound fork's server gives to the next transaction; None where it cannot be had.

    Waits at most 2.5 seconds, and raises nothing.
    """
    asked = _ask()
    if asked is None:
        return None
    try:
        return asked.result(_PATIENCE_S)
    except Exception:  # noqa: BLE001 - bookkeeping never fails a tool
        asked.cancel()
        return None


async def next_xid_async() -> int | None:
    """As `next_xid`, for code on an event loop, which goes on meanwhile."""
    asked = _ask()
    if asked is None:
        return None
    try:
        return await asyncio.wait_for(asyncio.wrap_future(asked), _PATIENCE_S)
    except Exception:  # noqa: BLE001 - bookkeeping never fails a tool
        return None


def _ask() -> concurrent.futures.Future[int | None] | None:
    try:
        context = resolve()
        return None if context is None else _clerk.ask(context, enter(context))
    except (ContextError, RuntimeError):
        return None  # the tool itself will meet, and report, whatever is wrong


class _Line:
    """The connection for one fork. `lock` guards it: a connection answers one question at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.connection: asyncpg.Connection | None = None
        self.rests_until = 0.0

    def cut(self) -> None:
        if self.connection is not None:
            self.connection.terminate()
            self.connection = None


class _Clerk:
    def __init__(self) -> None:
        self._starting = threading.Lock()  # so that there is one thread, whoever asks first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines: dict[Fork, _Line] = {}
        self._parents: list[object] = []
        self._watching = False
        hold(self)

    def ask(self, context: Context, fork: Fork) -> concurrent.futures.Future[int | None]:
        return asyncio.run_coroutine_threadsafe(self._answer(context, fork), self._started())

    async def close_fork(self, fork: Fork) -> None:
        """Close the connection for a fork."""
        if fork in self._lines and self._loop is not None:
            closing = asyncio.run_coroutine_threadsafe(self._hang_up(fork), self._loop)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(closing), 2 * CLOSE_WAIT_S)

    def drop_fork(self, fork: Fork) -> None:
        """Cut the connection for a fork."""
        if fork in self._lines and self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._hang_up(fork), self._loop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                if not self._watching and hasattr(os, "register_at_fork"):
                    self._watching = True
                    os.register_at_fork(after_in_child=self._forget)
                self._loop = asyncio.new_event_loop()
                name = "redteam-bookkeeping"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
            return self._loop

    async def _answer(self, context: Context, fork: Fork) -> int | None:
        line = self._lines.setdefault(fork, _Line())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_WAIT_S), line.lock:
                if loop.time() < line.rests_until:
                    return None
                try:
                    if line.connection is None or line.connection.is_closed():
                        line.connection = await asyncpg.connect(**fork_arguments(context))
                    number: int = await line.connection.fetchval(_XID)
                except BaseException:
                    line.rests_until = loop.time() + _REST_S
                    line.cut()
                    raise
                return number
        except _TROUBLE:
            return None

    async def _hang_up(self, fork: Fork) -> None:
        line = self._lines.pop(fork, None)
        if line is not None:
            async with line.lock:  # after a question that is being answered, which may just be connecting
                if line.connection is not None:
                    with suppress(*_TROUBLE):
                        await line.connection.close(timeout=CLOSE_WAIT_S)

    def _forget(self) -> None:
        """In a child process: thread and connections are the parent's, and are never touched."""
        self._parents.append((self._loop, self._lines))
        self._starting, self._loop, self._lines = threading.Lock(), None, {}


_clerk = _Clerk()
