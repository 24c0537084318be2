"""The registry's database: made, brought to our version, and read; and the one place where locks are taken.

It is a database of its own, `rt_registry`, on the server that the forks are on: it goes when they do, its
clock is theirs, whoever may make forks may make it, and all launchers find the same one, whichever database
their DSN names. Advisory locks are each database's own, and this one lets nobody in but us: no fork's role
can take one of ours (P12).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg

from redteam_forker import _pg, database, role
from redteam_forker.database import Creator
from redteam_forker.errors import ServerUnavailable
from redteam_forker.launcher import Process, is_proven_dead
from redteam_forker.names import quote_ident
from redteam_forker.sql import query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime

    from redteam_forker.servers.server import Server

__all__ = [
    "BUILDERS_LOCK",
    "DATABASE",
    "Entry",
    "builders_lock",
    "builders_lock_nowait",
    "entries_of",
    "gone_launchers",
    "prepare",
    "read",
]

DATABASE = "rt_registry"
# Each turns the registry of one version into that of the next, in one transaction, and must leave what
# launchers of the version before go on using. The first makes it from nothing.
_MIGRATIONS = ("registry_first", "registry_second")
# One build or removal of templates at a time on a server: two would race for the roles that both their seeds
# name.
BUILDERS_LOCK = 0x7274_0001
_LOCK = 0x7274_0002
_OPEN_TIMEOUT_S = 30.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A registered fork.

    Attributes:
        name: of its database and role.
        launcher: whose it is; None for a kept one.
        state: `creating`, `warm`, `leased`, `closing`, `dropping` or `kept`.
        template: the name of its template.
        label: what its launcher calls it, for example a run and a conversation.
        created_at: by the server's clock.
        age_s: the same as seconds until now.
        lease_until: when a conversation's fork is given up, unless its launcher renews; else None.
        lease_s: the same as seconds from now; negative when it is over.
        generation: how often it changed hands or state.
        liveness: of its launcher: `alive`, `silent` (its lock is free, but not for long enough), `gone`, or
        empty for a kept one.
        dying: whether its launcher is dead for certain, and the server has yet to notice.
        process: its launcher's; None for a kept one.
        creator: the session that runs CREATE DATABASE; its `pid` is 0 when that is done.
        there: whether its database exists.
        watermark: every transaction of the fork has a 64-bit id from this one on; None: not known.
        template_there: whether the template that it was cloned from exists, and not another of that name.
    """

    name: str
    launcher: int | None
    state: str
    template: str
    label: str
    created_at: datetime
    age_s: float
    lease_until: datetime | None
    lease_s: float | None
    generation: int
    liveness: str
    dying: bool
    process: Process | None
    creator: Creator
    there: bool
    watermark: int | None
    template_there: bool

    @property
    def kept(self) -> bool:
        """Whether it stays until somebody drops it by name."""
        return self.state == "kept"

    @property
    def orphaned(self) -> bool:
        """Whether nobody can be using it."""
        return self.liveness == "gone"


async def entries_of(server: Server) -> tuple[Entry, ...]:
    """All registered forks; none where there is no registry. Makes nothing and registers nobody.

    Raises:
        ServerUnavailable: the registry cannot be read, or is a newer version's.
    """
    with _pg.translated("cannot read the registry", ServerUnavailable):
        if not await _is_there(server):
            return ()
        connection = await server.connect(DATABASE)
        try:
            if await _version(connection) == 0:
                return ()
            return await read(connection)
        finally:
            await _pg.close(connection)


async def read(connection: asyncpg.Connection) -> tuple[Entry, ...]:
    """All registered forks, oldest first; in a session in the registry's database.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    launchers = {row["id"]: row for row in await connection.fetch(query("launchers"))}
    return tuple(
        _entry(row, launchers.get(row["launcher"])) for row in await connection.fetch(query("entries"))
    )


async def gone_launchers(connection: asyncpg.Connection) -> list[int]:
    """The ids of launchers that are gone, as far as conversations are concerned too.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    rows = await connection.fetch(query("launchers"))
    return [row["id"] for row in rows if _liveness(row, _process(row), leased=True) == "gone"]


def _process(launcher: Mapping[str, Any]) -> Process:
    return Process(
        host=launcher["host"], place=launcher["place"], pid=launcher["pid"], started=launcher["started"]
    )


def _entry(row: Mapping[str, Any], launcher: Mapping[str, Any] | None) -> Entry:
    process = _process(launcher) if launcher is not None else None
    leased = row["state"] in ("leased", "closing")
    return Entry(
        name=row["name"],
        launcher=row["launcher"],
        state=row["state"],
        template=row["template"],
        label=row["label"],
        created_at=row["created_at"],
        age_s=row["age_s"],
        lease_until=launcher["lease_until"] if launcher is not None and leased else None,
        lease_s=launcher["lease_s"] if launcher is not None and leased else None,
        generation=row["generation"],
        liveness=_liveness(launcher, process, leased=leased),
        dying=launcher is not None and process is not None and launcher["locked"] and is_proven_dead(process),
        process=process,
        creator=Creator(pid=row["creator_pid"], started=row["creator_started"]),
        there=row["there"],
        watermark=row["watermark"],
        template_there=row["template_there"],
    )


