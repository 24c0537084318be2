"""Room where the data lies, while forks are made: below a low-water mark none is; old templates go first.

A disk that fills up in the middle of a copy leaves half a database, and one on which the log cannot grow ends
the server for all. So who makes forks asks first (P22).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from redteam_forker import _pg
from redteam_forker.budget import fork_cost_bytes
from redteam_forker.errors import ForkUnavailable, ServerUnavailable
from redteam_forker.ledger import builders_lock_nowait
from redteam_forker.servers.trim import drop_unused
from redteam_forker.storage import find_storage

if TYPE_CHECKING:
    import asyncpg

    from redteam_forker.servers.server import Server
    from redteam_forker.storage import Storage

__all__ = ["LOW_WATER_BYTES", "Room"]

_MIB = 1 << 20
# Half of what a launch's plan leaves alone at least: the rest goes only if more was written than planned.
LOW_WATER_BYTES = 128 * _MIB
# Looking costs as much as a small statement; forks are made at most some hundred times a second.
_FRESH_S = 0.1


class Room:
    """How much is left for a server's data. Where that is not on this machine, nothing is refused."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._storage: Storage | None = None
        self._free: int | None = None
        self._looked = float("-inf")

    async def ensure(self, template_bytes: int) -> None:
        """Make sure that there is room for a fork; old templates make way if there is not.

        Args:
            template_bytes: the size of its template.

        Raises:
            ForkUnavailable: it would leave less than `LOW_WATER_BYTES`.
            ServerUnavailable: the server cannot be asked where its data is.
        """
        needed = fork_cost_bytes(self._server.facts, template_bytes)
        if await self._has(needed):
            return
        await self.make(needed)
        if await self._has(needed, now=True):
            return
        assert self._storage is not None
        assert self._free is not None
        where = "of memory " if self._storage.file_system == "tmpfs" else ""
        raise ForkUnavailable(
            f"no fork is made: {self._free // _MIB} MB {where}are free in {self._storage.directory}, and a "
            f"fork may take {needed // _MIB} MB and must leave {LOW_WATER_BYTES // _MIB} MB; make room, "
            "or drop forks that were kept (redteam forks list, redteam forks drop)",
            retryable=True,
        )

    async def make(self, wanted_bytes: int, *, held: asyncpg.Connection | None = None) -> list[str]:
        """Drop templates that nobody uses, the least recently used first, until so much more would fit.

        Only where we can see how much is free, and when a template was used last. A template is in use while
        one of its forks is there, or a launch that found or built it lives.

        Args:
            wanted_bytes: how much.
            held: the session that holds the builders' lock, if it is ours.

        Returns:
            The names of those that were dropped.

        Raises:
            ServerUnavailable: the server did not do it.
        """
        if not self._server.facts.superuser or await self._has(wanted_bytes, now=True):
            return []
        assert self._free is not None
        short = wanted_bytes + LOW_WATER_BYTES - self._free
        with _pg.translated("cannot make room by dropping old templates", ServerUnavailable):
            if held is not None:
                return await drop_unused(held, self._server, short)
            async with builders_lock_nowait(self._server) as connection:
                if connection is None:
                    return []  # somebody builds now, and makes room for that
                return await drop_unused(connection, self._server, short)

    async def _has(self, needed: int, *, now: bool = False) -> bool:
        if self._storage is None:
            self._storage = await find_storage(self._server)
        if now or anyio.current_time() > self._looked + _FRESH_S:
            self._free, self._looked = self._storage.left(), anyio.current_time()
        return self._free is None or self._free >= needed + LOW_WATER_BYTES
