"""What a seed needs of a server, asked before anything is loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from pglast import parse_sql
from pglast.parser import ParseError

from redteam_forker import _pg
from redteam_forker.errors import SeedError
from redteam_forker.seeds.bodies import calls_of
from redteam_forker.seeds.flags import way_by_flag
from redteam_forker.seeds.lint import lint
from redteam_forker.seeds.stand_ins import LACKING, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redteam_forker.seeds.lint import Lint
    from redteam_forker.seeds.script import Seed
    from redteam_forker.servers.server import Server

__all__ = ["Preflight", "preflight"]

_AVAILABLE = """
SELECT e.name::text AS name, e.default_version AS version,
       coalesce(bool_or(NOT v.superuser OR v.trusted), true) AS trusted
FROM pg_catalog.pg_available_extensions e
LEFT JOIN pg_catalog.pg_available_extension_versions v ON v.name = e.name AND v.version = e.default_version
WHERE e.name = ANY ($1) GROUP BY e.name, e.default_version
"""

_CONTRIB = "PostgreSQL's own packages have it: image postgres:18, Debian's postgresql-18"
# Where an extension that the embedded server lacks can be had: images, since that is what --server is started
# from.
_HOMES = {
    "age": "image apache/age",
    "hypopg": "Debian's postgresql-18-hypopg",
    "pg_graphql": "image supabase/postgres",
    "pg_partman": "Debian's postgresql-18-partman",
    "pg_repack": "Debian's postgresql-18-repack",
    "pgaudit": "Debian's postgresql-18-pgaudit",
    "pgcrypto": _CONTRIB,
    "pgjwt": "image supabase/postgres",
    "pgmq": "image supabase/postgres",
    "pgroonga": "image groonga/pgroonga",
    "pgrouting": "image pgrouting/pgrouting",
    "pgsodium": "image supabase/postgres",
    "pgtap": "Debian's postgresql-18-pgtap",
    "plv8": "image supabase/postgres",
    "postgis": "image postgis/postgis",
    "postgis_raster": "image postgis/postgis",
    "postgis_tiger_geocoder": "image postgis/postgis",
    "postgis_topology": "image postgis/postgis",
    "sslinfo": _CONTRIB,
    "supabase_vault": "image supabase/postgres",
    "timescaledb": "image timescale/timescaledb",
    "uuid-ossp": _CONTRIB,
    "vector": "image pgvector/pgvector",
    "wrappers": "image supabase/postgres",
    "xml2": _CONTRIB,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What a server lacks of what a seed needs.

    Attributes:
        missing: names of extensions that the server lacks and nothing stands in for.
        stand_ins: names of extensions that functions stand in for.
        left_out: names of missing extensions that are left out, as `missing-extension` allows.
        unknown_settings: names of settings that the seed sets, that the server does not have, and that do no
            harm.
        notes: in words, what else is different there.
        versions: `name version` of each extension that the seed creates and the server has.
        problems: why the seed is not loaded there: file, line, reason and way out of each.
    """

    missing: tuple[str, ...] = ()
    stand_ins: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unknown_settings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    def check(self) -> None:
        """Refuse the seed if there are problems.

        Raises:
            SeedError: all of them.
        """
        if self.problems:
            raise SeedError("\n".join(self.problems))

    @property
    def digest(self) -> str:
        """A hash of all that the server decides of what the seed becomes there; empty if that is nothing."""
        parts = [sorted(self.versions), sorted(self.replaced.items()), sorted(self.unknown_settings)]
        if not any(parts):
            return ""
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def replaced(self) -> Mapping[str, str | None]:
        """For each extension that is not created, what is run instead on one line, or None."""
        return {name: one_line(name) for name in self.stand_ins} | dict.fromkeys(self.left_out)


async def preflight(server: Server, seed: Seed) -> Preflight:
    """Ask a server for what a seed needs. Nothing is changed.

    Raises:
        SeedError: the seed is refused as it is, whatever the server.
        ServerUnavailable: the server cannot be asked.
    """
    checked = await anyio.to_thread.run_sync(lint, seed)
    wanted: dict[str, str] = {}
    for use in checked.extensions:
        if not use.comment:
            wanted.setdefault(use.name, use.place)
    settings = {name for script in checked.scripts for name, _ in script.optional}
    async with server.maintenance() as session:
        with _pg.translated("cannot ask the server for its extensions"):
            rows = await session.fetch(_AVAILABLE, list(wanted))
            known = await session.fetch("SELECT name FROM pg_settings WHERE name = ANY ($1)", list(settings))
    there = {row["name"]: row["trusted"] for row in rows}
    unknown = tuple(sorted(settings - {row["name"] for row in known}))
    absent = [name for name in wanted if name not in there]
    left_out = tuple(name for name in absent if name not in LACKING and "missing-extension" in seed.allow)
    stand_ins = tuple(name for name in absent if name in LACKING)
    missing = tuple(name for name in absent if name not in (*left_out, *stand_ins))
    problems = [_missing(server, name, wanted[name]) for name in missing]
    problems += [
        f"{wanted[name]}: extension {name!r} may be created by a superuser only, and our role here "
        "is none; create it in template1, or name another server with --server"
        for name, trusted in there.items()
        if not trusted and not server.facts.superuser
    ]
    if stand_ins:
        problems += await anyio.to_thread.run_sync(_uses_of_what_lacks, checked, stand_ins)
    version = server.facts.version.partition(".")[0]
    return Preflight(
        missing=missing,
        stand_ins=stand_ins,
        left_out=left_out,
        unknown_settings=unknown,
        versions=tuple(f"{row['name']} {row['version']}" for row in rows),
        notes=tuple(
            [f"functions stand in for extension {name}" for name in stand_ins]
            + [f"extension {name} is left out" for name in left_out]
            + [f"SET {name} is left out: PostgreSQL {version} has no such setting" for name in unknown]
        ),
        problems=tuple(problems),
    )


def _missing(server: Server, name: str, place: str) -> str:
    which = "the embedded server" if server.facts.kind == "embedded" else "this server"
    home = _HOMES.get(name, "its own documentation says where to get it")
    return (
        f"{place}: {which} (PostgreSQL {server.facts.version}) lacks extension {name!r} ({home}); "
        f"name a server that has it with --server{way_by_flag('missing-extension')}"
    )


def _uses_of_what_lacks(checked: Lint, stand_ins: tuple[str, ...]) -> list[str]:
    """Calls, outside of functions' bodies, of what a stand-in cannot do; those inside fail when run."""
    problems = []
    for script in checked.scripts:
        for piece in script.pieces:
            for name in stand_ins if piece.meta is None else ():
                if not LACKING[name].search(piece.text):
                    continue
                called = sorted({call for call in _called(piece.text) if LACKING[name].fullmatch(call)})
                problems += [
                    f"{script.file.place(piece.line)}: {call}() is what the stand-in for extension {name!r} "
                    f"lacks; name a server that has the extension with --server ({_HOMES[name]})"
                    for call in called
                ]
    return problems


def _called(sql: str) -> Iterator[str]:
    try:
        statements: list[Any] = [raw.stmt for raw in parse_sql(sql)]
    except ParseError:  # psql variables are in it
        return
    for statement in statements:
        yield from (name.rpartition(".")[2].lower() for name in calls_of(statement))