def _liveness(launcher: Mapping[str, Any] | None, process: Process | None, *, leased: bool) -> str:
    """A launcher is gone if its lock is free, it is silent and the lease is over; or if it is proven dead.

    A frozen process (SIGSTOP) holds its lock, and is alive. So is, for the moment, one that is dead while the
    server has its session: a machine that was copied while it ran takes its twin's processes for its own.
    """
    if launcher is None or process is None:
        return ""
    if launcher["closed"]:
        return "gone"  # it said so itself, whether or not the server has ended its session yet
    if launcher["locked"]:
        return "alive"
    if is_proven_dead(process):
        return "gone"
    return "gone" if launcher["silent"] and (launcher["lapsed"] or not leased) else "silent"


@contextlib.asynccontextmanager
async def builders_lock(server: Server) -> AsyncIterator[asyncpg.Connection]:
    """Be the only one who builds or removes templates; yields the session that holds the lock.

    It is a session's lock: free when the session is over, however that ends, but not before its statement.
    The session is in the registry's database, which is made if it is not there.

    Raises:
        ServerUnavailable: no session can be had, or the registry is another role's.
    """
    with anyio.fail_after(_OPEN_TIMEOUT_S):
        connection = await _enter(server)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", BUILDERS_LOCK)
        yield connection
    finally:
        await _pg.close(connection)


@contextlib.asynccontextmanager
async def builders_lock_nowait(server: Server) -> AsyncIterator[asyncpg.Connection | None]:
    """The same if nobody is building; None otherwise. Where there is no registry, nobody is."""
    connection = await server.connect(DATABASE if await _is_there(server) else None)
    try:
        free = await connection.fetchval("SELECT pg_try_advisory_lock($1)", BUILDERS_LOCK)
        yield connection if free else None
    finally:
        await _pg.close(connection)


async def prepare(server: Server) -> None:
    """Make the registry's database if it is not there, and bring it to our version; as often as you like."""
    with anyio.fail_after(_OPEN_TIMEOUT_S):
        connection = await _enter(server)
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                for step in _MIGRATIONS[await _version(connection) :]:
                    await connection.execute(query(step))
                await connection.execute(
                    "UPDATE forker.about SET version = $1 WHERE version <> $1", len(_MIGRATIONS)
                )
        except asyncpg.InsufficientPrivilegeError as error:
            raise await _another_roles(server) from error
        finally:
            await _pg.close(connection)


async def _version(connection: asyncpg.Connection) -> int:
    """The version of the registry, 0 if it has yet to be made."""
    if not await connection.fetchval("SELECT to_regclass('forker.about') IS NOT NULL"):
        return 0
    version: int = await connection.fetchval("SELECT version FROM forker.about")
    if version > len(_MIGRATIONS):
        raise ServerUnavailable(
            f"the registry {DATABASE!r} is of version {version}, made by a newer redteam, and this one knows "
            f"versions up to {len(_MIGRATIONS)}; upgrade redteam, or use another server"
        )
    return version


async def _is_there(server: Server) -> bool:
    async with server.maintenance() as connection:
        state = await connection.fetchrow(query("database_state"), DATABASE)
    return state is not None and state["open"] and state["connection_limit"] != database.INVALID


async def _enter(server: Server) -> asyncpg.Connection:
    while True:
        if not await _is_there(server):
            async with server.maintenance() as connection:
                with contextlib.suppress(asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
                    await _make(connection, server)
        try:
            return await server.connect(DATABASE)
        except ServerUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, asyncpg.InsufficientPrivilegeError):
                raise await _another_roles(server) from error
            # Somebody else is making it at this moment.
            if not isinstance(
                cause, asyncpg.InvalidCatalogNameError | asyncpg.ObjectNotInPrerequisiteStateError
            ):
                raise
            await anyio.sleep(_POLL_S)


async def _make(connection: asyncpg.Connection, server: Server) -> None:
    """Make the database, or finish what a killed launcher began: it is closed until PUBLIC is shut out."""
    state = await connection.fetchrow(query("database_state"), DATABASE)
    if state is not None and state["connection_limit"] == database.INVALID:
        await database.drop(connection, server, DATABASE)
        state = None
    if state is None:
        await database.clone(connection, DATABASE, "template0", file_copy=server.facts.ours)
    name = quote_ident(DATABASE)
    await role.execute_shared(
        connection,
        [f"REVOKE ALL ON DATABASE {name} FROM PUBLIC", f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"],
    )


async def _another_roles(server: Server) -> ServerUnavailable:
    async with server.maintenance() as connection:
        owner = await connection.fetchval(query("database_owner"), DATABASE)
    return ServerUnavailable(
        f"the registry {DATABASE!r} of this server is role {owner!r}'s, and so are the forks in it; "
        f"connect as {owner!r}, or as a role that {owner!r} was granted to"
    )
