"""When a fork's use ends: what was opened for it is closed, and it is not opened again.

Whoever keeps connections to forks (`db`, the bookkeeping, an engine of SQLAlchemy, a pool of psycopg) is a
holder here. A conversation ends when its context is closed. Where nobody does that, as in a service over
HTTP, what it held is dropped once its token's time is over and another fork is opened.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakSet

from redteam_sdk.errors import NoContext

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from redteam_sdk.claims import Context

__all__ = [
    "CLOSE_WAIT_S",
    "Fork",
    "Holder",
    "close_with_loop",
    "end",
    "enter",
    "fork_of",
    "hold",
    "refuse_ended",
    "run_in",
]

CLOSE_WAIT_S = 2.0
# More than any leeway of the clocks, so that no moment lies between "ended" and "expired".
_GRACE = timedelta(minutes=10)


class Fork(NamedTuple):
    """What tells one fork from every other."""

    host: str
    port: int
    database: str
    user: str


class Holder(Protocol):
    """Keeps connections to forks."""

    async def close_fork(self, fork: Fork) -> None:
        """Close what is held for a fork, in whichever loop it lives, within a few seconds."""
        ...

    def drop_fork(self, fork: Fork) -> None:
        """Let go of what is held for a fork that is long gone, without waiting. Any thread may call it."""
        ...


_holders: WeakSet[Holder] = WeakSet()
# The last moment at which a fork may be wanted.
_until: dict[Fork, datetime] = {}
# Token ids of conversations that ended, until they expire anyhow: a late task must not open their fork again.
_ended: dict[str, datetime] = {}


def hold(holder: Holder) -> None:
    """Have a holder told when a fork's use ends. It is held weakly."""
    _holders.add(holder)


def fork_of(context: Context) -> Fork:
    """The fork that a context grants."""
    return Fork(context.host, context.port, context.database, context.user)


def refuse_ended(context: Context) -> None:
    """Refuse a context whose conversation is over.

    Raises:
        NoContext: it is over.
    """
    if context.token_id in _ended:
        raise NoContext(f"conversation {context.conversation!r} is over; its fork takes no more work")


def enter(context: Context) -> Fork:
    """The fork that a context grants, before a connection to it is taken.

    Raises:
        NoContext: the conversation is over.
    """
    refuse_ended(context)
    fork = fork_of(context)
    known = _until.get(fork)
    if known is None:
        _sweep()
    if known is None or known < context.expires_at:
        _until[fork] = context.expires_at
    return fork


async def end(context: Context) -> None:
    """End a conversation's use of its fork, here and in every other loop. Safe to call again."""
    now = datetime.now(UTC)
    for token_id in [token_id for token_id, until in list(_ended.items()) if until < now]:
        _ended.pop(token_id, None)
    _ended[context.token_id] = max(context.expires_at, now) + _GRACE
    fork = fork_of(context)
    _until.pop(fork, None)
    for holder in list(_holders):
        await holder.close_fork(fork)


def _sweep() -> None:
    gone = datetime.now(UTC) - _GRACE
    for fork in [fork for fork, until in list(_until.items()) if until < gone]:
        _until.pop(fork, None)
        for holder in list(_holders):
            holder.drop_fork(fork)


async def run_in(loop: asyncio.AbstractEventLoop, closing: Coroutine[object, object, None]) -> None:
    """Run a closing coroutine in the loop that its connections belong to, and wait for it for a while."""
    if loop is asyncio.get_running_loop():
        await closing
        return
    if loop.is_running():
        with suppress(TimeoutError, RuntimeError):
            done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(closing, loop))
            await asyncio.wait_for(done, 2 * CLOSE_WAIT_S)
            return
    closing.close()  # that loop hangs or has ended; dropping the fork ends its sessions


def close_with_loop(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    """Have the running loop call `close` before `asyncio.run` closes it. Keep what is returned until then.

    asyncio closes the asynchronous generators that a loop has begun before it closes the loop: the one public
    place to close connections that belong to it. Closing the generator oneself calls `close` earlier.
    """
    guard = _guard(close)
    with suppress(StopIteration):  # it has come to its yield, without waiting for anything
        guard.__anext__().send(None)
    return guard


async def _guard(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()
