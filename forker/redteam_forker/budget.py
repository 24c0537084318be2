"""What a server can carry, computed before a launch: sessions, and room for the forks' data. Pure.

A refusal says how many conversations fit. Warm forks are a convenience: as many as there is room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_forker.role import CONNECTIONS_PER_FORK
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_forker.servers.server import ServerFacts

__all__ = ["Budget", "fork_cost_bytes", "plan_budget"]

_MIB = 1 << 20
# The registry's lock, lent sessions in two databases, creators, droppers, and some for a person with psql.
_SESSIONS_OF_OURS = 20
# What a conversation is likely to write, its files' ends and its catalogs' changed pages included.
_GROWTH_BYTES = 8 * _MIB
# What every clone takes of its own even where data blocks are shared: some 300 files' metadata.
_CLONE_BYTES = 2 * _MIB
# Never to be planned away: logs, temporary files, and whoever else writes there.
_RESERVE_BYTES = 256 * _MIB
_RESERVE_SHARE = 20
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a launch may use.

    Attributes:
        parallel: conversations at once.
        low, high: warm forks, for `open_pool`; fewer than asked for where there is no room.
        sessions: what they need at most.
        fork_bytes: what one fork is likely to take.
        needed_bytes: what all take at once.
        free_bytes: what there was; None if it is not known, and then room was not considered.
    """

    parallel: int
    low: int
    high: int
    sessions: int
    fork_bytes: int
    needed_bytes: int
    free_bytes: int | None


def fork_cost_bytes(facts: ServerFacts, template_bytes: int) -> int:
    """What one fork is likely to take: a reflink clone shares its template's blocks until one writes."""
    return (_CLONE_BYTES if facts.clone else template_bytes) + _GROWTH_BYTES


def plan_budget(
    facts: ServerFacts,
    *,
    parallel: int,
    warm: int,
    template_bytes: int,
    free_bytes: int | None,
    others: int = 0,
) -> Budget:
    """Plan a launch, or refuse it.

    Args:
        facts: the server's.
        parallel: conversations at once.
        warm: forks that are to wait.
        template_bytes: size of the largest template.
        free_bytes: room where the data lies; on tmpfs the memory that may be taken. None: not known.
        others: forks of other launchers that are in use on the server.

    Raises:
        UsageError: it does not fit; says how many conversations do.
    """
    if parallel < 1 or warm < 0:
        raise UsageError(
            "a launch needs at least one conversation at once, and warm forks cannot be negative"
        )
    _check_sessions(facts, parallel=parallel, others=others)
    fork_bytes = fork_cost_bytes(facts, template_bytes)
    high = warm
    if free_bytes is not None:
        usable = max(0, free_bytes - max(_RESERVE_BYTES, free_bytes // _RESERVE_SHARE))
        fit = usable // fork_bytes
        if parallel > fit:
            raise UsageError(_no_room(facts, parallel, fit, fork_bytes=fork_bytes, usable=usable))
        high = min(warm, fit - parallel)
    return Budget(
        parallel=parallel,
        low=(high + 1) // 2,
        high=high,
        sessions=parallel * CONNECTIONS_PER_FORK + _SESSIONS_OF_OURS,
        fork_bytes=fork_bytes,
        needed_bytes=(parallel + high) * fork_bytes,
        free_bytes=free_bytes,
    )


def _check_sessions(facts: ServerFacts, *, parallel: int, others: int) -> None:
    admitted = facts.connections - others * CONNECTIONS_PER_FORK
    fit = max(0, (admitted - _SESSIONS_OF_OURS) // CONNECTIONS_PER_FORK)
    if parallel <= fit:
        return
    in_use = (
        f", of which {others} forks of other launches may take {facts.connections - admitted}"
        if others
        else ""
    )
    raise UsageError(
        f"--parallel {parallel} needs up to {parallel * CONNECTIONS_PER_FORK + _SESSIONS_OF_OURS} sessions, "
        f"and the server admits {facts.connections}{in_use}: {_advice(fit)}, or raise max_connections there"
    )


def _no_room(facts: ServerFacts, parallel: int, fit: int, *, fork_bytes: int, usable: int) -> str:
    where = "memory" if facts.file_system in _MEMORY_FILE_SYSTEMS else "disk"
    cheaper = (
        "" if facts.clone else "; on a file system that clones files (XFS, Btrfs) a fork takes almost none"
    )
    return (
        f"--parallel {parallel} needs {parallel * fork_bytes // _MIB} MB of {where} for forks of "
        f"{fork_bytes // _MIB} MB each, and {usable // _MIB} MB can be used where the data lies: "
        f"{_advice(fit)}, make room, or use a smaller seed{cheaper}"
    )


def _advice(fit: int) -> str:
    return f"{fit} fit, so use --parallel {fit}" if fit else "not one fits"
