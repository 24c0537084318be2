"""Forks: a private, writable clone of a template for each conversation, with a role that reaches it alone."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from redteam_forker import _pg, database, role
from redteam_forker.errors import DropFailed, ForkUnavailable, ServerUnavailable
from redteam_forker.names import fork_name, quote_ident
from redteam_forker.sql import query
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    import asyncpg

    from redteam_forker.servers.server import Server, ServerFacts
    from redteam_forker.template import Template

__all__ = ["Fork", "Settled", "close_fork", "connect_fork_admin", "create_fork", "drop_fork", "list_forks"]

_SETTLE_S = 2.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A database, the one role that may enter it, and what was measured when it was made.

    Attributes:
        name: of the database and of the role.
        password: the role's. In no repr, no log and no report.
        host: where the server listens: a socket's directory, or a host name or address.
        port: the server's.
        watermark: every transaction of the fork has a 64-bit id from this one on; what it copied has lower
        ones.
        created_s: how long making it took, in seconds.
        reaches: the databases that its role may connect to, as measured; this one and no other on an embedded
        server.
    """

    name: str
    password: str = field(repr=False)
    host: str
    port: int
    watermark: int
    created_s: float
    reaches: tuple[str, ...]

    @property
    def database(self) -> str:
        """The database's name."""
        return self.name

    @property
    def user(self) -> str:
        """The role's name."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a fork came to rest.

    Attributes:
        waited_s: how long its open transactions were waited for, in seconds.
        late: how many sessions were still busy then, and were ended in the middle.
    """

    waited_s: float
    late: int


async def create_fork(server: Server, template: Template, *, lifetime_s: float) -> Fork:
    """Clone a template and give the clone a role of its own; failed or cancelled, leave nothing.

    Args:
        server: the template's.
        template: what to clone.
        lifetime_s: seconds after which the role's password is not accepted any more, whatever else happens.

    Raises:
        UsageError: the lifetime is not positive.
        ForkUnavailable: the server did not make it.
        DropFailed: it did not, and something could not be removed again.
    """
    if lifetime_s <= 0:
        raise UsageError(f"a fork's lifetime must be more than {lifetime_s} seconds")
    began = anyio.current_time()
    name = fork_name(server.facts.instance, template.hash)
    password = role.new_password()
    with _pg.translated(f"cannot make fork {name!r} of template {template.name!r}", ForkUnavailable):
        async with server.maintenance() as connection, contextlib.AsyncExitStack() as undo:
            creator = await database.creator_of(connection)
            undo.push_async_callback(database.discard, server, creator, (name,), (name,))
            row = await _create(connection, server.facts, template, _Login(name, password, lifetime_s))
            undo.pop_all()
    return Fork(
        name=name,
        password=password,
        host=server.facts.host,
        port=server.facts.port,
        watermark=row["watermark"],
        created_s=anyio.current_time() - began,
        reaches=_reaches(server.facts, name, row["reaches"]),
    )


@dataclass(frozen=True, slots=True)
class _Login:
    name: str
    password: str = field(repr=False)
    lifetime_s: float


async def _create(
    connection: asyncpg.Connection, facts: ServerFacts, template: Template, login: _Login
) -> asyncpg.Record:
    name = login.name
    file_copy = database.is_file_copy_better(facts, template.size_bytes)
    await database.clone(connection, name, template.name, file_copy=file_copy)
    valid_until = await connection.fetchval(query("lifetime"), login.lifetime_s)
    statements = [
        *role.login_statements(
            name,
            verifier=role.scram_verifier(login.password),
            group=template.group,
            valid_until=valid_until,
        ),
        *role.adoption(facts, name),
        *(role.setting_statement(setting, name) for setting in template.settings),
        # Last: nobody gets in before all else is in place.
        f"ALTER DATABASE {quote_ident(name)} ALLOW_CONNECTIONS true",
    ]
    await role.execute_shared(connection, statements)
    return await connection.fetchrow(query("fork_facts"), name)


