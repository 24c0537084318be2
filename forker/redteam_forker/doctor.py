"""What a server is, what it lets us do, what fits on it, what a fork costs there, and what would be cheaper.

Everything that `diagnose` returns was measured or asked for when it was called; `advice` is a pure function
of that.
"""

from __future__ import annotations

import subprocess
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from redteam_forker import _pg
from redteam_forker.budget import plan_budget
from redteam_forker.errors import ServerUnavailable
from redteam_forker.probe import ROUNDS, ForkCost, measure_fork
from redteam_forker.reach import check_reach
from redteam_forker.role import CONNECTIONS_PER_FORK
from redteam_forker.servers import binaries
from redteam_forker.sql import query
from redteam_forker.storage import Storage, find_storage
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_forker.servers import Server, ServerFacts

__all__ = [
    "Diagnosis",
    "Programs",
    "Rights",
    "Room",
    "Storage",
    "advice",
    "diagnose",
    "find_programs",
    "what_rights_lack",
]

_FEW_CONVERSATIONS = 20
_BOUNDLESS = 1_000_000
_LARGE_BUFFERS_BYTES = 1 << 30
_BLOCK_BYTES = 8192
_SLOW_FORK_S = 0.1
_CLONERS = ("xfs", "btrfs", "bcachefs")
_GIB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """PostgreSQL's programs from the wheel.

    Attributes:
        version: of the server program.
        directory: where they are run from.
        user: whom the server runs as; None is ourselves.
    """

    version: str
    directory: str
    user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What our role may do on the server."""

    role: str
    superuser: bool
    createdb: bool
    createrole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much fits at once.

    Attributes:
        sessions: that the server admits to roles that are no superuser.
        sessions_used: by others, now.
        conversations: at once, as many as a launch may have by the number of sessions.
        forks: of the size asked for, as many as a launch may have by the room that is free; None where that
            is not known.
    """

    sessions: int
    sessions_used: int
    conversations: int
    forks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that was found. Safe to print: no secret is in it.

    Attributes:
        facts: the server's own.
        settings: those that a fork's price depends on, as far as our role may see them.
        cost: None if it was not measured, and then
        unmeasured: says why.
    """

    facts: ServerFacts
    rights: Rights
    storage: Storage
    room: Room
    settings: dict[str, str]
    cost: ForkCost | None
    unmeasured: str | None

    def to_json(self) -> dict[str, Any]:
        """As plain data, for `redteam doctor --json`."""
        return asdict(self)


def find_programs(run_as: str | None) -> Programs:
    """The wheel's programs, tried as the user who would run them. Blocks; call it in a worker thread.

    Args:
        run_as: in a root session, the user to run them as; None chooses.

    Raises:
        UsageError: `run_as` cannot be that user.
        ServerUnavailable: they are missing, or do not run here.
    """
    user = binaries.runner(run_as)
    directory = binaries.reachable(binaries.installed(), user)
    done = subprocess.run(
        [directory / "postgres", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        cwd="/",
        env={"LC_ALL": "C"},
    )
    version = done.stdout.strip().rpartition(" ")[2]
    return Programs(version=version, directory=str(directory), user=user.name if user else None)


async def diagnose(server: Server, *, template_bytes: int) -> Diagnosis:
    """Ask a server what it is, and measure what a fork of a template of this size costs on it.

    It makes databases and roles with names of ours and drops them again, also when cancelled; killed, it
    leaves them to the next sweep. The registry stays.

    Args:
        server: one that is open.
        template_bytes: the template's size to aim at; an empty database has some 8 MB already.

    Raises:
        ServerUnavailable, ForkUnavailable, DropFailed: the server did not do what forks need.
    """
    facts = server.facts
    doing = "cannot ask the server what it is"
    with _pg.translated(doing, ServerUnavailable):
        async with server.maintenance() as connection:
            rights = Rights(**await connection.fetchrow(query("doctor_rights")))
            rows = await connection.fetch(query("doctor_settings"))
            settings: dict[str, str] = {row["name"]: row["setting"] for row in rows}
            used = await connection.fetchval(query("doctor_sessions"))
    storage = await find_storage(server)
    cost, unmeasured = None, None
    fitting = _fitting(storage, template_bytes)
    if fitting < 1:
        free = (storage.free_bytes or 0) // _MIB
        needed = 3 * template_bytes // _MIB
        unmeasured = f"a template, its baseline and a fork need {needed} MB, and {free} MB are free"
    elif (unmeasured := await _refused(server)) is None:
        seen = storage.directory if storage.file_system is not None else None
        cost = await measure_fork(
            server, template_bytes=template_bytes, directory=seen, rounds=min(ROUNDS, fitting)
        )
    free_bytes, boundless = storage.free_bytes, replace(facts, connections=_BOUNDLESS)
    return Diagnosis(
        facts=facts,
        rights=rights,
        storage=storage,
        room=Room(
            sessions=facts.connections,
            sessions_used=used,
            conversations=_most(facts, template_bytes, None),
            forks=None if free_bytes is None else _most(boundless, template_bytes, free_bytes),
        ),
        settings=settings,
        cost=cost,
        unmeasured=unmeasured,
    )


async def _refused(server: Server) -> str | None:
    """Why a launch would be refused on it, whatever its suite."""
    try:
        await check_reach(server, None)
    except UsageError as refused:
        return str(refused)
    return None


def _fitting(storage: Storage, template_bytes: int) -> int:
    """How many forks may be made to measure one: beside template and baseline, with half the rest left."""
    if storage.free_bytes is None:
        return ROUNDS
    return (storage.free_bytes - 2 * template_bytes) // (2 * template_bytes)


def _most(facts: ServerFacts, template_bytes: int, free_bytes: int | None) -> int:
    """The largest number of conversations at once that a launch is not refused for."""
    fits, refused = 0, _BOUNDLESS
    while refused - fits > 1:
        parallel = (fits + refused) // 2
        try:
            plan_budget(
                facts, parallel=parallel, warm=0, template_bytes=template_bytes, free_bytes=free_bytes
            )
        except UsageError:
            refused = parallel
        else:
            fits = parallel
    return fits


def what_rights_lack(rights: Rights) -> str | None:
    """What a role that is no superuser cannot do, as a sentence; None for a superuser."""
    if rights.superuser:
        return None
    return (
        f"role {rights.role!r} is no superuser: a seed that gives tables to other owners, makes untrusted "
        "extensions or moves dates (that switches triggers off) does not load, and the place of the data "
        "cannot be seen"
    )


def advice(found: Diagnosis) -> tuple[str, ...]:
    """What would make forks cheaper, or let more of them live at once, one sentence each; the best first."""
    return tuple(
        said
        for said in (
            _about_cloning(found),
            _about_flushing(found),
            _about_buffers(found),
            _about_sessions(found),
        )
        if said is not None
    )


def _about_cloning(found: Diagnosis) -> str | None:
    storage, cost = found.storage, found.cost
    if found.facts.clone:
        return None
    if found.facts.version_num < 180000:
        return (
            f"PostgreSQL {found.facts.version} copies every byte of the template; 18 can clone files "
            "on XFS and Btrfs (file_copy_method = clone)"
        )
    if cost is not None and cost.fork_s < _SLOW_FORK_S:
        return None
    price = ""
    if cost is not None:
        price = f" ({cost.fork_s * _GIB / cost.template_bytes:.1f} s for each GB of template)"
    if storage.file_system in _CLONERS and not found.facts.ours:
        return f"the data lies on {storage.file_system}: set file_copy_method = clone, and forks share blocks"
    where = f"on {storage.file_system}, which copies" if storage.file_system else "where files are copied"
    how = (
        "with such a file system at /var/tmp it is chosen by itself"
        if found.facts.kind == "embedded"
        else "move the data directory there and set file_copy_method = clone"
    )
    return (
        f"the data directory is {where}{price}; on XFS (reflink=1) or Btrfs a fork of any size takes some "
        f"tens of milliseconds and almost no disk: {how}"
    )


def _about_flushing(found: Diagnosis) -> str | None:
    if found.settings.get("fsync") != "on":
        return None
    return (
        "fsync is on, so each fork and each drop waits for the disk; if all data on this server may be lost, "
        "set fsync = off"
    )


def _about_buffers(found: Diagnosis) -> str | None:
    buffers = int(found.settings.get("shared_buffers", "0")) * _BLOCK_BYTES
    if buffers <= _LARGE_BUFFERS_BYTES:
        return None
    return (
        f"shared_buffers is {buffers // _MIB} MB, and each fork and drop looks through all of it; "
        "128 MB are enough for forks"
    )


def _about_sessions(found: Diagnosis) -> str | None:
    if found.room.conversations >= _FEW_CONVERSATIONS:
        return None
    return (
        f"{found.room.sessions} sessions carry {found.room.conversations} conversations at once, "
        f"{CONNECTIONS_PER_FORK} for each and some of our own: raise max_connections"
    )
