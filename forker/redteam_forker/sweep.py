"""The sweep: takes away what launchers that are gone have left, and nothing else.

    a fork's row ─► claim it, if it is still as it was read ─► end the session that may be making it
                 ─► `database.STEPS`: shut out ... database dropped, role dropped, verified ─► forget the row

The row goes last, and each step may be done again. So whatever a killed sweeper left is found by the next,
under the dead sweeper's id. Sweeps of several launchers may run at the same time: a claim is a
compare-and-set, and one lock for all would let a frozen sweeper keep the others from sweeping.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import anyio

from redteam_forker import _pg, database
from redteam_forker._tasks import beside
from redteam_forker.errors import DropFailed, ServerUnavailable
from redteam_forker.ledger import builders_lock_nowait, entries_of
from redteam_forker.leftovers import find_leftovers, remove_leftover
from redteam_forker.registry import open_registry
from redteam_forker.sql import query
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redteam_forker.ledger import Entry
    from redteam_forker.registry import Registry
    from redteam_forker.servers.server import Server

__all__ = [
    "STEPS",
    "Failure",
    "Swept",
    "Unregistered",
    "drop_entry",
    "find_unregistered",
    "sweep",
    "sweeping",
]

STEPS = ("claimed", "creator ended", *database.STEPS, "forgotten")
# A database that nobody registered is nobody's only when its maker would have registered or finished it.
_CREATION_GRACE_S = 600.0
_DYING_S, _POLL_S = 2.0, 0.02
# One process that does not answer keeps every DROP DATABASE of a server waiting (P36), so we do not try them
# all.
_TIMEOUTS = 2
_EVERY_S, _MOST = 120.0, 20


class Failure(NamedTuple):
    """Something that could not be removed, and why. The next sweep tries again."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep did.

    Attributes:
        dropped: forks, half-built templates and roles that are gone now.
        would_drop: the same of a dry run, which drops nothing.
        kept: forks that stay until they are dropped by name.
        reported: databases and roles that look like forks and that nobody registered; they stay.
        failed: what could not be dropped.
        vacuumed: whether the shared catalogs were vacuumed.
    """

    dropped: tuple[str, ...] = ()
    would_drop: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    vacuumed: bool = False


class Unregistered(NamedTuple):
    """Something that bears a fork's name, and whether it is too old for anybody to be still at it."""

    name: str
    old: bool


def _unwatched(step: str) -> None:
    """What a sweep tells when nobody asked."""


async def sweep(
    server: Server,
    *,
    registry: Registry | None = None,
    dry_run: bool = False,
    unregistered: bool = False,
    most: int | None = None,
    step: Callable[[str], None] = _unwatched,
) -> Swept:
    """Remove the forks of launchers that are gone, and templates that nobody is building any more.

    Args:
        server: which.
        registry: ours on it; without one, one is opened for the sweep.
        dry_run: only say what would be removed. Makes no registry.
        unregistered: also remove databases and roles that bear a fork's name, that nobody registered, and
        that are older than ten minutes (where our role may not ask for that: whose role has expired).
        most: forks to drop at most; the rest is for the next sweep.
        step: called with the name of each of `STEPS` when it is done, for each fork.

    Raises:
        ServerUnavailable: the server or its registry cannot be reached.
    """
    if dry_run:
        return await _would(server, registry, unregistered=unregistered)
    if registry is None:
        async with open_registry(server) as opened:
            return await sweep(server, registry=opened, unregistered=unregistered, most=most, step=step)
    course = _Course(server=server, registry=registry, step=step)
    with _pg.translated("cannot sweep the server", ServerUnavailable):
        garbage = [entry for entry in await _settled(registry) if _is_garbage(entry, registry)]
        for entry in garbage[:most]:
            await course.drop(entry)
        await registry.forget_launchers()
        await course.drop_leftovers()
        found = await find_unregistered(server, registry)
        if unregistered:
            for one in found:
                if one.old:
                    await course.drop_unregistered(one.name)
        vacuumed = await registry.vacuum()
    return Swept(
        dropped=tuple(course.dropped),
        kept=tuple(entry.name for entry in await registry.entries() if entry.kept),
        reported=tuple(one.name for one in found if one.name not in course.dropped),
        failed=tuple(course.failed),
        vacuumed=vacuumed,
    )


@contextlib.asynccontextmanager
async def sweeping(
    server: Server, registry: Registry, *, every_s: float = _EVERY_S, most: int = _MOST
) -> AsyncIterator[None]:
    """Sweep again and again for as long as the scope is open: neighbours may be killed while we go on.

    What a sweep cannot do is left to the next one, here or at the start of a launch.

    Args:
        server: which.
        registry: ours on it.
        every_s: seconds between two sweeps.
        most: forks that one of them drops at most, so that our own do not wait for it.
    """

    async def again() -> None:
        while True:
            await anyio.sleep(every_s * random.uniform(0.8, 1.0))  # noqa: S311 - spreads launchers
            with contextlib.suppress(EnvironmentFault):
                await sweep(server, registry=registry, most=most)

    async with beside(again):
        yield


