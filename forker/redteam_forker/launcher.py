"""Who a launcher is, and the session by which the others see that it lives.

It holds an advisory lock for its life, in a session of its own: the server frees it the moment the process,
the connection or the machine dies, and no clock is involved. It also beats, by the server's clock, for the
case that the session was cut while its owner lives.
"""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_forker import _pg, database
from redteam_forker.errors import ForkUnavailable, ServerUnavailable
from redteam_forker.sql import query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redteam_forker.database import Creator

__all__ = ["Launcher", "Pace", "Process", "is_proven_dead", "own_process"]

_PROC = Path("/proc")
_STATE, _START = 0, 19  # fields of /proc/<pid>/stat after the name, in parentheses
# A peer that is gone without a word is noticed by the server, which then frees the lock, within about 25 s.
_KEEPALIVES = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 25000"
)
_LEAVE_TIMEOUT_S = 5.0
# An InternalClientError is what asyncpg raises when a session is cut while a statement is being prepared.
_LOST = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    ServerUnavailable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, so that another one on the same machine can tell that it has ended.

    Attributes:
        host: the machine's name, for people.
        place: the machine's boot and the process namespace; empty where the system tells neither.
        pid: used again after it ended, hence
        started: when it began, in the system's own count.
    """

    host: str
    place: str
    pid: int
    started: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a launcher shows that it lives, in seconds.

    Attributes:
        heartbeat_s: between two beats.
        grace_s: without a beat for so long, and without its lock, it has lost what no conversation uses.
        lease_s: and after so long its conversations' forks too.
    """

    heartbeat_s: float = 5.0
    grace_s: float = 15.0
    lease_s: float = 60.0


def own_process() -> Process:
    """This process."""
    pid = os.getpid()
    stat = _stat(pid)
    return Process(
        host=socket.gethostname(), place=_place(), pid=pid, started=stat[_START] if stat is not None else ""
    )


def is_proven_dead(process: Process) -> bool:
    """Whether `process` was on this machine, since its last boot, and is no more; False if not known."""
    if not process.place or not process.started or process.place != _place():
        return False
    stat = _stat(process.pid)
    return stat is None or stat[_START] != process.started or stat[_STATE] in ("Z", "X")


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


class Launcher:
    """The launcher's own session, lock and beat. One task beats; who hands out forks asks `ensure_held`."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[asyncpg.Connection]],
        pace: Pace,
        *,
        returned: Callable[[asyncpg.Connection, int], Awaitable[None]],
    ) -> None:
        self.id = 0
        self.fault: str | None = None
        self._connect = connect
        self._pace = pace
        self._returned = returned
        self._session: asyncpg.Connection | None = None
        self._former: Creator | None = None
        self._beaten = float("-inf")
        self._used: set[str] = set()
        # One statement at a time on the session.
        self._beating = anyio.Lock()

    async def enter(self) -> None:
        """Take a new id and its lock.

        Raises:
            ServerUnavailable: the server did not do it.
        """
        with _pg.translated("cannot register as a launcher", ServerUnavailable):
            try:
                await self._take_session()
                await self._register()
            except BaseException:
                self._cut()
                raise
        self._beaten = anyio.current_time()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await anyio.sleep(self._pace.heartbeat_s * random.uniform(0.8, 1.0))  # noqa: S311 - spreads beats
            await self.beat()

    async def ensure_held(self) -> None:
        """Make sure that nobody can have declared us gone.

        Raises:
            ForkUnavailable: the registry cannot be reached now, or does not know us.
        """
        if self.fault is not None or self._age_s() > self._pace.grace_s / 2:
            await self.beat()
        if self.fault is not None:
            raise ForkUnavailable(
                f"no fork is handed out while the registry is out of reach: {self.fault}", retryable=True
            )

    async def beat(self) -> None:
        """Renew once; what keeps us from it is in `fault` until a later beat succeeds."""
        asked = anyio.current_time()
        async with self._beating:
            if self.fault is None and self._beaten > asked:
                return  # somebody else's beat, while we waited for our turn
            began = anyio.current_time()
            try:
                with anyio.fail_after(max(self._pace.grace_s / 2, 1.0)):
                    await self._renew()
            except _LOST as error:
                self.fault = _reason(error)
                self._cut()
            except BaseException:
                self._cut()  # cancelled in the middle: what the session does now is not known
                raise
            else:
                self.fault, self._beaten = None, began

    async def use(self, template: str) -> None:
        """Have others see that a template is in use, as long as we live.

        A session that is lost takes that along; the beat that gets a new one says it again.
        """
        self._used.add(template)
        async with self._beating:
            try:
                if self._session is not None and not self._session.is_closed():
                    await self._session.execute(query("template_used"), template)
            except _LOST as error:
                self.fault = _reason(error)
                self._cut()
            except BaseException:
                self._cut()
                raise

    async def leave(self) -> None:
        """Free the lock, and say that what is left is nobody's. Works in a cancelled scope too.

        A registry that cannot be reached learns it from the lock and the beat.
        """
        session, self._session = self._session, None
        if session is None:
            return
        with anyio.move_on_after(_LEAVE_TIMEOUT_S, shield=True):
            try:
                await session.execute(query("launcher_close"), self.id)
                await session.execute(query("launcher_forget"), self.id)
            except _LOST:
                session.terminate()
        await _pg.close(session)

    def _age_s(self) -> float:
        return anyio.current_time() - self._beaten

    async def _renew(self) -> None:
        returned = self._session is None or self._session.is_closed()
        if returned:
            await self._take_session()
        assert self._session is not None
        if returned and not await self._session.fetchval(query("launcher_lock"), self.id):
            raise ServerUnavailable(f"the lock of launcher {self.id} is still held by its former session")
        row = await self._session.fetchrow(query("launcher_beat"), self.id, self._pace.lease_s)
        if row is None:
            # We were away for so long that we were given up, and nothing of ours is left.
            await self._register()
            returned = True
        elif not row["locked"]:
            raise ServerUnavailable(
                "the session lost its lock; name the server itself, not a pooler of transactions before it"
            )
        if returned:
            for template in self._used:
                await self._session.execute(query("template_used"), template)
            await self._returned(self._session, self.id)

    async def _take_session(self) -> None:
        session = await self._connect()
        try:
            await session.execute(_KEEPALIVES)
            if self._former is not None:
                # A connection that is half open holds the lock until the server notices.
                await database.end_session(session, self._former)
            self._former = await database.creator_of(session)
        except BaseException:
            session.terminate()
            raise
        self._session = session

    async def _register(self) -> None:
        assert self._session is not None
        locked = False
        while not locked:
            # An id can be in use after a registry was dropped and made anew below a launcher.
            self.id = await self._session.fetchval("SELECT nextval('forker.launcher_ids')::int")
            locked = await self._session.fetchval(query("launcher_lock"), self.id)
        own = own_process()
        await self._session.execute(
            query("launcher_enter"),
            self.id,
            own.host,
            own.place,
            own.pid,
            own.started,
            self._pace.grace_s,
            self._pace.lease_s,
        )

    def _cut(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.terminate()


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the server did not answer in time"
    if isinstance(error, asyncpg.PostgresError):
        return str(error.args[0])
    return str(error) or type(error).__name__
