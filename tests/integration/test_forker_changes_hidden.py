"""Nothing that a conversation can do hides a change from the differ, distorts it, or makes it run code."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected, scratch_database

from redteam_forker.changes import before_schema
from redteam_forker.names import quote_ident, quote_literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from redteam_forker.changes import ChangeSet
    from redteam_forker.servers import Server

_SCHEMA = """
CREATE TABLE visits (
  id int PRIMARY KEY, note text, at timestamptz, took interval, ratio float8, raw bytea, cost money
);
INSERT INTO visits SELECT g, 'n' || g, '2026-01-01 12:00+00', '1 day 2 h', 0.1, '\\xdead', 1.5
FROM generate_series(1, 5) g;
CREATE TABLE loose (v text);
INSERT INTO loose VALUES ('a'), ('b');
"""
_WRITE = "UPDATE visits SET note = 'other' WHERE id = 2; DELETE FROM loose WHERE v = 'a'"


@pytest.fixture(scope="module")
async def baseline(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, _SCHEMA) as name:
        yield name


@pytest.fixture
async def fork(server: Server, baseline: str) -> AsyncIterator[Clone]:
    async with cloned(server, baseline) as clone:
        yield clone


def rows_in(changes: ChangeSet) -> list[tuple[object, ...]]:
    return [
        (table.schema, table.table, row.op, row.changed, dict(row.old or {}), dict(row.new or {}))
        for table in changes.tables
        for row in table.rows
    ]


_OLD = {
    "id": "2",
    "note": "n2",
    "at": "2026-01-01 12:00:00+00",
    "took": "1 day 02:00:00",
    "ratio": "0.1",
    "raw": "\\xdead",
    "cost": "$1.50",
}
_ROWS = [
    ("public", "loose", "delete", (), {"v": "a"}, {}),
    ("public", "visits", "update", ("note",), _OLD, {**_OLD, "note": "other"}),
]

_HOSTILE = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.caught(text) RETURNS text LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
CREATE FUNCTION evil.never(text, text) RETURNS bool LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
CREATE FUNCTION evil.textsend(text) RETURNS bytea LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
CREATE FUNCTION evil.age(xid) RETURNS int LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
CREATE FUNCTION evil.format_type(oid, int) RETURNS text LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
CREATE FUNCTION evil.quote_ident(text) RETURNS text LANGUAGE plpgsql AS
  'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
CREATE OPERATOR evil.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
CREATE OPERATOR evil.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.caught(value) IS NULL);
CREATE TABLE evil.pg_class (oid oid, relname name);
CREATE TABLE evil.pg_attribute (attname name);
CREATE VIEW evil.visits AS SELECT 1 AS id, 'n2' AS note;
CREATE VIEW evil.loose AS SELECT 'a' AS v;
"""

