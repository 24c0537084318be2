"""The server that a command works on: a DSN, `docker:IMAGE`, or the embedded one of this user."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redteam_forker import open_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker import Server
    from redteam_harness.cli.settings import Settings

__all__ = ["chosen_server"]

_DOCKER = "docker:"


@asynccontextmanager
async def chosen_server(dsn: str | None, settings: Settings) -> AsyncIterator[Server]:
    """Open the server of a command.

    Raises:
        UsageError: the DSN cannot be one.
        ServerUnavailable: it cannot be started or reached.
    """
    if dsn is None:
        opening = open_server(shared=settings.state, run_as=settings.postgres_user)
    elif dsn.startswith(_DOCKER):
        opening = open_server(docker=dsn.removeprefix(_DOCKER))
    else:
        opening = open_server(dsn)
    async with opening as server:
        yield server