def _reaches(facts: ServerFacts, name: str, granted: list[str]) -> tuple[str, ...]:
    """What the grants allow and, where pg_hba.conf is ours, that allows too: a role's namesake only."""
    return tuple(database for database in granted if facts.kind != "embedded" or database == name)


async def connect_fork_admin(server: Server, fork: Fork) -> asyncpg.Connection:
    """Open an administration session in the fork, past its login triggers. The caller closes it.

    Raises:
        ServerUnavailable: no session can be had.
    """
    return await server.connect(fork.name)


async def close_fork(server: Server, fork: Fork, *, settle_s: float = _SETTLE_S) -> Settled:
    """Shut the fork's role out, wait for what it is still doing, and end its sessions. The data stays.

    Args:
        server: the fork's.
        fork: which.
        settle_s: how long open transactions and statements are waited for, in seconds.

    Raises:
        ForkUnavailable: the sessions cannot be ended.
    """
    with _pg.translated(f"cannot close fork {fork.name!r}", ForkUnavailable):
        async with server.maintenance() as connection:
            await role.execute_shared(connection, [f"ALTER ROLE {quote_ident(fork.name)} NOLOGIN"])
            began = anyio.current_time()
            late = await connection.fetchval(query("busy_sessions"), fork.name)
            while late and anyio.current_time() < began + settle_s:
                await anyio.sleep(_POLL_S)
                late = await connection.fetchval(query("busy_sessions"), fork.name)
            waited_s = anyio.current_time() - began
            # Twice: a session that was being let in while the role was shut out shows up late.
            ended = await connection.fetch(query("end_sessions"), fork.name)
            ended += await connection.fetch(query("end_sessions"), fork.name)
    if not all(row["gone"] for row in ended):
        raise ForkUnavailable(
            f"a session of fork {fork.name!r} does not end; its rows cannot be compared now"
        )
    return Settled(waited_s=waited_s, late=late)


async def drop_fork(server: Server, fork: Fork) -> None:
    """Drop a fork's database and role, whoever is connected, and verify in the catalog that both are gone.

    Finishes what an interrupted drop began; a fork that is gone is no error. Cancellation waits for it,
    within `database.DROP_TIMEOUT_S`.

    Raises:
        DropFailed: the catalog still shows it.
    """
    doing = f"cannot drop fork {fork.name!r}"
    with (
        anyio.move_on_after(database.DROP_TIMEOUT_S, shield=True) as scope,
        _pg.translated(doing, DropFailed),
    ):
        async with server.maintenance() as connection:
            left = {row["what"] for row in await connection.fetch(query("left_of"), fork.name)}
            if "role" in left:
                # No new session may come in while the old ones are ended (P31).
                await role.execute_shared(connection, [f"ALTER ROLE {quote_ident(fork.name)} NOLOGIN"])
            if "database" in left:
                await database.drop(connection, server, fork.name)
            # After the database, on which the role had its rights (P39).
            await database.drop_role(connection, fork.name)
            left = {row["what"] for row in await connection.fetch(query("left_of"), fork.name)}
    if scope.cancelled_caught:
        raise DropFailed(f"{doing}: not done after {database.DROP_TIMEOUT_S:.0f} s", retryable=True)
    if left:
        raise DropFailed(f"{doing}: the catalog still shows its {' and its '.join(sorted(left))}")


async def list_forks(server: Server) -> list[str]:
    """The names of all forks on the server, half made or half dropped ones and templates in building too.

    Raises:
        ServerUnavailable: the server cannot be asked.
    """
    pattern = f"^rt_{server.facts.instance}_[a-z2-7]{{8}}_[a-z2-7]{{16}}$"
    with _pg.translated("cannot list the forks", ServerUnavailable):
        async with server.maintenance() as connection:
            rows = await connection.fetch(query("names_like"), pattern)
    return [row["name"] for row in rows]
