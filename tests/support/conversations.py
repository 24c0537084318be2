"""Conversations held in the tests' own process: bound to a fork, recorded, and counted by the server."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from redteam_sdk import db
from redteam_sdk.context import bind
from redteam_sdk.record import recording
from support.databases import connected
from support.sdk import Minter, armed, fork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

__all__ = ["MINTER", "Events", "conversation", "no_session_left", "recorded", "sessions"]

MINTER = Minter()


@asynccontextmanager
async def conversation(server: Server, name: str = "c001", sql: str = "") -> AsyncIterator[Context]:
    """A fork whose context is bound in this process for the block."""
    async with fork(server, name, sql) as context:
        with armed(MINTER, context.host), bind(MINTER.mint(context)):
            try:
                yield context
            finally:
                await db.close_context(context)


class Events(list[dict[str, Any]]):
    """A recorder."""

    def emit(self, event: dict[str, Any]) -> None:
        self.append(event)


@contextmanager
def recorded() -> Iterator[Events]:
    events = Events()
    with recording(events):
        yield events


async def sessions(server: Server, context: Context) -> int:
    """How many sessions the fork's role has, by the server's own count."""
    async with connected(server) as admin:
        count: int = await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", context.user
        )
        return count


async def no_session_left(server: Server, context: Context) -> None:
    """Wait, within a bound, until the server has seen the fork's sessions end."""
    async with connected(server) as admin:
        with anyio.fail_after(10):
            while await admin.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", context.user
            ):
                await admin.execute("SELECT pg_sleep(0.01)")
