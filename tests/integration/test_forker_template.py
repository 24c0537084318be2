"""A template is built once, whole, sealed and frozen; a build that does not end well leaves nothing."""

from __future__ import annotations

import socket
from datetime import date
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.databases import connected, until_active
from support.forks import TODAY, connected_as, made_fork, made_template, seed_of

from redteam_forker.errors import SeedError
from redteam_forker.ledger import DATABASE
from redteam_forker.names import is_own
from redteam_forker.role import Setting
from redteam_forker.template import Template, build_template, drop_template
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_TABLE = """
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 500) g;
"""


async def everything_of_ours(server: Server) -> set[str]:
    async with connected(server) as session:
        rows = await session.fetch(
            "SELECT datname AS n FROM pg_database UNION ALL SELECT rolname FROM pg_roles"
        )
    # Made by whoever builds first, and there to stay.
    return {row["n"] for row in rows} - {DATABASE}


def unique(sql: str, name: str) -> str:
    """The same seed under another hash, so that a test has a template of its own."""
    return f"{sql}\n-- {name}"


async def test_template_lets_nobody_in(server: Server) -> None:
    async with made_template(server, unique(_TABLE, "sealed")) as template:
        with pytest.raises(Exception, match="not currently accepting connections"):
            await server.connect(template.name)
        async with connected(server) as session:
            row = await session.fetchrow(
                "SELECT datistemplate, datallowconn FROM pg_database WHERE datname = $1", template.name
            )
        assert tuple(row) == (True, False)


async def test_template_facts_are_measured(server: Server) -> None:
    async with made_template(server, unique(_TABLE, "facts")) as template:
        async with connected(server) as session:
            size = await session.fetchval("SELECT pg_database_size($1)", template.name)
        assert (template.tables, template.size_bytes, template.from_cache) == (1, size, False)
        assert template.load_s > 0
        assert all(map(is_own, (template.name, template.baseline, template.group)))


async def test_every_row_of_a_template_is_frozen(server: Server) -> None:
    async with (
        made_template(server, unique(_TABLE, "frozen")) as template,
        made_fork(server, template) as fork,
        connected(server, fork.database) as session,
    ):
        await session.execute("CREATE EXTENSION pg_visibility")
        thawed = await session.fetchval("SELECT count(*) FROM pg_visibility_map('t') WHERE NOT all_frozen")
    assert thawed == 0


async def test_building_a_template_asks_no_foreign_server(server: Server) -> None:
    # P77: ANALYZE of a table samples the foreign tables below it.
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        sql = f"""
        CREATE EXTENSION postgres_fdw;
        CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw
          OPTIONS (host '127.0.0.1', port '{listening.getsockname()[1]}', connect_timeout '2');
        CREATE USER MAPPING FOR PUBLIC SERVER far OPTIONS (user 'u', password 'p');
        CREATE TABLE root (id int, k int) PARTITION BY LIST (k);
        CREATE TABLE middle PARTITION OF root FOR VALUES IN (2, 3) PARTITION BY LIST (k);
        CREATE FOREIGN TABLE leaf PARTITION OF middle FOR VALUES IN (2) SERVER far;
        CREATE TABLE parent (id int);
        CREATE FOREIGN TABLE child () INHERITS (parent) SERVER far;
        CREATE TABLE plain (id int);
        INSERT INTO plain SELECT generate_series(1, 500);
        """
        async with (
            made_template(server, sql, allow=frozenset({"foreign-server", "user-mapping"})) as template,
            connected(server, template.baseline) as session,
        ):
            # What is ours alone has its statistics.
            assert (
                await session.fetchval("SELECT reltuples FROM pg_class WHERE oid = 'plain'::regclass") == 500
            )
        with pytest.raises(BlockingIOError):
            listening.accept()


