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
    from collections.abc import Callable
    from datetime import datetime

    from redteam_forker.servers.server import Server, ServerFacts

__all__ = [
    "DROP_TIMEOUT_S",
    "INVALID",
    "STEPS",
    "Creator",
    "clone",
    "copy",
    "copy_method",
    "creator_of",
    "creators_for",
    "discard",
    "drop",
    "drop_role",
    "end_session",
    "is_file_copy_better",
    "remove",
    "shut_to_public",
    "vacuum_catalogs",
]

DROP_TIMEOUT_S = 60.0
_CLONE_ATTEMPTS = 4
_LARGE_TEMPLATE_BYTES = 64 << 20
_WAL_LOG_IS_SAFE = 150003
_COPY_METHODS_SINCE = 180000
# Measured on two cores: half of a copy is waiting, so four beat two. Clones of one template wait for each
# other, since all change how often the same blocks are shared: more than two only get in each other's way.
_COPIERS, _CLONERS = 4, 2
INVALID = -2  # datconnlimit of a database whose DROP was interrupted
# The names of forks' roles, on whichever server.
FORKS = "^rt_[a-z2-7]{4}_[a-z2-7]{8}_[a-z2-7]{16}$"
_SLOT_ATTEMPTS = 5
_LOCK_TIMEOUT_MS = 500
_FORCE_ATTEMPTS = 60
# Every fork leaves dead rows in each of these, and where autovacuum is off, as on our own servers, nobody
# else takes them away (P78).
_CATALOGS = ("pg_auth_members", "pg_authid", "pg_database", "pg_db_role_setting", "pg_shdepend")
_MANY_DEAD_ROWS = 2000
# What `remove` does, in order. Each may be done again, so that whoever was stopped after one can be followed
# by another.
STEPS = (
    "shut out",
    "untemplated",
    "rolled back",
    "slots dropped",
    "subscriptions dropped",
    "database dropped",
    "role dropped",
    "verified",
)


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
    if facts.ours or facts.version_num < _WAL_LOG_IS_SAFE:
        return True
    return size_bytes >= _LARGE_TEMPLATE_BYTES


def copy_method(facts: ServerFacts) -> str | None:
    """How a server of ours best copies files; None is as it is set up.

    On tmpfs no block can be shared, but `clone` lets the kernel copy, without the way through the server's
    own memory: a seventh less work. On ext4 it is no less.
    """
    in_kernel = facts.ours and facts.version_num >= _COPY_METHODS_SINCE and facts.file_system == "tmpfs"
    return "clone" if in_kernel else None


def creators_for(facts: ServerFacts) -> int:
    """How many databases are best made at once on a server."""
    return _CLONERS if facts.clone else _COPIERS


async def clone(connection: asyncpg.Connection, name: str, source: str, *, file_copy: bool) -> None:
    """Make database `name` from `source`, and let nobody in until it is opened, whatever PUBLIC may do.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    await copy(connection, name, source, file_copy=file_copy)
    await role.execute_shared(connection, [shut_to_public(name)])


def shut_to_public(name: str) -> str:
    """The statement that takes from everybody what everybody may do in a new database."""
    return f"REVOKE ALL ON DATABASE {quote_ident(name)} FROM PUBLIC"


async def copy(
    connection: asyncpg.Connection, name: str, source: str, *, file_copy: bool, method: str | None = None
) -> None:
    """Make database `name` from `source`, closed. PUBLIC could enter it if it were opened as it is.

    Args:
        connection: an administration session.
        name: of the new database.
        source: of a database that nobody is in.
        file_copy: whether by copying files, or through the log.
        method: of copying files, from `copy_method`.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    if method is not None:
        await connection.execute(f"SET file_copy_method = {quote_literal(method)}")
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
    if method is not None:  # after an error nobody else gets this session
        await connection.execute("RESET file_copy_method")


def _unwatched(step: str) -> None:
    """What `remove` tells when nobody asked."""


async def remove(
    connection: asyncpg.Connection, server: Server, name: str, *, step: Callable[[str], None] = _unwatched
) -> None:
    """Drop a fork's database and role, whoever is connected, and verify in the catalog that both are gone.

    Finishes what an interrupted removal began; nothing of that name is no error.

    Args:
        connection: an administration session in another database.
        server: the fork's.
        name: of the database and of the role.
        step: called after each of `STEPS`.

    Raises:
        DropFailed: the catalog still shows it.
        asyncpg.PostgresError: as it comes.
    """
    left = {row["what"] for row in await connection.fetch(query("left_of"), name)}
    if "role" in left:
        # No new session may come in while the old ones are ended (P31).
        await role.shut_out(connection, name)
    step("shut out")
    if "database" in left:
        await drop(connection, server, name, step=step)
    step("database dropped")
    # After the database, on which the role had its rights (P39).
    await drop_role(connection, name)
    step("role dropped")
    left = {row["what"] for row in await connection.fetch(query("left_of"), name)}
    if left:
        raise DropFailed(
            f"cannot drop {name!r}: the catalog still shows its {' and its '.join(sorted(left))}"
        )
    step("verified")


