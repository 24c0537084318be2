"""What changed in a fork that was kept, long after its conversation: from what the registry knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_forker import _pg
from redteam_forker.changes import collect_changes
from redteam_forker.sql import query
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from redteam_forker.changes import ChangeSet
    from redteam_forker.ledger import Entry
    from redteam_forker.servers.server import Server

__all__ = ["changes_of_kept"]


async def changes_of_kept(server: Server, entry: Entry) -> ChangeSet:
    """Compare a kept fork with the baseline of the template that it was cloned from.

    Args:
        server: where it is.
        entry: the fork, as the registry has it.

    Raises:
        UsageError: it is not kept, or what it would be compared with is not known or gone; says which.
        EnvironmentFault: somebody is at work in it, or a database cannot be read.
    """
    name = entry.name
    if not entry.kept:
        raise UsageError(
            f"fork {name!r} is {entry.state}: what changed is certain when nobody uses it any more; "
            "`redteam forks keep` keeps it"
        )
    if not entry.there:
        raise UsageError(f"the database of fork {name!r} is gone; `redteam forks drop` clears what is left")
    if entry.watermark is None:
        raise UsageError(
            f"when fork {name!r} began is not known: it was not registered when it was made, or an older "
            "redteam made it; a fork that a launch of this version keeps can be compared"
        )
    if not entry.template_there:
        raise UsageError(
            f"the template {entry.template!r} that fork {name!r} was cloned from is gone, so there is "
            "nothing to compare it with"
        )
    with _pg.translated(f"cannot ask who uses fork {name!r}", EnvironmentFault):
        async with server.maintenance() as connection:
            busy = await connection.fetchval(query("busy_within"), name)
    if busy:
        raise EnvironmentFault(
            f"fork {name!r} is in use: sessions in the middle of a transaction or statement: {busy}; "
            "end them, then try again",
            retryable=True,
        )
    return await collect_changes(
        server,
        baseline=f"{entry.template.removesuffix('template')}baseline",
        fork=name,
        watermark=entry.watermark,
    )
