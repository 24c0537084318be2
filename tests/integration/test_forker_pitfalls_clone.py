"""What CREATE DATABASE ... TEMPLATE copies, and what it loses: a fork has both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.databases import connected
from support.forks import connected_as, made_fork, made_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_SEED = """
CREATE EXTENSION hstore;
CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, owner_name text);
INSERT INTO item (name, owner_name) SELECT 'n' || g, 'copier' FROM generate_series(1, 41) g;
CREATE INDEX item_name ON item (name);
CREATE UNLOGGED TABLE loose (v int);
INSERT INTO loose VALUES (1), (2);
ALTER TABLE item ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON item TO copier USING (owner_name = 'copier');
GRANT SELECT, INSERT (name) ON item TO copier;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO copier;
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql AS 'SELECT $1 * 2';
CREATE FUNCTION noted() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN NULL; END $$;
CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION noted();
CREATE PUBLICATION feed FOR TABLE item;
SELECT lo_from_bytea(4711, 'large');
SELECT setval('item_id_seq', 77);
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET search_path = pg_catalog, public', current_database());
  EXECUTE format('ALTER DATABASE %I SET work_mem = %L', current_database(), '7MB');
  EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 3', current_database());
  EXECUTE format('ALTER ROLE copier IN DATABASE %I SET timezone = %L', current_database(), 'Asia/Tokyo');