async def drop(
    connection: asyncpg.Connection, server: Server, name: str, *, step: Callable[[str], None] = _unwatched
) -> None:
    """Drop a database whoever is in it, however far an earlier drop came. None of that name is no error.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    row = await connection.fetchrow(query("database_state"), name)
    if row is None:
        return
    # On a database whose drop was interrupted, ALTER would end our session (P17).
    if row["connection_limit"] != INVALID:
        if row["is_template"]:  # an owner may have made it one, and then it is not dropped (P34)
            await role.execute_shared(connection, [f"ALTER DATABASE {quote_ident(name)} IS_TEMPLATE false"])
        step("untemplated")
        if not row["open"] and (row["prepared"] or row["subscribed"]):
            await role.execute_shared(
                connection, [f"ALTER DATABASE {quote_ident(name)} ALLOW_CONNECTIONS true"]
            )
        # What FORCE does not remove (P32).
        if row["prepared"]:
            await _roll_back(server, name)
        step("rolled back")
        if row["streamed"]:
            await _drop_slots(connection, name)
        step("slots dropped")
        if row["subscribed"]:
            await _unsubscribe(server, name)
        step("subscriptions dropped")
    await _force(connection, name)


async def _force(connection: asyncpg.Connection, name: str) -> None:
    """Drop a database, also one that a fork's role, its own or another's, has locked: FORCE would wait."""
    await connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
    try:
        for attempt in range(1, _FORCE_ATTEMPTS + 1):
            try:
                await connection.execute(f"DROP DATABASE IF EXISTS {quote_ident(name)} WITH (FORCE)")
            except asyncpg.PostgresError as error:
                locked = isinstance(error, asyncpg.LockNotAvailableError)
                if attempt == _FORCE_ATTEMPTS or not (locked or role.is_collision(error)):
                    raise
                await connection.fetch(query("end_lockers"), name, FORKS)
            else:
                return
    finally:
        await connection.execute("SET lock_timeout = 0")


async def _roll_back(server: Server, name: str) -> None:
    """Prepared transactions can be ended in their own database only, and by their owner (P33)."""
    session = await server.connect(name)
    try:
        for row in await session.fetch(query("prepared_transactions")):
            if not server.facts.superuser:
                await session.execute(f"SET ROLE {quote_ident(row['owner'])}")
            await session.execute(f"ROLLBACK PREPARED {quote_literal(row['gid'])}")
    finally:
        await _pg.close(session)


async def _drop_slots(connection: asyncpg.Connection, name: str) -> None:
    """Whoever reads from a slot comes back once it is cut off, so the slot goes at once, or we try again."""
    for attempt in range(1, _SLOT_ATTEMPTS + 1):
        for slot in await connection.fetch(query("active_slots"), name):
            await connection.execute("SELECT pg_terminate_backend($1, 10000)", slot["pid"])
            try:
                await connection.execute("SELECT pg_drop_replication_slot($1)", slot["name"])
            except asyncpg.ObjectInUseError:
                if attempt == _SLOT_ATTEMPTS:
                    raise
            except asyncpg.UndefinedObjectError:
                pass  # it was a temporary one


async def _unsubscribe(server: Server, name: str) -> None:
    """Without a word to the publisher, who may be production: its slot is its own to drop."""
    session = await server.connect(name)
    try:
        for row in await session.fetch(query("subscriptions")):
            subscription = quote_ident(row["name"])
            await session.execute(f"ALTER SUBSCRIPTION {subscription} DISABLE")
            await session.execute(f"ALTER SUBSCRIPTION {subscription} SET (slot_name = NONE)")
            await session.execute(f"DROP SUBSCRIPTION {subscription}")
    finally:
        await _pg.close(session)


async def vacuum_catalogs(
    connection: asyncpg.Connection, facts: ServerFacts, *, many: int = _MANY_DEAD_ROWS
) -> bool:
    """Take away what dropped forks left in the catalogs that all databases share, when there is enough of it.

    Args:
        connection: an administration session.
        facts: the server's; only a superuser may.
        many: how many dead rows are worth it.

    Returns:
        Whether it was done.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    if not facts.superuser or await connection.fetchval(query("dead_rows")) < many:
        return False
    for catalog in _CATALOGS:
        # Truncating would take a lock that keeps everybody from logging in.
        await connection.execute(f"VACUUM (SKIP_LOCKED, TRUNCATE false) pg_catalog.{catalog}")
    return True


async def drop_role(connection: asyncpg.Connection, name: str) -> None:
    """Drop a role whose databases are gone; none of that name is no error."""
    await role.execute_shared(connection, [f"DROP ROLE IF EXISTS {quote_ident(name)}"])


async def end_session(connection: asyncpg.Connection, creator: Creator) -> None:
    """End a session that may still be running CREATE DATABASE, and wait until it is gone (P09).

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    await connection.execute(query("end_session"), creator.pid, creator.started)


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
                await end_session(connection, creator)
            for name in names:
                await drop(connection, server, name)
            for name in roles:
                await drop_role(connection, name)
        finally:
            await _pg.close(connection)
    if scope.cancelled_caught:
        raise DropFailed(f"cannot remove {listed}: not done after {DROP_TIMEOUT_S:.0f} s", retryable=True)
