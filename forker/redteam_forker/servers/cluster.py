"""A server that runs: measured once, then a source of administration sessions and psql commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.names import instance_tag
from redteam_forker.servers.server import PsqlCommand, ServerFacts
from redteam_forker.servers.sessions import Sessions
from redteam_forker.sql import query

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import asyncpg

    from redteam_forker._pg import Target

__all__ = ["Cluster", "facts_of", "measure"]


class Cluster:
    """A `Server`: every kind ends up as one of these."""

    def __init__(self, *, facts: ServerFacts, target: Target, psql: Path) -> None:
        self._facts = facts
        self._target = target
        self._psql = psql
        self._sessions = Sessions(self.connect)

    def __repr__(self) -> str:
        return f"Cluster({self._facts.kind}, PostgreSQL {self._facts.version}, {self._target!r})"

    @property
    def facts(self) -> ServerFacts:
        """What was measured of it when it was opened."""
        return self._facts

    async def connect(self, database: str | None = None) -> asyncpg.Connection:
        """Open an administration session; without a name, on the maintenance database. The caller closes it.

        Raises:
            ServerUnavailable: no session can be had.
        """
        name = database or self._target.maintenance
        with _pg.translated(f"cannot connect to database {name!r} of the server", ServerUnavailable):
            return await _pg.connect(
                self._target,
                database,
                version_num=self._facts.version_num,
                superuser=self._facts.superuser,
            )

    async def close_to_public(self) -> None:
        """Take from everybody the two databases that they may enter otherwise, on a server of ours.

        pg_hba.conf forbids it there; grants must agree (P44).
        """
        async with self.maintenance() as connection:
            await connection.execute("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")

    def maintenance(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        """Lend an administration session on the maintenance database for one short operation.

        Raises:
            ServerUnavailable: no session can be had (on entering).
        """
        return self._sessions.borrow()

    async def aclose(self) -> None:
        """Close the sessions that were kept. Whoever opened the cluster calls it last."""
        await self._sessions.aclose()

    def psql(self, database: str) -> PsqlCommand:
        """The psql of PostgreSQL 18, aimed at one database. Its environment is whole: inherit nothing."""
        target = self._target
        settings = _pg.admin_settings(self._facts.version_num, superuser=self._facts.superuser)
        env = {
            "LC_ALL": "C",
            "PATH": "/usr/bin:/bin",
            "PGAPPNAME": settings.pop("application_name"),
            "PGCLIENTENCODING": settings.pop("client_encoding"),
            "PGCONNECT_TIMEOUT": str(int(_pg.CONNECT_TIMEOUT_S)),
            "PGDATABASE": database,
            "PGHOST": target.host,
            "PGOPTIONS": " ".join(
                f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items()
            ),
            "PGPORT": str(target.port),
            "PGSSLMODE": target.sslmode,
            "PGUSER": target.user,
        }
        if target.password is not None:
            env["PGPASSWORD"] = target.password
        else:
            env["HOME"] = os.path.expanduser("~")  # where libpq looks for a password file
        return PsqlCommand(argv=(str(self._psql), "-X", "-w"), env=env)


async def measure(target: Target, *, kind: str, placement: str) -> ServerFacts:
    """Connect once and ask the server what it is; the caller adds what it cannot know of its own files.

    Raises:
        asyncpg.PostgresError, OSError, TimeoutError: it cannot be reached; the caller says what that means.
    """
    connection = await _pg.connect(target)
    try:
        row = await connection.fetchrow(query("server_facts"))
    finally:
        await _pg.close(connection)
    return facts_of(row, target, kind=kind, placement=placement)


def facts_of(row: Mapping[str, Any], target: Target, *, kind: str, placement: str) -> ServerFacts:
    """The facts from the row of `server_facts`."""
    return ServerFacts(
        kind=kind,
        version=row["version"],
        version_num=row["version_num"],
        host=target.host,
        port=target.port,
        instance=instance_tag(row["identity"]),
        superuser=row["superuser"],
        placement=placement,
        connections=row["connections"],
        clone=row["clone"],
    )
