"""Ends a fork's sessions when they take the room that the whole server has for locks.

Nothing in PostgreSQL bounds how many locks a role holds. Once their table is full, nobody can log in, no role
can be shut out and nothing can be created or dropped (SQLSTATE 53200), so a fork that fills it could not be
closed either. A session that is open already still answers if it looks at shared memory only; what it lacks
are the few locks that ending another session takes. So it holds some in reserve, and lets them go then.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_forker import _pg
from redteam_forker.database import FORKS
from redteam_forker.errors import ServerUnavailable
from redteam_forker.names import quote_literal
from redteam_forker.sql import query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Guard", "is_out_of_locks", "over_their_share"]

_EVERY_S = 1.0
_TICK_TIMEOUT_S = 15.0
_RESERVE = 64
# Of the room there is for locks: what a fork's sessions may hold together, and what when there is none left.
_SHARE, _SHARE_WHEN_FULL = 2, 16
_END_TIMEOUT_MS = 5000
_FULL = "the server had no room for another lock while it was in use"
_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


def is_out_of_locks(error: BaseException) -> bool:
    """Whether an error, or what caused it, is the server's having no room for another lock."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, asyncpg.OutOfMemoryError):
            return True
        link = link.__cause__
    return False


def over_their_share(held: dict[int, int], *, capacity: int) -> list[int]:
    """The roles that hold more locks than one may, the worst first. Pure.

    Args:
        held: how many locks the sessions of each role hold, by the role's number.
        capacity: how many the server has room for.
    """
    full = sum(held.values()) >= capacity
    most = capacity // (_SHARE_WHEN_FULL if full else _SHARE)
    return sorted((role for role, locks in held.items() if locks > most), key=lambda role: -held[role])


class Guard:
    """One session that watches. One task looks regularly; who met a full table has it look at once."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], *, told: Callable[[str, str | None], None]
    ) -> None:
        """Connects nowhere yet.

        Args:
            connect: opens an administration session in the registry's database.
            told: called with what happened, in words, and with the fork whose sessions were ended; with None
                when the server had no room for anybody's locks.
        """
        self._connect = connect
        self._told = told
        self._session: asyncpg.Connection | None = None
        self._capacity = 0
        self._reserved = False
        # One look at a time: they share a session.
        self._looking = anyio.Lock()

    async def run(self) -> None:
        """Look about once a second, until cancelled."""
        try:
            while True:
                await self.look()
                await anyio.sleep(_EVERY_S * random.uniform(0.8, 1.0))  # noqa: S311 - spreads launchers
        finally:
            if self._session is not None:
                await _pg.close(self._session)

    async def look(self) -> None:
        """End whoever holds too many locks. A server that does not answer is told by others."""
        async with self._looking:
            try:
                with anyio.fail_after(_TICK_TIMEOUT_S):
                    await self._look()
            except (*_LOST, ServerUnavailable) as error:
                if is_out_of_locks(error):
                    self._told(_FULL, None)
                    return  # the session is as good as before
                self._cut()
            except BaseException:
                self._cut()  # cancelled in the middle: what the session does now is not known
                raise

    async def _look(self) -> None:
        session = await self._ready()
        try:
            rows = await session.fetch(query("guard_watch"))
        except asyncpg.OutOfMemoryError:
            # Who is no superuser needs some locks even to look: catalogs say what it may see of a role.
            self._told(_FULL, None)
            await self._rescue(session)
            rows = await session.fetch(query("guard_watch"))
        held = {row["role"]: row["locks"] for row in rows}
        full = sum(held.values()) >= self._capacity
        if roles := over_their_share(held, capacity=self._capacity):
            for name in await self._end(session, roles):
                self._told("it held so many of the server's locks that its sessions were ended", name)
        if full:
            self._told(_FULL, None)
        if not self._reserved:
            await session.execute(query("guard_reserve"), _RESERVE)
            self._reserved = True

    async def _ready(self) -> asyncpg.Connection:
        if self._session is None or self._session.is_closed():
            self._reserved = False
            self._session = await self._connect()
            self._capacity = await self._session.fetchval(query("guard_capacity"))
        return self._session

    async def _end(self, session: asyncpg.Connection, roles: list[int]) -> list[str]:
        """End the sessions of these roles, as far as they are forks'; returns whose they were."""
        numbers = ",".join(str(role) for role in roles)
        self._reserved = False
        # In one message, so that nobody takes the room in between. Roles are told by their number first: to
        # ask for the name of each would take more locks than there may be.
        await session.execute(
            "SELECT pg_advisory_unlock_all(); "
            f"SELECT pg_terminate_backend(a.pid, {_END_TIMEOUT_MS}) FROM pg_stat_get_activity(NULL) a "
            f"WHERE a.usesysid = ANY ('{{{numbers}}}'::oid[]) "
            f"AND pg_get_userbyid(a.usesysid)::text ~ {quote_literal(FORKS)}"
        )
        rows = await session.fetch(
            "SELECT rolname::text AS name FROM pg_roles WHERE oid = ANY ($1) AND rolname ~ $2", roles, FORKS
        )
        return [row["name"] for row in rows]

    async def _rescue(self, session: asyncpg.Connection) -> None:
        """Look and end in one message, with the room that was held in reserve."""
        self._reserved = False
        await session.execute(
            "SELECT pg_advisory_unlock_all(); "
            f"SELECT pg_terminate_backend(a.pid, {_END_TIMEOUT_MS}) FROM pg_stat_get_activity(NULL) a "
            f"JOIN ({query('guard_watch')}) h ON h.role = a.usesysid::bigint "
            f"WHERE h.locks > {self._capacity // _SHARE_WHEN_FULL} "
            f"AND pg_get_userbyid(a.usesysid)::text ~ {quote_literal(FORKS)}"
        )

    def _cut(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.terminate()
