"""What only a kept cluster needs: old templates go, and shared catalogs are vacuumed."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import asyncpg

from redteam_forker import _pg, database
from redteam_forker.errors import ServerUnavailable
from redteam_forker.sql import query

if TYPE_CHECKING:
    from redteam_forker.servers.server import Server

__all__ = ["drop_unused", "trim", "vacuum_shared_catalogs"]

# Each fork writes rows in all of them, and throwaway settings have no autovacuum (P78).
_SHARED_CATALOGS = (
    "pg_authid, pg_auth_members, pg_database, pg_db_role_setting, pg_shdepend, pg_shdescription"
)


async def vacuum_shared_catalogs(server: Server) -> None:
    """Free what dropped forks left in the catalogs that all databases share; some milliseconds.

    Raises:
        ServerUnavailable: the server did not do it.
    """
    with _pg.translated("cannot vacuum the shared catalogs", ServerUnavailable):
        async with server.maintenance() as connection:
            await connection.execute(f"VACUUM {_SHARED_CATALOGS}")


async def trim(server: Server, limit_bytes: int) -> list[str]:
    """Drop templates, the least recently used first, until all databases together are within a limit.

    Templates that have forks stay, and so do the forks. Only for whoever is alone on the server.

    Returns:
        The names of the templates that were dropped.

    Raises:
        ServerUnavailable: the server did not do it.
    """
    with _pg.translated("cannot drop old templates", ServerUnavailable):
        connection = await server.connect()
        try:
            excess = await connection.fetchval(query("databases_size")) - limit_bytes
            return await drop_unused(connection, server, excess) if excess > 0 else []
        finally:
            await _pg.close(connection)


async def drop_unused(connection: asyncpg.Connection, server: Server, wanted_bytes: int) -> list[str]:
    """Drop templates that nobody uses, the least recently used first, until they took up so much.

    Args:
        connection: a session that holds the builders' lock, unless we are alone on the server.
        server: whose.
        wanted_bytes: how much.

    Returns:
        Their names.

    Raises:
        asyncpg.PostgresError: as it comes; not for who is no superuser.
    """
    dropped: list[str] = []
    for row in await connection.fetch(query("unused_templates"), f"rt_{server.facts.instance}_"):
        if wanted_bytes <= 0:
            break
        if not await connection.fetchval(query("template_is_idle"), row["name"]):
            continue
        for name in (row["baseline"], row["name"]):
            await database.drop(connection, server, name)
        stem = row["name"].removesuffix("template")
        for role in (f"{stem}app", f"{stem}owner", *_made_roles(row["facts"])):
            with contextlib.suppress(asyncpg.DependentObjectsStillExistError):
                await database.drop_role(connection, role)
        dropped.append(row["name"])
        wanted_bytes -= row["size_bytes"]
    return dropped


def _made_roles(facts: str | None) -> list[str]:
    """The roles that were made for a template, from the facts kept with it."""
    try:
        return [str(name) for name in json.loads(facts or "{}").get("created_roles", ())]
    except (ValueError, AttributeError):
        return []
