"""A few administration sessions on the maintenance database, kept open between one use and the next.

Opening one costs as much as all the small statements that make a fork, and so do the first statements in it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redteam_forker import _pg

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import asyncpg

__all__ = ["Sessions"]

_KEPT = 6


class Sessions:
    """Lends sessions. One that was in use when something went wrong is closed, never lent again (P09)."""

    def __init__(self, connect: Callable[[], Awaitable[asyncpg.Connection]]) -> None:
        self._connect = connect
        self._idle: list[asyncpg.Connection] = []
        self._closed = False

    @contextlib.asynccontextmanager
    async def borrow(self) -> AsyncIterator[asyncpg.Connection]:
        """Lend a session for one operation, which leaves no lock, setting or transaction in it."""
        connection = await self._take()
        sound = False
        try:
            yield connection
            sound = True
        finally:
            if sound and not self._closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
            else:
                await _pg.close(connection)

    async def _take(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    async def aclose(self) -> None:
        """Close what is idle now, and what is lent when it comes back."""
        self._closed = True
        while self._idle:
            await _pg.close(self._idle.pop())
