"""The server that a command works on: a DSN, `docker:IMAGE`, or the embedded one of this user."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redteam_forker import open_server
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from redteam_forker import Server
    from redteam_harness.cli.settings import Settings

__all__ = ["chosen_server"]

_DOCKER = "docker:"


@asynccontextmanager
async def chosen_server(
    dsn: str | None, settings: Settings, *, allow_databases: Collection[str] = ()
) -> AsyncIterator[Server]:
    """Open the server of a command.

    Args:
        dsn: what `--server` says.
        settings: the launcher's.
        allow_databases: databases on it that forks' roles may be able to enter.

    Raises:
        UsageError: the DSN cannot be one, or databases are allowed on a server that is ours.
        ServerUnavailable: it cannot be started or reached.
    """
    if allow_databases and (dsn is None or dsn.startswith(_DOCKER)):
        raise UsageError("--allow-database is for a server that --server names by its DSN; leave it out")
    if dsn is None:
        opening = open_server(shared=settings.state, run_as=settings.postgres_user)
    elif dsn.startswith(_DOCKER):
        opening = open_server(docker=dsn.removeprefix(_DOCKER))
    else:
        opening = open_server(dsn, allow_databases=allow_databases)
    async with opening as server:
        yield server