END $$;
"""


@dataclass(frozen=True)
class Copied:
    template: Template
    fork: Fork
    again: Fork


@pytest.fixture(scope="module")
async def copied(server: Server) -> AsyncIterator[Copied]:
    async with (
        made_template(server, _SEED, role="copier") as template,
        made_fork(server, template) as fork,
        made_fork(server, template) as again,
    ):
        yield Copied(template=template, fork=fork, again=again)


# What a clone copies: read in the baseline and in a fork, both of them clones, and known from the seed.
_SAME = {
    "rows": ("SELECT count(*), max(id), min(name) FROM item", (41, 41, "n1")),
    "rows of an unlogged table": ("SELECT count(*) FROM loose", (2,)),
    "large objects": ("SELECT convert_from(lo_get(4711), 'UTF8')", ("large",)),
    "indexes": ("SELECT count(*) FROM pg_index i WHERE i.indrelid = 'item'::regclass AND indisvalid", (2,)),
    "extensions": ("SELECT extname FROM pg_extension WHERE extname = 'hstore'", ("hstore",)),
    "functions": ("SELECT public.twice(21)", (42,)),
    "event triggers": ("SELECT evtname, evtenabled::text FROM pg_event_trigger", ("note", "O")),
    "publications": ("SELECT pubname FROM pg_publication", ("feed",)),
    # P27: equal in all forks, so the ids that forks give out are too.
    "sequence values": ("SELECT last_value FROM item_id_seq", (77,)),
    # P56: privileges on objects are the template's, to the last letter.
    "privileges": (
        "SELECT (SELECT relacl::text FROM pg_class WHERE relname = 'item') LIKE '%copier=r/%',"
        " (SELECT attacl::text FROM pg_attribute WHERE attrelid = 'item'::regclass AND attname = 'name')",
        (True, "{copier=a/rt_admin}"),
    ),
    "default privileges": ("SELECT defaclacl::text LIKE '%copier=r/%' FROM pg_default_acl", (True,)),
    # P57: owners stay, so that row-level security holds whom it held.
    "policies and owners": (
        "SELECT relrowsecurity, relowner::regrole::text, (SELECT count(*) FROM pg_policy)"
        " FROM pg_class WHERE relname = 'item'",
        (True, "rt_admin", 1),
    ),
    "what the planner knows": ("SELECT reltuples::int FROM pg_class WHERE relname = 'item'", (41,)),
    # P19: never named in a clone, always inherited.
    "encoding and collation": (
        "SELECT pg_encoding_to_char(encoding)::text, datlocprovider::text, datlocale::text, datcollate::text"
        " FROM pg_database WHERE datname = current_database()",
        ("UTF8", "b", "C.UTF-8", "C"),
    ),
    # P25: `ALTER DATABASE ... SET` is lost in a clone, and given again.
    "settings of the database": (
        "SELECT current_setting('search_path'), current_setting('work_mem')",
        ("pg_catalog, public", "7MB"),
    ),
}


@pytest.mark.parametrize("what", _SAME)
async def test_baseline_and_forks_have_what_the_seed_made(server: Server, copied: Copied, what: str) -> None:
    query, expected = _SAME[what]
    for name in (copied.template.baseline, copied.fork.name, copied.again.name):
        async with connected(server, name) as session:
            assert tuple(await session.fetchrow(query)) == expected


# What a clone does not copy, or copies as PostgreSQL's default: read in the fork's row of pg_database.
_OWN = {
    "owner": ("SELECT datdba::regrole::text FROM pg_database WHERE datname = $1", "rt_admin"),  # P34
    # P24: a limit on the database would count our own sessions.
    "connection limit": ("SELECT datconnlimit FROM pg_database WHERE datname = $1", -1),
    "is a template": ("SELECT datistemplate FROM pg_database WHERE datname = $1", False),
    "lets in": ("SELECT datallowconn FROM pg_database WHERE datname = $1", True),
    "comment": (
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1",
        None,
    ),
    # P26: each clone lets everybody in again.
    "rights of everybody": (
        "SELECT count(*) FROM pg_database d, aclexplode(coalesce(datacl, acldefault('d', datdba))) a"
        " WHERE datname = $1 AND a.grantee = 0",
        0,
    ),
    "rights of its role": (
        "SELECT string_agg(a.privilege_type, ' ' ORDER BY a.privilege_type)"
        " FROM pg_database d, aclexplode(datacl) a WHERE datname = $1 AND a.grantee = $1::regrole",
        "CONNECT TEMPORARY",
    ),
    "subscriptions": ("SELECT count(*) FROM pg_subscription WHERE $1 <> ''", 0),
    # P73: nothing is replicated, so nothing can hold a fork or its log back.
    "replication slots": ("SELECT count(*) FROM pg_replication_slots WHERE database = $1", 0),
    "prepared transactions": ("SELECT count(*) FROM pg_prepared_xacts WHERE database = $1", 0),
}


@pytest.mark.parametrize("what", _OWN)
async def test_a_fork_has_what_a_clone_gets_wrong(server: Server, copied: Copied, what: str) -> None:
    query, expected = _OWN[what]
    async with connected(server, copied.fork.name) as session:
        assert await session.fetchval(query, copied.fork.name) == expected


async def test_settings_of_the_application_reach_the_forks_role(copied: Copied) -> None:
    # P25: `ALTER ROLE ... IN DATABASE ... SET` names a database and a role, and a fork has another of each.
    async with connected_as(copied.fork) as agent:
        shown = [await agent.fetchval(f"SHOW {name}") for name in ("timezone", "work_mem", "search_path")]
    assert shown == ["Asia/Tokyo", "7MB", "pg_catalog, public"]


async def test_a_fork_is_new_in_name_secret_and_place(server: Server, copied: Copied) -> None:
    # P30: clients keep plans and types by database name, so none is used twice. P55: nor is a password.
    fork, again = copied.fork, copied.again
    async with connected(server) as session:
        rows = await session.fetch(
            "SELECT oid FROM pg_database WHERE datname = ANY($1::text[])", [fork.name, again.name]
        )
    assert len({row["oid"] for row in rows}) == 2
    assert fork.name != again.name
    assert fork.password != again.password


async def test_objects_keep_their_identity_in_every_clone(server: Server, copied: Copied) -> None:
    """Change sets rely on it: a table's oid, file and rows are where the baseline has them (P66, P67)."""

    async def places(session: asyncpg.Connection) -> list[tuple[object, ...]]:
        query = (
            "SELECT oid, relfilenode FROM pg_class WHERE relkind IN ('r', 'S') AND oid >= 16384 ORDER BY 1"
        )
        rows = [tuple(row) for row in await session.fetch(query)]
        return rows + [tuple(row) for row in await session.fetch("SELECT xmin, ctid FROM item ORDER BY id")]

    async with (
        connected(server, copied.template.baseline) as baseline,
        connected(server, copied.fork.name) as fork,
    ):
        assert await places(baseline) == await places(fork)