async def test_clone_carries_no_maps_of_the_catalogs(server: Server) -> None:
    async with (
        made_template(server, unique(_TABLE, "maps")) as template,
        connected(server, template.baseline) as session,
    ):
        mapped = await session.fetch(
            "SELECT c.oid::regclass::text AS name FROM pg_class c, pg_database d,"
            " LATERAL pg_stat_file(format('base/%s/%s_fsm', d.oid, pg_relation_filenode(c.oid)), true) f"
            " WHERE d.datname = current_database() AND NOT c.relisshared AND c.relfilenode IS NOT NULL"
            " AND c.relkind = 'r' AND f.size > 0"
        )
        # Writing the last catalog anew leaves dead rows in one other.
        assert {row["name"] for row in mapped} - {"pg_attribute"} == {"t"}
        # All that they describe is there.
        assert await session.fetchval("SELECT count(*) FROM pg_stats WHERE tablename = 't'") > 0
        assert await session.fetchval("SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass") > 0


async def test_baseline_is_read_only_and_the_same(server: Server) -> None:
    async with (
        made_template(server, unique(_TABLE, "baseline")) as template,
        connected(server, template.baseline) as session,
    ):
        assert await session.fetchval("SELECT count(*) FROM t") == 500
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await session.execute("DELETE FROM t")


async def test_same_seed_is_built_once(server: Server) -> None:
    sql = unique(_TABLE, "once")
    async with made_template(server, sql) as first:
        again = await build_template(server, seed_of(sql), role=None, today=TODAY)
        assert again.from_cache
        assert Template.from_json(again.to_json()) == again
        assert (again.hash, again.load_s) == (first.hash, first.load_s)


async def test_many_who_want_one_template_get_one(server: Server) -> None:
    sql = unique(_TABLE, "many")
    got: list[Template] = []

    async def want() -> None:
        got.append(await build_template(server, seed_of(sql), role=None, today=TODAY))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(want)
    assert len({template.name for template in got}) == 1
    assert sorted(template.from_cache for template in got) == [False, True, True, True]
    await drop_template(server, got[0])


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        pytest.param("CREATE TABLE t (id int); SELECT 1/0;", "division by zero", id="statement-fails"),
        pytest.param("SELECT 1;", "no table", id="no-table"),
        pytest.param(
            "CREATE TABLE t (id int); ALTER TABLE t OWNER TO lost; SELECT 1/0;", "zero", id="role-made"
        ),
    ],
)
async def test_build_that_fails_leaves_nothing(server: Server, sql: str, message: str) -> None:
    before = await everything_of_ours(server)
    with pytest.raises(SeedError, match=message):
        await build_template(server, seed_of(sql), role=None, today=TODAY)
    assert await everything_of_ours(server) == before


async def test_cancelled_build_leaves_nothing(server: Server) -> None:
    before = await everything_of_ours(server)
    slow = seed_of("CREATE TABLE t (id int); SELECT pg_sleep(30);")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: build_template(server, slow, role=None, today=TODAY))
        async with connected(server) as session:
            await until_active(session, "SELECT pg_sleep%")
        tasks.cancel_scope.cancel()
    assert await everything_of_ours(server) == before


async def test_dropped_template_leaves_nothing(server: Server) -> None:
    before = await everything_of_ours(server)
    sql = "CREATE TABLE t (id int); ALTER TABLE t OWNER TO somebody_of_the_dump;"
    async with made_template(server, sql) as template:
        assert template.created_roles == ("somebody_of_the_dump",)
    assert await everything_of_ours(server) == before


async def test_template_with_forks_is_not_dropped(server: Server) -> None:
    async with made_template(server, unique(_TABLE, "in use")) as template:
        async with made_fork(server, template) as fork:
            with pytest.raises(UsageError, match=f"still has forks: {fork.name}"):
                await drop_template(server, template)
        again = await build_template(server, seed_of(unique(_TABLE, "in use")), role=None, today=TODAY)
        assert again.from_cache