async def drop_entry(server: Server, registry: Registry, entry: Entry) -> bool:
    """Drop a registered fork, whosever it is; False when it has changed since `entry` was read.

    Raises:
        DropFailed: it is still there.
    """
    course = _Course(server=server, registry=registry, step=_unwatched)
    await course.drop(entry)
    if course.failed:
        raise DropFailed(course.failed[0].reason)
    return bool(course.dropped)


async def find_unregistered(server: Server, registry: Registry | None) -> tuple[Unregistered, ...]:
    """Databases and roles that look like forks and that are not in the registry.

    Raises:
        ServerUnavailable: the server or its registry cannot be asked.
    """
    pattern = f"^rt_{server.facts.instance}_[a-z2-7]{{8}}_[a-z2-7]{{16}}$"
    found: list[Unregistered] = []
    with _pg.translated("cannot look for forks that nobody registered", ServerUnavailable):
        async with server.maintenance() as connection:
            for row in await connection.fetch(query("unregistered"), pattern):
                old = row["expired"]
                if server.facts.superuser and row["database"] is not None:
                    age_s = await connection.fetchval(query("database_age"), row["database"])
                    old = age_s is not None and age_s > _CREATION_GRACE_S
                found.append(Unregistered(row["name"], old))
    # Read after the databases: a row is there before its database.
    entries = await (entries_of(server) if registry is None else registry.entries())
    known = {entry.name for entry in entries}
    return tuple(one for one in found if one.name not in known)


async def _settled(registry: Registry) -> tuple[Entry, ...]:
    """The entries, once the server has noticed who is dead: it does within some milliseconds."""
    entries = await registry.entries()
    with anyio.move_on_after(_DYING_S):
        while any(entry.dying for entry in entries):
            await anyio.sleep(_POLL_S)
            entries = await registry.entries()
    return entries


def _is_garbage(entry: Entry, registry: Registry | None) -> bool:
    if entry.kept:
        return not entry.there  # somebody dropped it by hand
    return entry.orphaned or (registry is not None and entry.name in registry.abandoned)


async def _would(server: Server, registry: Registry | None, *, unregistered: bool) -> Swept:
    with _pg.translated("cannot look what there is to sweep", ServerUnavailable):
        found = await find_unregistered(server, registry)
        entries = await entries_of(server)
        async with builders_lock_nowait(server) as connection:
            leftovers = ((), ()) if connection is None else await find_leftovers(connection, server.facts)
    garbage = [entry.name for entry in entries if _is_garbage(entry, registry)]
    old = [one.name for one in found if one.old and unregistered]
    return Swept(
        would_drop=(*garbage, *leftovers[0], *leftovers[1], *old),
        kept=tuple(entry.name for entry in entries if entry.kept and entry.there),
        reported=tuple(one.name for one in found if one.name not in old),
    )


@dataclass(kw_only=True)
class _Course:
    """One sweep: what it has done so far."""

    server: Server
    registry: Registry
    step: Callable[[str], None]
    dropped: list[str] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    timeouts: int = 0

    async def drop(self, entry: Entry) -> None:
        """Drop one registered fork, unless it has changed since it was read."""
        if self.timeouts >= _TIMEOUTS:
            self.failed.append(Failure(entry.name, "left alone, because others took too long"))
            return
        with self._tried(entry.name), anyio.fail_after(database.DROP_TIMEOUT_S):
            await self._drop(entry)

    async def _drop(self, entry: Entry) -> None:
        name = entry.name
        if not await self.registry.claim(entry):
            return
        self.step("claimed")
        self.registry.abandon(name)  # ours from here on; if it stays, our next sweep tries again
        async with self.registry.session() as connection:
            # A killed launcher's CREATE DATABASE runs on, and would commit after we had looked (P09).
            await database.end_session(connection, entry.creator)
            self.step("creator ended")
            await database.remove(connection, self.server, name, step=self.step)
        await self.registry.forget(name)
        self.step("forgotten")
        self.dropped.append(name)

    async def drop_unregistered(self, name: str) -> None:
        """Drop one that has no row."""
        with self._tried(name), anyio.fail_after(database.DROP_TIMEOUT_S):
            async with self.server.maintenance() as connection:
                await database.remove(connection, self.server, name)
            self.dropped.append(name)

    async def drop_leftovers(self) -> None:
        """Drop what builders that were killed left; if somebody builds now, a later sweep does."""
        async with builders_lock_nowait(self.server) as connection:
            if connection is None:
                return
            leftovers = await find_leftovers(connection, self.server.facts)
            for name in (*leftovers.databases, *leftovers.roles):
                with self._tried(name), anyio.fail_after(database.DROP_TIMEOUT_S):
                    if await remove_leftover(connection, self.server, leftovers, name):
                        self.dropped.append(name)

    @contextlib.contextmanager
    def _tried(self, name: str) -> Iterator[None]:
        """Note how the removal of `name` fails: the others are tried all the same."""
        try:
            with _pg.translated(f"cannot drop {name!r}", DropFailed):
                try:
                    yield
                except TimeoutError:
                    self.timeouts += 1
                    raise DropFailed(
                        f"cannot drop {name!r}: not done after {database.DROP_TIMEOUT_S:.0f} s; "
                        "if a server process does not answer, no database of the server can be dropped"
                    ) from None
        except EnvironmentFault as error:
            self.failed.append(Failure(name, str(error)))
