"""Where a server's data lies and how much room is left there, as far as that can be known for certain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import placement
from redteam_forker.sql import query

if TYPE_CHECKING:
    from redteam_forker.servers import Server, ServerFacts

__all__ = ["Storage", "find_storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where the server's data lies.

    Attributes:
        directory: the data directory as the server names it; None if our role may not know.
        file_system: its type, for example `ext4`; None if the directory is not known to be on this machine.
        clones: whether forks share their template's blocks there.
        free_bytes: room for forks; None where the directory cannot be seen.
    """

    directory: str | None
    file_system: str | None
    clones: bool
    free_bytes: int | None

    def left(self) -> int | None:
        """Room for forks now, in bytes, without asking the server; None where that cannot be seen."""
        if self.directory is None or self.file_system is None:
            return None
        return _left(Path(self.directory), self.file_system)


async def find_storage(server: Server) -> Storage:
    """Ask the server for its data directory and, if that is on this machine for certain, look at it.

    Raises:
        ServerUnavailable: the server cannot be asked.
    """
    with _pg.translated("cannot ask the server where its data is", ServerUnavailable):
        async with server.maintenance() as connection:
            directory = await connection.fetchval(query("data_directory"))
            started = await connection.fetchval(query("server_started")) if server.facts.superuser else None
    return await anyio.to_thread.run_sync(_storage, server.facts, directory, started)


def _storage(facts: ServerFacts, directory: str | None, started: float | None) -> Storage:
    """Look at the data directory, if it is on this machine for certain."""
    unseen = Storage(directory=directory, file_system=None, clones=False, free_bytes=None)
    if directory is None or not _is_here(facts, Path(directory), started):
        return unseen
    kind = facts.file_system or placement.file_system_of(Path(directory))
    free = _left(Path(directory), kind)
    return Storage(directory=directory, file_system=kind, clones=facts.clone, free_bytes=free)


def _left(directory: Path, file_system: str) -> int:
    free = placement.free_bytes(directory)
    return min(free, placement.available_memory()) if file_system == "tmpfs" else free


def _is_here(facts: ServerFacts, directory: Path, started: float | None) -> bool:
    """Whether a directory of this machine is the server's: a container's may bear the same name."""
    if facts.kind == "embedded":  # its directory is ours
        return True
    try:
        return started is not None and abs((directory / "postmaster.pid").stat().st_mtime - started) < 1
    except OSError:
        return False