async def test_owner_of_a_dump_is_no_superuser(server: Server) -> None:
    sql = "CREATE TABLE t (id int); ALTER TABLE t OWNER TO postgres;"
    async with made_template(server, sql) as template, connected(server) as session:
        row = await session.fetchrow("SELECT rolsuper, rolcanlogin FROM pg_roles WHERE rolname = 'postgres'")
        assert tuple(row) == (False, False)
        assert template.created_roles == ("postgres",)


async def test_dates_move_with_the_day_and_so_does_the_name(server: Server) -> None:
    sql = "CREATE TABLE visits (at date); INSERT INTO visits VALUES ('2026-01-01');"
    seed = seed_of(sql, anchor=date(2025, 12, 31), moves=("visits.at",))
    first = await build_template(server, seed, role=None, today=date(2026, 1, 14))
    other = await build_template(server, seed, role=None, today=date(2026, 1, 21))
    async with connected(server, first.baseline) as session:
        assert await session.fetchval("SELECT at FROM visits") == date(2026, 1, 15)
    assert (first.weeks, other.weeks, first.columns) == (2, 3, ("public.visits.at",))
    assert first.name != other.name
    for template in (first, other):
        await drop_template(server, template)


_APP = """
CREATE TABLE t (id int PRIMARY KEY);
CREATE ROLE {role};
GRANT SELECT ON t TO {role};
"""


@pytest.mark.parametrize(
    ("sql", "role", "message"),
    [
        pytest.param(_APP.format(role="app_a"), "app_b", "it does not exist", id="missing"),
        pytest.param(
            _APP.format(role="app_c") + "ALTER TABLE t OWNER TO app_c;", "app_c", "it owns t", id="owner"
        ),
        pytest.param(_APP.format(role="app_d"), "rt_admin", "it is a superuser", id="superuser"),
    ],
)
async def test_role_that_cannot_be_the_application_is_refused(
    server: Server, sql: str, role: str, message: str
) -> None:
    before = await everything_of_ours(server)
    with pytest.raises(UsageError, match=f"role '{role}' cannot be the application's: .*{message}"):
        await build_template(server, seed_of(sql), role=role, today=TODAY)
    assert await everything_of_ours(server) == before


async def test_application_in_a_dangerous_group_is_refused(server: Server) -> None:
    async with connected(server) as session:
        await session.execute("CREATE ROLE app_files; GRANT pg_read_server_files TO app_files")
        try:
            with pytest.raises(UsageError, match="it is a member of pg_read_server_files"):
                await build_template(server, seed_of(_TABLE), role="app_files", today=TODAY)
        finally:
            await session.execute("DROP ROLE app_files")


async def test_settings_that_a_clone_loses_are_kept(server: Server) -> None:
    async with connected(server) as session:
        await session.execute("CREATE ROLE app_set; ALTER ROLE app_set SET work_mem = '5MB'")
        sql = """
            CREATE TABLE t (id int);
            DO $$ BEGIN
              EXECUTE format('ALTER DATABASE %I SET search_path = "$user", public, "my, schema"',
                             current_database());
              EXECUTE format('ALTER ROLE app_set IN DATABASE %I SET timezone = %L',
                             current_database(), 'Asia/Tokyo');
            END $$;
        """
        try:
            async with made_template(server, sql, role="app_set") as template:
                assert [
                    Setting(role=None, name="search_path", value='"$user", public, "my, schema"'),
                    Setting(role="", name="work_mem", value="5MB"),
                    Setting(role="", name="TimeZone", value="Asia/Tokyo"),
                ] == [setting for setting in template.settings if setting.role != "app_set"]
                async with made_fork(server, template) as fork, connected_as(fork) as agent:
                    shown = [
                        await agent.fetchval(f"SHOW {name}")
                        for name in ("search_path", "work_mem", "timezone")
                    ]
                assert shown == ['"$user", public, "my, schema"', "5MB", "Asia/Tokyo"]
        finally:
            await session.execute("DROP ROLE app_set")
