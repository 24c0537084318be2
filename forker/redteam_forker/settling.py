"""Bringing a fork to rest: its role is shut out, what it still does is waited for, its sessions are ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import anyio

from redteam_forker import role
from redteam_forker.sql import query

if TYPE_CHECKING:
    import asyncpg

__all__ = ["LateSession", "Settled", "settle"]

_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSession:
    """A session of a fork's role that was in a transaction, or ran a statement, when the fork was closed.

    Attributes:
        application: as the session calls itself; often empty.
        state: as in `pg_stat_activity`: `active`, `idle in transaction`, ...
        statement: what it ran last, on one line, cut to 200 characters.
        open_s: how long its transaction had been open, in seconds, at the last look; None: it had none.
        ended: whether it was ended in the middle, so that its transaction left nothing; False: it came to an
            end within the time, and what it committed is in the fork.
    """

    application: str
    state: str
    statement: str
    open_s: float | None
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a fork came to rest.

    Attributes:
        waited_s: how long its open transactions were waited for, in seconds.
        late: how many sessions were still busy then, and were ended in the middle.
        sessions: what was busy when the fork was closed, the oldest session first.
        at_rest: whether every session of the role is gone.
    """

    waited_s: float
    late: int
    sessions: tuple[LateSession, ...] = ()
    at_rest: bool = True


class _Session(NamedTuple):
    began: object
    pid: int


async def settle(connection: asyncpg.Connection, name: str, *, settle_s: float) -> Settled:
    """Shut the role out, wait for its open transactions and running statements, and end its sessions.

    Args:
        connection: an administration session.
        name: the role's.
        settle_s: how long they are waited for, in seconds.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    began = anyio.current_time()
    met: dict[_Session, asyncpg.Record] = {}
    early = await _busy(connection, name, met)
    cut = await role.shut_out(connection, name, patience_s=settle_s)
    busy = await _busy(connection, name, met)
    # Who stood in the way of shutting the role out was ended there, with all others.
    ended_early = early - busy if cut else set()
    while busy and anyio.current_time() < began + settle_s:
        await anyio.sleep(_POLL_S)
        busy = await _busy(connection, name, met)
    waited_s = anyio.current_time() - began
    # Twice: a session that was being let in while the role was shut out shows up late.
    gone = await connection.fetch(query("end_sessions"), name)
    gone += await connection.fetch(query("end_sessions"), name)
    ended = busy | ended_early
    return Settled(
        waited_s=waited_s,
        late=len(busy) + cut,
        sessions=tuple(
            LateSession(
                application=row["application"],
                state=row["state"],
                statement=row["statement"],
                open_s=row["open_s"],
                ended=session in ended,
            )
            for session, row in sorted(met.items())
            # A session that was only being let in, and came to rest, did nothing.
            if session in ended or row["open_s"] is not None
        ),
        at_rest=all(row["gone"] for row in gone),
    )


async def _busy(
    connection: asyncpg.Connection, name: str, met: dict[_Session, asyncpg.Record]
) -> set[_Session]:
    """The busy sessions of a role now; what there is to say of each is kept in `met`."""
    rows = await connection.fetch(query("busy_sessions"), name)
    found = {_Session(row["began"], row["pid"]): row for row in rows}
    met.update(found)
    return set(found)
