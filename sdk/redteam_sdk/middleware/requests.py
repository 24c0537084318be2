"""What both middlewares do for a request that bears a valid token, beside binding its context.

Its events are reported, requests of a conversation are counted while they are served, and one path is
answered here: with GET, what database the service's tools see; with DELETE, the end of the conversation.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

from redteam_sdk import db, record
from redteam_sdk._version import __version__
from redteam_sdk.context import bound
from redteam_sdk.errors import RedteamError
from redteam_sdk.external import external_tools
from redteam_sdk.reporting import Reporter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from redteam_sdk.claims import Context

__all__ = ["WELL_KNOWN", "Answer", "answer", "in_flight", "recorded", "reporter_for"]

WELL_KNOWN = "/.well-known/redteam"

_IDLE_S = 5.0
_SEEN = "SELECT current_database()::text AS database, current_user::text AS user"

_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A response of ours, in JSON."""

    status: int
    body: bytes


def reporter_for(context: Context) -> Reporter | None:
    """Where the events of a request go, or None where the token names no collector."""
    return Reporter(context) if context.collector is not None else None


def recorded(reporter: Reporter | None) -> AbstractContextManager[None]:
    """Send the events of the block to a reporter, with ids that no other request's calls have."""
    if reporter is None:
        return nullcontext()
    return record.recording(reporter, calls=reporter.calls, name=f"call-{reporter.request[:6]}")


async def answer(method: str, context: Context) -> Answer:
    """What `/.well-known/redteam` says to the bearer of a valid token."""
    if method == "GET":
        return await _probed(context)
    if method == "DELETE":
        running = await _closed(context)
        return _answer(200, {"running": running})
    return _answer(405, {"error": "GET or DELETE"})


async def _probed(context: Context) -> Answer:
    try:
        with bound(context):
            seen = await db.fetchrow(_SEEN)
    except (RedteamError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        _log.warning("the tools of conversation %r reach no database: %s", context.conversation, error)
        return _answer(503, {"error": type(error).__name__})
    assert seen is not None
    facts = {"database": seen["database"], "user": seen["user"], "externals": external_tools()}
    return _answer(200, {**facts, "sdk": __version__})


async def _closed(context: Context) -> int:
    """End a conversation's use of its fork; returns how many of its requests were still being served."""
    idle = asyncio.wrap_future(_flights.idle(context.token_id))
    await asyncio.wait([idle], timeout=_IDLE_S)
    running = _flights.count(context.token_id)
    await db.close_context(context)
    return running


def _answer(status: int, data: dict[str, Any]) -> Answer:
    return Answer(status, json.dumps(data).encode())


class _Flights:
    """How many requests of each conversation are being served in this process, background tasks included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both; requests of a WSGI server are threads
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, list[Future[None]]] = {}

    def begin(self, token_id: str) -> None:
        with self._lock:
            self._counts[token_id] = self._counts.get(token_id, 0) + 1

    def end(self, token_id: str) -> None:
        with self._lock:
            self._counts[token_id] -= 1
            if self._counts[token_id]:
                return
            del self._counts[token_id]
            waiting = self._waiting.pop(token_id, [])
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def count(self, token_id: str) -> int:
        with self._lock:
            return self._counts.get(token_id, 0)

    def idle(self, token_id: str) -> Future[None]:
        """Done once no request of the conversation is being served."""
        future: Future[None] = Future()
        with self._lock:
            if token_id in self._counts:
                self._waiting.setdefault(token_id, []).append(future)
                return future
        future.set_result(None)
        return future


_flights = _Flights()


@contextmanager
def in_flight(context: Context) -> Iterator[None]:
    """Count a request as being served."""
    _flights.begin(context.token_id)
    try:
        yield
    finally:
        _flights.end(context.token_id)
