"""Forks: a private, writable clone of a template for each conversation, with a role that reaches it alone.

    create_warm ─► check_out ─► close_fork ─► drop_fork | keep_fork     create_fork is the first two in one

With a registry each step changes the fork's row in the same transaction as the fork itself, and is refused
when the fork is not ours any more. Without one, on servers that nobody else uses, there is no row.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_forker import _pg, database, role
from redteam_forker.errors import DropFailed, ForkUnavailable, ServerUnavailable
from redteam_forker.names import fork_name, quote_ident
from redteam_forker.reach import check_reached
from redteam_forker.registry import not_ours, session_of
from redteam_forker.settling import Settled, settle
from redteam_forker.sql import query
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.registry import Registry
    from redteam_forker.servers.server import Server, ServerFacts
    from redteam_forker.template import Template

__all__ = [
    "Fork",
    "Settled",
    "Warm",
    "check_out",
    "close_fork",
    "connect_fork_admin",
    "create_fork",
    "create_warm",
    "drop_by_name",
    "drop_fork",
    "keep_fork",
    "list_forks",
]

_SETTLE_S = 2.0
_FORGET_TIMEOUT_S = 10.0


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
        created_s: how long making it took, in seconds; of a warm fork, in advance.
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
class Warm:
    """A fork that waits: whole, but its role has no login, no password, and no CONNECT.

    Attributes:
        name, watermark, created_s, reaches: as of the `Fork` that it becomes.
    """

    name: str
    watermark: int
    created_s: float
    reaches: tuple[str, ...]


async def create_warm(
    server: Server, template: Template, *, registry: Registry | None = None, label: str = ""
) -> Warm:
    """Clone a template and leave the clone closed; failed or cancelled, leave nothing.

    Raises:
        ForkUnavailable: the server did not make it, or the registry is out of reach.
        DropFailed: it did not, and something could not be removed again.
    """
    began = anyio.current_time()
    name = fork_name(server.facts.instance, template.hash)
    async with _creating(server, template, name, registry=registry, label=label) as connection:
        registered = [] if registry is None else [registry.moved(name, "warm")]
        await role.execute_shared(connection, [*_dressing(server.facts, template, name), *registered])
        row = await connection.fetchrow(query("fork_facts"), name)
        reaches = _reaches(server.facts, name, row["reaches"])
    return Warm(
        name=name,
        watermark=row["watermark"],
        created_s=anyio.current_time() - began,
        reaches=reaches,
    )


async def check_out(
    server: Server, warm: Warm, *, lifetime_s: float, registry: Registry | None = None, label: str = ""
) -> Fork:
    """Let a warm fork's role in. Once only; if it fails or is cancelled, the fork can only be dropped.

    Args:
        server: the fork's.
        warm: which.
        lifetime_s: seconds after which the role's password is not accepted any more, whatever else happens.
        registry: where the fork is registered.
        label: what to call it there.

    Raises:
        UsageError: the lifetime is not positive.
        ForkUnavailable: the fork is not ours any more, is damaged, or the server did not do it.
    """
    _check_lifetime(lifetime_s)
    name, password = warm.name, role.new_password()
    doing = f"cannot check fork {name!r} out"
    with _pg.translated(doing, ForkUnavailable):
        async with session_of(server, registry) as connection:
            registered = [] if registry is None else [registry.moved(name, "leased", label=label)]
            try:
                await role.execute_shared(connection, [*registered, *_login(name, password, lifetime_s)])
            except asyncpg.PostgresError as error:
                refused = not_ours(error, name)
                if refused is None:
                    raise
                raise refused from error
    return _fork(server.facts, warm, password)


async def create_fork(
    server: Server,
    template: Template,
    *,
    lifetime_s: float,
    registry: Registry | None = None,
    label: str = "",
) -> Fork:
    """Clone a template and give the clone a role of its own; failed or cancelled, leave nothing.

    Args:
        server: the template's.
        template: what to clone.
        lifetime_s: seconds after which the role's password is not accepted any more, whatever else happens.
        registry: where to register it; None on a server that nobody else uses.
        label: what to call it there.

    Raises:
        UsageError: the lifetime is not positive.
        ForkUnavailable: the server did not make it, or the registry is out of reach.
        DropFailed: it did not, and something could not be removed again.
    """
    _check_lifetime(lifetime_s)
    began = anyio.current_time()
    name, password = fork_name(server.facts.instance, template.hash), role.new_password()
    async with _creating(server, template, name, registry=registry, label=label) as connection:
        dressing = _dressing(server.facts, template, name)
        registered = [] if registry is None else [registry.moved(name, "leased")]
        login = _login(name, password, lifetime_s)
        await role.execute_shared(connection, [*dressing, *login, *registered])
        row = await connection.fetchrow(query("fork_facts"), name)
        reaches = _reaches(server.facts, name, row["reaches"])
    warm = Warm(
        name=name,
        watermark=row["watermark"],
        created_s=anyio.current_time() - began,
        reaches=reaches,
    )
    return _fork(server.facts, warm, password)


@contextlib.asynccontextmanager
async def _creating(
    server: Server, template: Template, name: str, *, registry: Registry | None, label: str
) -> AsyncIterator[asyncpg.Connection]:
    """A clone named `name` for the scope to finish; of a scope that fails nothing is left, its row last."""
    if registry is not None:
        await registry.ensure_held()
        await registry.room.ensure(template.size_bytes)
    with _pg.translated(f"cannot make fork {name!r} of template {template.name!r}", ForkUnavailable):
        async with session_of(server, registry) as connection, contextlib.AsyncExitStack() as undo:
            if registry is None:
                creator = await database.creator_of(connection)
            else:
                undo.push_async_callback(_forget, registry, name)
                creator = await registry.intend(connection, name, template=template.name, label=label)
            undo.push_async_callback(database.discard, server, creator, (name,), (name,))
            await database.copy(
                connection,
                name,
                template.name,
                file_copy=database.is_file_copy_better(server.facts, template.size_bytes),
                method=database.copy_method(server.facts),
            )
            yield connection
            undo.pop_all()


async def _forget(registry: Registry, name: str) -> None:
    """Delete the row of a fork that was not made; a sweep does it if we cannot."""
    registry.abandon(name)
    with (
        anyio.move_on_after(_FORGET_TIMEOUT_S, shield=True),
        contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ServerUnavailable),
    ):
        await registry.forget(name)


def _dressing(facts: ServerFacts, template: Template, name: str) -> list[str]:
    """What makes a bare clone a warm fork."""
    return [
        database.shut_to_public(name),
        *role.role_statements(name, group=template.group, version_num=facts.version_num),
        *role.adoption(facts, name),
        *(role.setting_statement(setting, name) for setting in template.settings),
        f"ALTER DATABASE {quote_ident(name)} ALLOW_CONNECTIONS true",
    ]


def _login(name: str, password: str, lifetime_s: float) -> tuple[str, ...]:
    return role.login_statements(name, verifier=role.scram_verifier(password), lifetime_s=lifetime_s)


def _fork(facts: ServerFacts, warm: Warm, password: str) -> Fork:
    return Fork(
        name=warm.name,
        password=password,
        host=facts.host,
        port=facts.port,
        watermark=warm.watermark,
        created_s=warm.created_s,
        reaches=warm.reaches,
    )


def _check_lifetime(lifetime_s: float) -> None:
    if lifetime_s <= 0:
        raise UsageError(f"a fork's lifetime must be more than {lifetime_s} seconds")


def _reaches(facts: ServerFacts, name: str, granted: list[str]) -> tuple[str, ...]:
    """Itself, and what grants allow besides; a pg_hba.conf of ours allows nothing but itself."""
    if facts.ours:
        return (name,)
    check_reached(facts, name, granted)
    return tuple(sorted({name, *granted}))


async def connect_fork_admin(server: Server, fork: Fork) -> asyncpg.Connection:
    """Open an administration session in the fork, past its login triggers. The caller closes it.

    Raises:
        ServerUnavailable: no session can be had.
    """
    return await server.connect(fork.name)


async def close_fork(
    server: Server, fork: Fork, *, settle_s: float = _SETTLE_S, registry: Registry | None = None
) -> Settled:
    """Shut the fork's role out, wait for what it is still doing, and end its sessions. The data stays.

    Args:
        server: the fork's.
        fork: which.
        settle_s: how long open transactions and statements are waited for, in seconds.
        registry: where the fork is registered.

    Raises:
        ForkUnavailable: the sessions cannot be ended; or the fork is not ours any more, so that what happened
        in it is lost; or the server had no room for locks meanwhile, so that it says nothing of the agent.
    """
    if registry is None:
        return await _closed(server, fork, settle_s, None)
    settled = await registry.with_room(partial(_closed, server, fork, settle_s, registry))
    if strain := registry.strain_of(fork.name):
        raise ForkUnavailable(f"what happened in fork {fork.name!r} says nothing of the agent: {strain}")
    return settled


async def _closed(server: Server, fork: Fork, settle_s: float, registry: Registry | None) -> Settled:
    with _pg.translated(f"cannot close fork {fork.name!r}", ForkUnavailable):
        if registry is not None and await registry.move(fork.name, "closing") == "taken":
            raise ForkUnavailable(
                f"fork {fork.name!r} is not ours any more: the registry took this launcher for gone, "
                "and the fork was swept or dropped"
            )
        async with server.maintenance() as connection:
            settled = await settle(connection, fork.name, settle_s=settle_s)
    if not settled.at_rest:
        raise ForkUnavailable(
            f"a session of fork {fork.name!r} does not end; its rows cannot be compared now"
        )
    return settled


async def keep_fork(server: Server, fork: Fork, *, registry: Registry) -> None:
    """Let a fork of ours stay after us, until somebody drops it by its name. Its role is shut out.

    Raises:
        ForkUnavailable: it is not ours any more, or the server did not do it.
    """
    with _pg.translated(f"cannot keep fork {fork.name!r}", ForkUnavailable):
        if await registry.move(fork.name, "kept") == "taken":
            raise ForkUnavailable(f"fork {fork.name!r} cannot be kept: it is not ours any more")
        async with server.maintenance() as connection:
            await role.shut_out(connection, fork.name)


async def drop_fork(server: Server, fork: Fork, *, registry: Registry | None = None) -> bool:
    """Drop a fork's database and role, whoever is connected, and verify in the catalog that both are gone.

    Finishes what an interrupted drop began; a fork that is gone is no error. Cancellation waits for it,
    within `database.DROP_TIMEOUT_S`. A fork that cannot be dropped is left to the next sweep.

    Returns:
        Whether it was ours to drop; False when somebody kept it (`redteam forks keep`) or took it over.

    Raises:
        DropFailed: the catalog still shows it.
    """
    return await drop_by_name(server, fork.name, registry=registry)


async def drop_by_name(server: Server, name: str, *, registry: Registry | None) -> bool:
    """Drop a fork of which only the name is known; like `drop_fork`."""
    doing, done, dropped = f"cannot drop fork {name!r}", False, False
    try:
        with anyio.move_on_after(database.DROP_TIMEOUT_S, shield=True) as scope:
            attempt = partial(_dropped, server, name, registry)
            dropped = await (attempt() if registry is None else registry.with_room(attempt))
            done = True
    finally:
        if registry is not None and not done:
            registry.abandon(name)
    if scope.cancelled_caught:
        raise DropFailed(f"{doing}: not done after {database.DROP_TIMEOUT_S:.0f} s", retryable=True)
    return dropped


async def _dropped(server: Server, name: str, registry: Registry | None) -> bool:
    with _pg.translated(f"cannot drop fork {name!r}", DropFailed):
        if registry is not None and await registry.move(name, "dropping") != "dropping":
            return False
        async with session_of(server, registry) as connection:
            await database.remove(connection, server, name)
        if registry is not None:
            await registry.forget(name)
    return True


async def list_forks(server: Server) -> list[str]:
    """The names of all forks on the server, half made or half dropped ones too, registered or not.

    Raises:
        ServerUnavailable: the server cannot be asked.
    """
    pattern = f"^rt_{server.facts.instance}_[a-z2-7]{{8}}_[a-z2-7]{{16}}$"
    with _pg.translated("cannot list the forks", ServerUnavailable):
        async with server.maintenance() as connection:
            rows = await connection.fetch(query("names_like"), pattern)
    return [row["name"] for row in rows]