_MEANS = {
    "policies that let nobody see a row": """
        ALTER TABLE visits ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        ALTER TABLE loose ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        CREATE POLICY all_of_it ON visits USING (true);
        CREATE POLICY nothing ON visits AS RESTRICTIVE USING (false);
        ALTER TABLE visits OWNER TO pg_monitor;
    """,
    "policies of a role": """
        ALTER TABLE visits ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
        CREATE POLICY theirs ON visits TO pg_monitor USING (id = 1);
    """,
    "a path for the database": _HOSTILE + "ALTER DATABASE {fork} SET search_path = evil, pg_catalog, public;",
    "a path for our own role": _HOSTILE
    + "ALTER ROLE rt_admin IN DATABASE {fork} SET search_path = evil, pg_catalog, public;",
    "settings": """
        ALTER DATABASE {fork} SET TimeZone = 'Asia/Tokyo';
        ALTER DATABASE {fork} SET DateStyle = 'German';
        ALTER DATABASE {fork} SET IntervalStyle = 'iso_8601';
        ALTER DATABASE {fork} SET extra_float_digits = -15;
        ALTER DATABASE {fork} SET bytea_output = 'escape';
        ALTER DATABASE {fork} SET standard_conforming_strings = off;
        ALTER DATABASE {fork} SET backslash_quote = off;
        ALTER DATABASE {fork} SET quote_all_identifiers = on;
        ALTER DATABASE {fork} SET transform_null_equals = on;
        ALTER DATABASE {fork} SET row_security = on;
        ALTER DATABASE {fork} SET default_transaction_isolation = 'read committed';
        ALTER DATABASE {fork} SET default_transaction_read_only = on;
        ALTER DATABASE {fork} SET statement_timeout = 1;
        ALTER DATABASE {fork} SET client_encoding = 'LATIN1';
        ALTER DATABASE {fork} SET enable_seqscan = off;
        ALTER DATABASE {fork} SET from_collapse_limit = 1;
        ALTER DATABASE {fork} SET check_function_bodies = off;
    """,
    "event triggers": """
        CREATE FUNCTION stop() RETURNS event_trigger LANGUAGE plpgsql AS
          'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
        CREATE EVENT TRIGGER never_ddl ON ddl_command_start EXECUTE FUNCTION stop();
        CREATE EVENT TRIGGER never_login ON login EXECUTE FUNCTION stop();
        ALTER EVENT TRIGGER never_login ENABLE ALWAYS;
    """,
    "tables named like catalogs": """
        CREATE TABLE pg_class (oid oid, relname name);
        CREATE TABLE pg_attribute (attrelid oid);
        CREATE TABLE pg_database (datname name);
        CREATE VIEW pg_index AS SELECT 1 AS indrelid;
        CREATE FUNCTION format_type(oid, int) RETURNS text LANGUAGE plpgsql AS
          'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
    """,
    "a cast of a type": """
        CREATE FUNCTION caught(visits) RETURNS text LANGUAGE plpgsql AS
          'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
        CREATE CAST (visits AS text) WITH FUNCTION caught(visits) AS IMPLICIT;
    """,
    "rules and triggers": """
        CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS
          'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
        CREATE TRIGGER kept BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON visits EXECUTE FUNCTION kept();
        CREATE RULE nothing AS ON UPDATE TO loose DO INSTEAD NOTHING;
    """,
    "an index whose expression is the agent's": """
        CREATE FUNCTION once(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';
        CREATE INDEX ON visits (once(note));
        CREATE OR REPLACE FUNCTION once(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
          'BEGIN RAISE EXCEPTION ''code of the agent was run''; END';
    """,
}


@pytest.mark.parametrize("means", _MEANS.values(), ids=_MEANS)
async def test_no_change_is_hidden_or_distorted(fork: Clone, means: str) -> None:
    # P28, P46, P62, P63
    await fork.run(_WRITE, *[s for s in [means.format(fork=fork.name)] if s])
    changes = await fork.changes()
    found = [row for row in rows_in(changes) if row[1] in ("visits", "loose")]
    assert found == _ROWS
    assert changes.objects


async def test_before_runs_no_code_of_the_conversation_either(fork: Clone) -> None:
    await fork.run(_WRITE, _HOSTILE, f"ALTER DATABASE {fork.name} SET search_path = evil, pg_catalog, public")
    changes = await fork.changes()
    async with connected(fork.server, fork.name) as session:
        await session.execute("BEGIN")
        for statement in before_schema(changes):
            await session.execute(statement)
        await session.execute("SET LOCAL search_path = pg_catalog")
        assert await session.fetchval("SELECT note FROM before.visits WHERE id = 2") == "n2"
        assert await session.fetchval("SELECT count(*) FROM before.loose") == 2
        await session.execute("ROLLBACK")


_NAMES = [
    'say "it"',
    "it's",
    "new\nline\ttab",
    "back\\slash",
    "%s %I %L %(tag)s",
    "$$ $forker_1$ $1",
    "{0} {fork}",
    "SELECT",
    "Übergröße ☃ 🐘",
    "a" * 63,
    "é" * 31,
    "a.b",
    " ",
    "-- /* ;",
    "null",
    "ctid ",
]


