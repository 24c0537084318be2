"""What the rest of the room needs of a Postgres server, whichever kind it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    import asyncpg

__all__ = ["PsqlCommand", "Server", "ServerFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What was measured of a server when it was opened. Safe to print: no secret is in it.

    Attributes:
        kind: `embedded`, `docker` or `existing`.
        version: as the server says it, for example `18.6`.
        version_num: as the server says it, for example 180006.
        host: the directory of its socket, or a host name or address; what a context's allow-list must name.
        port: its port (for a socket, the number in the socket's name).
        instance: four letters that name this cluster, from its system identifier.
        superuser: whether our own role on it is a superuser.
        placement: where the data directory lies and why, in words; empty for a server that is not ours.
        connections: how many sessions it admits to roles that are no superuser.
        clone: whether a database is copied by `file_copy_method = clone`: tried out on a server of ours,
        taken from the server's own setting elsewhere.
        file_system: the name of the data directory's file system, for example `xfs`; empty if not known.
        shared: whether other launches may be using the same cluster, and it is kept when they are over.
        maintenance: the database that administration sessions are in when no other is meant.
        allowed_databases: of a server that is not ours, databases that forks' roles may be able to enter.
    """

    kind: str
    version: str
    version_num: int
    host: str
    port: int
    instance: str
    superuser: bool
    placement: str
    connections: int
    clone: bool = False
    file_system: str = ""
    shared: bool = False
    maintenance: str = "postgres"
    allowed_databases: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether settings and pg_hba.conf are ours, so that the cluster holds nothing but throwaway data."""
        return self.kind != "existing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PsqlCommand:
    """How to run psql as our own role on one database: arguments before the script, and its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Server(Protocol):
    """A running cluster on which templates and forks are made."""

    @property
    def facts(self) -> ServerFacts:
        """What was measured of it."""
        ...

    async def connect(self, database: str | None = None) -> asyncpg.Connection:
        """Open an administration session; without a name, on the maintenance database.

        All timeouts are off in it (P08), login event triggers too (P28), and text settings are pinned (P62).
        The caller closes it.
        """
        ...

    def maintenance(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        """Lend an administration session on the maintenance database for one short operation.

        It is used again afterwards, so the borrower leaves no lock, setting or open transaction in it, and
        does not close it. After an exception it is closed.
        """
        ...

    def psql(self, database: str) -> PsqlCommand:
        """The psql of PostgreSQL 18, aimed at one database of this server as our own role."""
        ...
