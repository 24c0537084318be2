"""Which databases a fork's role may enter besides its fork, on a server that is not ours: refused by default.

There the grants are the only wall, and a fork's role has all that everybody has and all that the
application's has. Whatever it could enter may be production, where connecting alone is enough to wake a
listener or to take a lock that others wait for. So each such database must be allowed by its name, except
those that every server has, as long as nobody has put anything into them
(docs/decisions/0005-what-a-fork-may-reach.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_forker import _pg
from redteam_forker.errors import ForkUnavailable, ServerUnavailable
from redteam_forker.sql import query
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import asyncpg

    from redteam_forker.servers.server import Server, ServerFacts

__all__ = ["check_reach", "check_reached"]

_OURS = "^rt_([a-z2-7]{4}_[a-z2-7]{8}_[a-z2-7_]+|registry)$"
_EVERY_SERVERS = frozenset({"postgres", "template1"})


async def check_reach(server: Server, role: str | None) -> None:
    """Make sure that forks with the rights of an application's role could enter no database that is not ours.

    On a server of ours pg_hba.conf sees to it, whatever the grants are.

    Args:
        server: where the forks are to be.
        role: the application's; None: the forks' roles may what everybody may.

    Raises:
        UsageError: they could; says which databases, why, and the ways out.
        ServerUnavailable: the server cannot be asked.
    """
    if server.facts.ours:
        return
    doing = "cannot ask the server which databases forks could enter"
    found: list[str] = []
    with _pg.translated(doing, ServerUnavailable):
        async with server.maintenance() as connection:
            for row in await connection.fetch(query("reachable"), role, _OURS):
                name = row["name"]
                if name in server.facts.allowed_databases:
                    continue
                holds = ""
                if row["here"] or name in _EVERY_SERVERS:
                    held = await _held(server, name, connection if row["here"] else None)
                    if held is None:
                        continue
                    holds = f", and {held}"
                who = "everybody" if row["public"] else f"role {role!r}"
                found.append(f"{name!r} ({who} may connect to it{holds})")
    if found:
        raise UsageError(_refusal(server.facts, role, found))


def check_reached(facts: ServerFacts, name: str, reaches: Iterable[str]) -> None:
    """Make sure that a fork's role, as measured, can enter nothing that `check_reach` would have refused.

    Args:
        facts: the server's.
        name: the fork's.
        reaches: the databases that it may connect to.

    Raises:
        ForkUnavailable: somebody has given it, or everybody, more meanwhile.
    """
    known = {name, facts.maintenance, *_EVERY_SERVERS, *facts.allowed_databases}
    more = sorted(set(reaches) - known)
    if more:
        raise ForkUnavailable(
            f"fork {name!r} is not used: its role may connect to {', '.join(map(repr, more))}, which nobody "
            "allowed; somebody gave it, its application's role or everybody that right since the launch began"
        )


async def _held(server: Server, name: str, session: asyncpg.Connection | None) -> str | None:
    """What somebody put into one of the databases that every server has, in words; None if nothing."""
    if session is not None:
        held = await session.fetchval(query("somebodys_own"))
    else:
        try:
            # A moment only: as long as somebody is in template1, no database can be made of it (P02).
            session = await server.connect(name)
        except ServerUnavailable:
            return "it cannot be looked into"
        try:
            held = await session.fetchval(query("somebodys_own"))
        finally:
            await _pg.close(session)
    return None if held is None else f"it holds {held}"


def _refusal(facts: ServerFacts, role: str | None, found: list[str]) -> str:
    instead = "" if role is None else f", or a role that was made for this in the place of {role!r}"
    return (
        f"forks on the server at {facts.host}:{facts.port} could enter databases that are not theirs: "
        f"{'; '.join(found)}. Nothing may go where production may be. Use a server that holds nothing else "
        f"(the embedded one, or a container){instead}; or REVOKE CONNECT ON DATABASE ... there; or, if forks "
        "may enter it, allow it by name: --allow-database NAME (redteam_allow_databases in pytest)"
    )
