"""The embedded server that is kept: all launches of a user share one cluster, and its data outlives them.

Whoever opens it holds the door (`servers/state.py`) while it decides: join the cluster that the folder names,
start it again, or discard it and make a new one. From then on it is one connection at the keeper
(`servers/keeper.py`), which ends the processes when the last connection is gone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import asyncpg

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries, embedded, homes, kept, placement, settings, state, trim
from redteam_forker.servers.cluster import Cluster, measure
from redteam_forker.servers.seat import GoneError, Seat, listening, run_keeper
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers.embedded import Embedded
    from redteam_forker.servers.homes import Home
    from redteam_forker.servers.kept import Prepared
    from redteam_forker.servers.state import State

__all__ = ["discard_shared", "open_shared"]

_ATTEMPTS = 3
_LEAVE_TIMEOUT_S = 60.0
_POLL_S = 0.01
# Data that does not start for these reasons may start later.
_PASSING = ("No space left", "Cannot allocate memory", "out of memory", "Too many open files")
# It is on its way up, or down again, of which the keeper tells us.
_PASSING_ERRORS = (
    *_pg.NOT_YET,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
)
_MIB = 1 << 20


@contextlib.asynccontextmanager
async def open_shared(options: Embedded, folder: Path) -> AsyncIterator[Cluster]:
    """Be one of those who use the cluster that `folder` keeps, starting it if need be.

    Args:
        options: as for a cluster of one's own. The data root decides only where a new one goes.
        folder: of state, the user's own.

    Raises:
        UsageError: the folder, the data root or the user cannot be used.
        ServerUnavailable: PostgreSQL does not start here, or another version of this uses the cluster.
    """
    folder = await anyio.to_thread.run_sync(state.prepare, folder)
    package = options.package or await anyio.to_thread.run_sync(binaries.installed)
    options = replace(options, package=package)
    async with contextlib.AsyncExitStack() as stack:
        cluster, seat = await _entered(options, folder, stack)
        try:
            yield cluster
        finally:
            with anyio.move_on_after(_LEAVE_TIMEOUT_S, shield=True):
                await _leave(cluster, seat, folder)


async def discard_shared(folder: Path) -> bool:
    """Remove the data of a shared cluster that nobody uses, with all that was kept in it.

    Returns:
        Whether there is nothing left; false while somebody uses it.

    Raises:
        UsageError: the folder cannot be used.
        ServerUnavailable: somebody else is starting it.
    """
    if not await anyio.to_thread.run_sync(folder.is_dir):
        return True
    folder = await anyio.to_thread.run_sync(state.prepare, folder)
    async with state.door(folder):
        return await anyio.to_thread.run_sync(kept.discard_unused, folder)


async def _entered(options: Embedded, folder: Path, stack: contextlib.AsyncExitStack) -> tuple[Cluster, Seat]:
    """Decide and do it, at most a few times: what we join may be ending at this very moment."""
    reason = "its supervisor was killed"
    async with state.door(folder):
        for _ in range(_ATTEMPTS):
            try:
                async with contextlib.AsyncExitStack() as undo:
                    found = await _seated(options, folder, undo)
                    await stack.enter_async_context(undo.pop_all())
                    return found
            except GoneError as error:
                reason = str(error) or reason
                if any(words in reason for words in _PASSING):
                    break
                if str(error):
                    await kept.discard(folder)
    raise ServerUnavailable(
        f"the shared server of {folder} does not start: {reason}; use another folder, or another data root",
        retryable=True,
    )


async def _seated(options: Embedded, folder: Path, stack: contextlib.AsyncExitStack) -> tuple[Cluster, Seat]:
    known = await anyio.to_thread.run_sync(state.read, folder)
    if known is not None:
        home = _home_of(known)
        # Nobody is there, or not any more, or does not answer: then it is ours to start.
        with contextlib.suppress(OSError, GoneError), anyio.fail_after(embedded.START_TIMEOUT_S):
            seat = await _taken(home.control, stack)
            await seat.hear()
            await anyio.to_thread.run_sync(_check_alike, options, folder, known)
            return await _ready(options, known, home, seat), seat
    return await _started(options, folder, stack)


async def _taken(control: Path, stack: contextlib.AsyncExitStack) -> Seat:
    seat = await Seat.take(control)
    stack.push_async_callback(seat.stream.aclose)
    return seat


def _home_of(known: State) -> Home:
    """As it is written down, and not locked."""
    path = Path(known.home)
    return homes.Home(path=path, sockets=homes.sockets_of(path), remove=(), lock_fd=-1)


def _check_alike(options: Embedded, folder: Path, known: State) -> None:
    """Whether the cluster that runs is what we would have started."""
    assert options.package is not None
    ours = (settings.fingerprint(), binaries.version_of(options.package))
    if ours != (known.settings, known.version):
        raise ServerUnavailable(
            f"the shared server of {folder} is in use by another version of this program ({known.version}, "
            f"here {ours[1]}); wait for its launches to end, or use another folder",
            retryable=True,
        )
    if options.run_as not in (None, known.user):
        raise UsageError(
            f"the shared server of {folder} runs as {known.user!r}, not as {options.run_as!r}; "
            "wait for its launches to end, or use another folder"
        )


async def _started(options: Embedded, folder: Path, stack: contextlib.AsyncExitStack) -> tuple[Cluster, Seat]:
    """Start what is kept, or a new cluster. The door is ours."""
    home = await kept.quiet_home(folder)
    prepared = await anyio.to_thread.run_sync(kept.prepare, options, folder, home)
    try:
        if not prepared.initialise:
            # Before the data is touched: a crash of the machine from now on is one that it does not survive.
            await anyio.to_thread.run_sync(state.write, folder, prepared.known)
        with listening(prepared.home) as door:
            seat = await _taken(prepared.home.control, stack)
            run = functools.partial(run_keeper, folder, prepared.home, door, new=prepared.initialise)
            await anyio.to_thread.run_sync(run)
        try:
            return await _usable(options, folder, prepared, seat), seat
        except BaseException:
            with anyio.move_on_after(_LEAVE_TIMEOUT_S, shield=True):
                await seat.give_up()  # nothing runs any more
            raise
    except BaseException as error:
        if prepared.initialise:
            homes.remove(prepared.home.remove)
            if isinstance(error, GoneError) and str(error):
                raise ServerUnavailable(f"PostgreSQL cannot make a cluster here: {error}") from error
        raise
    finally:
        os.close(prepared.home.lock_fd)


async def _usable(options: Embedded, folder: Path, prepared: Prepared, seat: Seat) -> Cluster:
    """Have the keeper start it, and write down where it is."""
    plan = embedded.plan_for(prepared.site, prepared.home, prepared.known.password, kept=True)
    # On a disk, the next start of the machine finds the data where it was flushed after a clean stop.
    flushed = "" if prepared.known.kind == "memory" else prepared.known.run
    with anyio.move_on_after(embedded.START_TIMEOUT_S):
        await seat.say(json.dumps({**plan, "initialise": prepared.initialise, "run": flushed}))
        await seat.hear()
        cluster = await _ready(options, prepared.known, prepared.home, seat)
        if prepared.initialise:
            await cluster.close_to_public()
            await anyio.to_thread.run_sync(state.write, folder, prepared.known)
            await seat.say("keep")
        else:
            await trim.vacuum_shared_catalogs(cluster)
        return cluster
    raise ServerUnavailable(
        f"PostgreSQL was not ready after {embedded.START_TIMEOUT_S:.0f} s in {prepared.home.path}; "
        "is the machine overloaded? Name another data root, or use a server of your own by its DSN",
        retryable=True,
    )


async def _ready(options: Embedded, known: State, home: Home, seat: Seat) -> Cluster:
    """Ask until it answers: a socket that is there is no server that is ready (P89)."""
    assert options.package is not None
    target = embedded.target_at(home.sockets, known.password)
    while True:
        try:
            with _pg.translated("the shared server cannot be used", ServerUnavailable):
                facts = await measure(target, kind="embedded", placement=_placed(known))
            break
        except (ServerUnavailable, asyncpg.InternalClientError) as error:
            if isinstance(error.__cause__, asyncpg.InvalidPasswordError):
                raise GoneError("its password is not the one that was written down") from error
            if isinstance(error, ServerUnavailable) and not isinstance(error.__cause__, _PASSING_ERRORS):
                raise
            # Waits a moment, and hears at once when it died.
            with anyio.move_on_after(_POLL_S):
                await seat.hear()
    facts = replace(facts, file_system=known.file_system, shared=True)
    return Cluster(facts=facts, target=target, psql=options.package / binaries.PSQL)


def _placed(known: State) -> str:
    limit = placement.kept_bytes(Path(known.home).parent, known.kind) // _MIB
    where = "of memory " if known.kind == "memory" else ""
    return f"{known.home}: {known.reason}; between launches at most {limit} MB {where}are kept"


async def _leave(cluster: Cluster, seat: Seat, folder: Path) -> None:
    """Give up the seat; the last one makes what is kept small enough, and waits until the processes ended."""
    known = await anyio.to_thread.run_sync(state.read, folder)
    with contextlib.suppress(ServerUnavailable, GoneError):
        # Whoever is at the door now is about to join, and will be the last in our place.
        async with state.door(folder, timeout_s=0):
            await seat.say("count")
            if known is not None and (await seat.hear())["count"] == 1:
                await trim.trim(cluster, placement.kept_bytes(Path(known.home).parent, known.kind))
    await cluster.aclose()
    await seat.give_up()