@pytest.mark.parametrize("name", _NAMES, ids=ascii)
async def test_hostile_names_are_names(server: Server, name: str) -> None:
    quoted = quote_ident(name)
    sql = (
        f"CREATE SCHEMA {quoted}; CREATE TABLE {quoted}.{quoted} ({quoted} text PRIMARY KEY, v text);"
        f"INSERT INTO {quoted}.{quoted} VALUES ({quote_literal(name)}, 'x'), ('other', 'x');"
        f"CREATE TABLE {quoted} ({quoted} text, v int);"
        f"INSERT INTO {quoted} VALUES ({quote_literal(name)}, 1);"
    )
    async with baseline_of(server, sql) as base, cloned(server, base) as fork:
        await fork.run(
            f"UPDATE {quoted}.{quoted} SET v = 'y' WHERE {quoted} = {quote_literal(name)};"
            f"DELETE FROM public.{quoted};"
            f"COMMENT ON COLUMN {quoted}.{quoted}.{quoted} IS {quote_literal(name)};"
            f"CREATE INDEX {quote_ident(name[:30] + '_i')} ON {quoted}.{quoted} (v)"
        )
        changes = await fork.changes()
        assert rows_in(changes) == sorted(
            [
                (name, name, "update", ("v",), {name: name, "v": "x"}, {name: name, "v": "y"}),
                ("public", name, "delete", (), {name: name, "v": "1"}, {}),
            ]
        )
        assert {(change.op, change.kind) for change in changes.objects} == {
            ("create", "comment"),
            ("create", "index"),
        }
        (comment,) = (change for change in changes.objects if change.kind == "comment")
        assert comment.new == name
        async with connected(server, fork.name) as session:
            await session.execute("BEGIN")
            for statement in before_schema(changes):
                await session.execute(statement)
            assert await session.fetchval(f"SELECT {quoted} FROM before.{quoted}") == name
            # The server cuts a name in a rule as it cut the view's; the other table's is as long.
            if len(name) < 63:
                view = '"' + f"{name}.{name}".replace('"', '""') + '"'
                rows = await session.fetch(f"SELECT v FROM before.{view} WHERE {quoted} <> 'other'")
                assert rows == [("x",)]
            await session.execute("ROLLBACK")


async def test_foreign_tables_are_never_read(server: Server, tmp_path: Path) -> None:
    # P77: a server that would be seen to be asked, and a file that cannot be read.
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        sql = f"""
        CREATE EXTENSION postgres_fdw;
        CREATE EXTENSION file_fdw;
        CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw
          OPTIONS (host '127.0.0.1', port '{listening.getsockname()[1]}', connect_timeout '2');
        CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
        CREATE USER MAPPING FOR PUBLIC SERVER far OPTIONS (user 'u', password 'p');
        CREATE FOREIGN TABLE far_away (id int) SERVER far;
        CREATE FOREIGN TABLE on_disk (id int) SERVER files OPTIONS (filename '{tmp_path}/none');
        CREATE TABLE root (id int, k int) PARTITION BY LIST (k);
        CREATE TABLE root_1 PARTITION OF root FOR VALUES IN (1);
        CREATE FOREIGN TABLE root_2 PARTITION OF root FOR VALUES IN (2) SERVER far;
        CREATE TABLE parent (id int);
        CREATE FOREIGN TABLE child () INHERITS (parent) SERVER files OPTIONS (filename '{tmp_path}/none');
        CREATE VIEW over_there AS SELECT * FROM far_away;
        INSERT INTO root_1 VALUES (1, 1);
        INSERT INTO parent VALUES (1);
        """
        # ANALYZE would ask the foreign children of local tables.
        async with scratch_database(server, sql) as base, cloned(server, base) as fork:
            await fork.run(
                "INSERT INTO root_1 VALUES (2, 1)",
                "INSERT INTO parent VALUES (2)",
                "ALTER TABLE parent ADD extra int DEFAULT 7",
                "ALTER FOREIGN TABLE far_away ADD v int",
                f"CREATE FOREIGN TABLE new_one (id int) SERVER files OPTIONS (filename '{tmp_path}/none')",
                f"CREATE FOREIGN TABLE root_3 PARTITION OF root FOR VALUES IN (3) SERVER files "
                f"OPTIONS (filename '{tmp_path}/none')",
                "DROP FOREIGN TABLE on_disk",
            )
            changes = await fork.changes()
            assert [(table, op, new) for _, table, op, _, _, new in rows_in(changes)] == [
                ("parent", "insert", {"id": "2", "extra": "7"}),
                ("root", "insert", {"id": "2", "k": "1"}),
            ]
            assert {"public.new_one", "public.on_disk", "public.root_3"} <= {o.name for o in changes.objects}
            async with connected(server, fork.name) as session:
                await session.execute("BEGIN")
                for statement in before_schema(changes):
                    await session.execute(statement)
                assert await session.fetch("SELECT id, k FROM before.root") == [(1, 1)]
                assert await session.fetch("SELECT id FROM before.parent") == [(1,)]
                await session.execute("ROLLBACK")
            # And the tables are what they seem.
            async with connected(server, fork.name) as session:
                with pytest.raises(asyncpg.PostgresError, match="could not open file"):
                    await session.fetch("SELECT * FROM child")
        with pytest.raises(BlockingIOError):
            listening.accept()
