"""Databases as a whole: cloned, closed to everybody until they are ready, and dropped for certain."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_forker import _pg, role
from redteam_forker.errors import DropFailed
from redteam_forker.names import quote_ident, quote_literal
from redteam_forker.sql import query

if TYPE_CHECKING:
    from datetime import datetime

    from redteam_forker.servers.server import Server, ServerFacts

__all__ = [
    "DROP_TIMEOUT_S",
    "Creator",
    "clone",
    "creator_of",
    "discard",
    "drop",
    "drop_role",
    "is_file_copy_better",
]

DROP_TIMEOUT_S = 60.0
_CLONE_ATTEMPTS = 4
_LARGE_TEMPLATE_BYTES = 64 << 20
_WAL_LOG_IS_SAFE = 150003
_INVALID = -2  # datconnlimit of a database whose DROP was interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Creator:
    """A session that creates things, so that another can make sure that it has ended.

    Attributes:
        pid: of its server process. Used again after it ended, hence
        started: when that process began.
    """

    pid: int
    started: datetime


async def creator_of(connection: asyncpg.Connection) -> Creator:
    """The identity of a session."""
    row = await connection.fetchrow(
        "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    )
    return Creator(pid=row["pid"], started=row["backend_start"])


def is_file_copy_better(facts: ServerFacts, size_bytes: int) -> bool:
    """Whether a clone by copying files beats one through the log.

    It does on a server of ours. It forces two checkpoints, which on somebody else's server stall others, so
    there it is for templates that would write much log (P16), and for the releases whose other way loses
    changes (P14).
    """
    if facts.kind == "embedded" or facts.version_num < _WAL_LOG_IS_SAFE:
        return True
    return size_bytes >= _LARGE_TEMPLATE_BYTES


async def clone(connection: asyncpg.Connection, name: str, source: str, *, file_copy: bool) -> None:
    """Make database `name` from `source`, and let nobody in until it is opened, whatever PUBLIC may do.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    strategy = "FILE_COPY" if file_copy else "WAL_LOG"
    statement = (
        f"CREATE DATABASE {quote_ident(name)} TEMPLATE {quote_ident(source)} "
        f"STRATEGY {strategy} ALLOW_CONNECTIONS false"
    )
    for attempt in range(1, _CLONE_ATTEMPTS + 1):
        try:
            await connection.execute(statement)
        except asyncpg.ObjectInUseError:
            # The server itself waited 5 s for the source to be free (P01).
            if attempt == _CLONE_ATTEMPTS:
                raise
            await anyio.sleep(random.uniform(0, 0.2))  # noqa: S311 - spreads clients, no secret
        else:
            break
    await role.execute_shared(connection, [f"REVOKE ALL ON DATABASE {quote_ident(name)} FROM PUBLIC"])


async def drop(connection: asyncpg.Connection, server: Server, name: str) -> None:
    """Drop a database whoever is in it, however far an earlier drop came. None of that name is no error.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    row = await connection.fetchrow(query("database_state"), name)
    if row is None:
        return
    # On a database whose drop was interrupted, ALTER would end our session (P17).
    if row["connection_limit"] != _INVALID:
        if row["is_template"]:
            await role.execute_shared(connection, [f"ALTER DATABASE {quote_ident(name)} IS_TEMPLATE false"])
        if row["prepared"]:
            await _roll_back(server, name)
    await connection.execute(f"DROP DATABASE IF EXISTS {quote_ident(name)} WITH (FORCE)")


async def _roll_back(server: Server, name: str) -> None:
    """Prepared transactions survive FORCE, and can be ended in their own database only (P32)."""
    session = await server.connect(name)
    try:
        for row in await session.fetch(query("prepared_transactions")):
            if not server.facts.superuser:
                await session.execute(f"SET ROLE {quote_ident(row['owner'])}")
            await session.execute(f"ROLLBACK PREPARED {quote_literal(row['gid'])}")
    finally:
        await _pg.close(session)


async def drop_role(connection: asyncpg.Connection, name: str) -> None:
    """Drop a role whose databases are gone; none of that name is no error."""
    await role.execute_shared(connection, [f"DROP ROLE IF EXISTS {quote_ident(name)}"])


async def discard(
    server: Server, creator: Creator | None, names: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    """Remove what an unfinished creation may have made; works in a cancelled scope too (P37).

    A cancelled CREATE DATABASE may still be running, and would commit after we had looked (P09), so its
    session is ended first.

    Raises:
        DropFailed: something is left.
    """
    listed = ", ".join((*names, *roles))
    with (
        anyio.move_on_after(DROP_TIMEOUT_S, shield=True) as scope,
        _pg.translated(f"cannot remove {listed}", DropFailed),
    ):
        connection = await server.connect()
        try:
            if creator is not None:
                await connection.execute(query("end_session"), creator.pid, creator.started)
            for name in names:
                await drop(connection, server, name)
            for name in roles:
                await drop_role(connection, name)
        finally:
            await _pg.close(connection)
    if scope.cancelled_caught:
        raise DropFailed(f"cannot remove {listed}: not done after {DROP_TIMEOUT_S:.0f} s", retryable=True)
