"""What a server is asked for an attestation: whether a fork is gone, and where its role gets in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redteam_forker import Fork, Server

__all__ = ["left_of", "try_walls"]

_ASK_S = 10.0
_LEFT = """
    SELECT 'database' AS what FROM pg_catalog.pg_database WHERE datname = $1
    UNION ALL
    SELECT 'role' FROM pg_catalog.pg_roles WHERE rolname = $1
"""


async def left_of(server: Server, name: str) -> tuple[str, ...]:
    """What in the catalog still bears a fork's name: `database`, `role`, both, or nothing.

    Raises:
        EnvironmentFault: the server could not be asked.
    """
    try:
        with anyio.fail_after(_ASK_S):
            async with server.maintenance() as connection:
                return tuple(row["what"] for row in await connection.fetch(_LEFT, name))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:  # TimeoutError is an OSError
        what = f"{type(error).__name__}: {error}"
        raise EnvironmentFault(f"the catalog could not be asked for {name!r}: {what}") from error


async def try_walls(fork: Fork, databases: Iterable[str]) -> dict[str, str]:
    """Try to enter databases by a fork's own role and password.

    Only for a server of ours: elsewhere a visit may wake a listener, or keep `CREATE DATABASE` waiting.

    Returns:
        By database: `refused`, or `entered`; another text is what came of the attempt instead.
    """
    found = {}
    for name in databases:
        found[name] = await _enter(fork, name)
    return found


async def _enter(fork: Fork, database: str) -> str:
    try:
        session = await asyncpg.connect(
            host=fork.host,
            port=fork.port,
            user=fork.user,
            password=fork.password,
            database=database,
            ssl=False,
            timeout=_ASK_S,
        )
    except (
        asyncpg.InvalidAuthorizationSpecificationError,  # pg_hba.conf; InvalidPasswordError is one, too
        asyncpg.InsufficientPrivilegeError,  # the grants
    ):
        return "refused"
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return f"not decided: {type(error).__name__}"
    await session.close(timeout=_ASK_S)
    return "entered"
