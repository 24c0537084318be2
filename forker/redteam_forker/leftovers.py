"""What builders that were killed left: templates half built, and the roles that were made for their seeds.

Found and removed under the builders' lock, which a builder holds as long as its session lives. So whatever is
half built while we have the lock is nobody's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from redteam_forker import database
from redteam_forker.sql import query
from redteam_forker.template import MADE_FOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_forker.servers.server import Server, ServerFacts

__all__ = ["Leftovers", "find_leftovers", "remove_leftover"]

_PARTS = ("template", "baseline", "app")


class Leftovers(NamedTuple):
    """Names of databases and roles, in the order in which they can be removed."""

    databases: tuple[str, ...]
    roles: tuple[str, ...]


async def find_leftovers(connection: asyncpg.Connection, facts: ServerFacts) -> Leftovers:
    """What is half built, in a session that holds the builders' lock."""
    ours = f"^rt_{facts.instance}_[a-z2-7]{{8}}_"
    rows = await connection.fetch(
        query("template_parts"), f"{ours}(template|baseline|app|build_[a-z2-7]{{10}})$"
    )
    forks = await connection.fetch(query("names_like"), f"{ours}[a-z2-7]{{16}}$")
    found = _half_built(rows, {_stem(row["name"]) for row in forks})
    made_for = await connection.fetch(
        query("roles_made_for"), MADE_FOR, f"rt_{facts.instance}_", list(found.databases)
    )
    roles = dict.fromkeys((*found.roles, *(row["name"] for row in made_for)))
    return Leftovers(found.databases, tuple(roles))


async def remove_leftover(
    connection: asyncpg.Connection, server: Server, leftovers: Leftovers, name: str
) -> bool:
    """Remove one of them, in order; False for a role that something still depends on, which stays.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    if name in leftovers.databases:
        await database.drop(connection, server, name)
        return True
    try:
        await database.drop_role(connection, name)
    except asyncpg.DependentObjectsStillExistError:
        return False
    return True


def _half_built(rows: Iterable[Mapping[str, object]], forked: set[str]) -> Leftovers:
    builds: list[str] = []
    stems: dict[str, dict[str, Mapping[str, object]]] = defaultdict(dict)
    for row in rows:
        name = str(row["name"])
        stem = _stem(name)
        part = name.removeprefix(stem)
        if part in _PARTS:
            stems[stem][part] = row
        else:
            builds.append(name)
    databases, groups = list(builds), list[str]()
    for stem, parts in stems.items():
        # A template whose forks live is in use, whatever somebody did to it.
        if _is_whole(parts) or stem in forked:
            continue
        databases += [stem + part for part in ("baseline", "template") if part in parts]
        groups += [stem + part for part in ("app",) if part in parts]
    return Leftovers(tuple(databases), tuple(groups))


def _is_whole(parts: Mapping[str, Mapping[str, object]]) -> bool:
    if any(part not in parts for part in _PARTS):
        return False
    baseline = parts["baseline"]
    readable = baseline["open"] and baseline["connection_limit"] != database.INVALID
    return bool(parts["template"]["sealed"] and readable)


def _stem(name: str) -> str:
    """`rt_abcd_efghijkl_` of any of its names."""
    return "_".join(name.split("_")[:3]) + "_"
