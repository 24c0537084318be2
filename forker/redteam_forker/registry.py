"""The registry: a launcher's hold on its forks, which is lost when the launcher is.

    creating ─► warm ─► leased ─► closing ─► dropping       kept: nobody's; stays until dropped by its name

A row is written before CREATE DATABASE and deleted after the catalog shows nothing any more. So at whatever
point a launcher is killed, what it left has a row (see `sweep`). Databases and roles are the server's, so the
statements that change a fork run in the registry's database, in one transaction with its row.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

import asyncpg

from redteam_forker import _pg, database, ledger, role
from redteam_forker._tasks import beside
from redteam_forker.database import Creator
from redteam_forker.errors import ForkUnavailable, ServerUnavailable
from redteam_forker.guard import Guard, is_out_of_locks
from redteam_forker.launcher import Launcher, Pace
from redteam_forker.ledger import DATABASE, Entry
from redteam_forker.names import quote_literal
from redteam_forker.room import Room
from redteam_forker.servers.sessions import Sessions
from redteam_forker.sql import query
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from redteam_forker.servers.server import Server

__all__ = ["Registry", "not_ours", "open_registry", "session_of"]

_T = TypeVar("_T")
_LONGEST_LABEL = 200
_ATTEMPTS_AT_ROOM = 4
_NOT_OURS, _DAMAGED = "RTF01", "RTF02"
# The states that a fork may be in before it comes to be in another.
_BEFORE = {
    "warm": ("creating",),
    "leased": ("creating", "warm"),
    "closing": ("leased", "closing"),
    "dropping": ("creating", "warm", "leased", "closing", "dropping"),
    "kept": ("warm", "leased", "closing"),
}


class Registry:
    """A launcher's hold on the registry, from `open_registry`."""

    def __init__(self, server: Server, pace: Pace) -> None:
        async def connect() -> asyncpg.Connection:
            return await server.connect(DATABASE)

        self._server = server
        self._sessions = Sessions(connect)
        self._launcher = Launcher(connect, pace, returned=self._compare)
        self._guard = Guard(connect, told=self._strained)
        self._room = Room(server)
        self._names: set[str] = set()
        self._in_use: set[str] = set()
        self._strains: dict[str, str] = {}
        self._abandoned: set[str] = set()

    def __repr__(self) -> str:
        return f"Registry(launcher {self.launcher})"

    @property
    def launcher(self) -> int:
        """Our id; another one after we had been given up."""
        return self._launcher.id

    @property
    def room(self) -> Room:
        """How much is left where the data lies."""
        return self._room

    @property
    def fault(self) -> str | None:
        """Why no fork is handed out at the moment; None while all is well."""
        return self._launcher.fault

    @property
    def abandoned(self) -> frozenset[str]:
        """Forks of ours that could not be dropped. The next sweep tries again, ours or another's."""
        return frozenset(self._abandoned)

    def session(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        """Lend an administration session in the registry's database, like `Server.maintenance`."""
        return self._sessions.borrow()

    async def ensure_held(self) -> None:
        """Make sure that what is handed out now stays ours.

        Raises:
            ForkUnavailable: the registry cannot be reached; says why.
        """
        await self._launcher.ensure_held()

    async def use(self, template: str) -> None:
        """Have others see that a template is in use, so that it makes way for nothing as long as we live."""
        await self._launcher.use(template)

    async def own(self, name: str) -> None:
        """Have a template go with us: whoever is killed leaves it to the next sweep, like a fork.

        Written down before it is built, under the name that it will have, and forgotten after it was dropped.
        """
        async with self.session() as connection:
            await self.intend(connection, name, template=name)

    async def intend(
        self, connection: asyncpg.Connection, name: str, *, template: str, label: str = ""
    ) -> Creator:
        """Write down that `name` is about to be made, in the session that will make it."""
        self._names.add(name)
        row = await connection.fetchrow(
            query("fork_intended"), name, self.launcher, template, label[:_LONGEST_LABEL]
        )
        return Creator(pid=row["pid"], started=row["started"])

    def moved(self, name: str, state: str, *, label: str | None = None) -> str:
        """The statement that moves a fork of ours on: with others in one transaction, all happen or none."""
        if state == "leased":
            self._in_use.add(name)
        froms = ",".join(quote_literal(before) for before in _BEFORE[state])
        tag = "NULL" if label is None else quote_literal(label[:_LONGEST_LABEL].replace("\0", ""))
        return (
            f"SELECT forker.move({quote_literal(name)}, {self.launcher}, {quote_literal(state)}, "
            f"ARRAY[{froms}], {tag})"
        )

    async def move(self, name: str, state: str) -> str:
        """Move a fork of ours on, if it still is ours.

        Returns:
            The state it is in then: `state`; `kept`, by somebody else; or `taken`, by a sweep or a drop.

        Raises:
            asyncpg.PostgresError: as it comes.
        """
        async with self.session() as connection:
            try:
                await role.execute_shared(connection, [self.moved(name, state)])
            except asyncpg.PostgresError as error:
                if error.sqlstate != _NOT_OURS:
                    raise
            else:
                return state
            row = await connection.fetchrow(query("fork_state"), name, self.launcher)
        self._let_go(name)
        return "kept" if row is not None and row["state"] == "kept" else "taken"

    async def forget(self, name: str) -> None:
        """Delete a fork's row: nothing of it is left."""
        async with self.session() as connection:
            await connection.execute(query("fork_forgotten"), name, self.launcher)
        self._let_go(name)

    def abandon(self, name: str) -> None:
        """Leave a fork of ours that could not be dropped to a sweep."""
        self._abandoned.add(name)

    async def claim(self, entry: Entry) -> bool:
        """Take a fork over to drop it; False when it has changed since `entry` was read."""
        async with self.session() as connection:
            taken = await connection.fetchval(
                query("fork_claimed"), entry.name, entry.launcher, entry.generation, self.launcher
            )
        return taken is not None

    async def keep(self, entry: Entry) -> bool:
        """Take a fork out of its launcher's hands; False when it has changed since `entry` was read."""
        async with self.session() as connection:
            return await connection.fetchval(query("fork_kept"), entry.name, entry.generation) is not None

    async def adopt(self, name: str) -> None:
        """Register a fork that nobody registered, as a kept one."""
        template = name.rpartition("_")[0] + "_template"
        async with self.session() as connection:
            await connection.execute(query("fork_adopted"), name, template, "")

    async def entries(self) -> tuple[Entry, ...]:
        """All registered forks of the server, oldest first.

        Raises:
            ServerUnavailable: the registry cannot be read.
        """
        with _pg.translated("cannot read the registry", ServerUnavailable):
            async with self.session() as connection:
                return await ledger.read(connection)

    async def forget_launchers(self) -> None:
        """Delete the rows of launchers that are gone and that nothing is left of.

        Raises:
            asyncpg.PostgresError: as it comes.
        """
        async with self.session() as connection:
            for launcher in await ledger.gone_launchers(connection):
                await connection.execute(query("launcher_forget"), launcher)

    async def vacuum(self) -> bool:
        """Vacuum the catalogs that all databases share, and the registry, when there is enough to take away.

        Raises:
            asyncpg.PostgresError: as it comes.
        """
        async with self.session() as connection:
            done = await database.vacuum_catalogs(connection, self._server.facts)
            if done:
                await connection.execute(
                    "VACUUM (SKIP_LOCKED, TRUNCATE false) forker.forks, forker.launchers"
                )
        return done

    async def with_room(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Do something; where the server has no room for its locks, end whoever took it, and do it again.

        Raises:
            EnvironmentFault: as `attempt` does; the last time also for want of room.
        """
        for _ in range(_ATTEMPTS_AT_ROOM - 1):
            try:
                return await attempt()
            except EnvironmentFault as error:
                if not is_out_of_locks(error):
                    raise
                await self._guard.look()
        return await attempt()

    def strain_of(self, name: str) -> str | None:
        """Why what happened in a fork of ours says nothing of its agent, in words; None if it does.

        Known are the moments at which the server had no room for locks: any statement in any fork in use may
        have failed for it.
        """
        return self._strains.get(name)

    def _strained(self, reason: str, name: str | None) -> None:
        for each in self._in_use if name is None else self._in_use & {name}:
            self._strains.setdefault(each, reason)

    def _let_go(self, name: str) -> None:
        for names in (self._names, self._in_use, self._abandoned):
            names.discard(name)
        self._strains.pop(name, None)

    async def _compare(self, connection: asyncpg.Connection, launcher: int) -> None:
        """After our session was lost: what is not ours any more was swept, and is not waited for."""
        rows = await connection.fetch(query("launcher_names"), launcher)
        self._names &= {row["name"] for row in rows}

    def is_ours(self, name: str) -> bool:
        """Whether a fork was ours when we last could see. A conversation asks when its sessions were cut."""
        return name in self._names

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Registry]:
        try:
            await self._launcher.enter()
            async with beside(self._launcher.run, self._guard.run):
                yield self
        finally:
            await self._launcher.leave()
            await self._sessions.aclose()


@contextlib.asynccontextmanager
async def open_registry(
    server: Server, *, heartbeat_s: float = 5.0, grace_s: float = 15.0, lease_s: float = 60.0
) -> AsyncIterator[Registry]:
    """Register as a launcher for as long as the scope is open; makes the registry where there is none.

    Args:
        server: where the forks are.
        heartbeat_s: seconds between two beats.
        grace_s: silent for so long, and without its lock, a launcher loses what no conversation uses.
        lease_s: and after so long its conversations' forks too.

    Raises:
        ServerUnavailable: the registry cannot be made or reached, is another role's, or a newer version's.
    """
    with _pg.translated(f"cannot open the registry {DATABASE!r}", ServerUnavailable):
        await ledger.prepare(server)
    registry = Registry(server, Pace(heartbeat_s=heartbeat_s, grace_s=grace_s, lease_s=lease_s))
    async with registry._open():  # noqa: SLF001 - the one way in
        yield registry


def session_of(server: Server, registry: Registry | None) -> AbstractAsyncContextManager[asyncpg.Connection]:
    """A lent session where a fork's statements belong: with its row, if it has one."""
    return server.maintenance() if registry is None else registry.session()


def not_ours(error: asyncpg.PostgresError, name: str) -> ForkUnavailable | None:
    """What `Registry.moved` refused, in our words; None if the error is another."""
    if error.sqlstate not in (_NOT_OURS, _DAMAGED):
        return None
    return ForkUnavailable(f"fork {name!r} cannot be used: {error.args[0]}", retryable=True)
