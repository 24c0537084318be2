"""What an agent holds is the fork's role, and that role is the wall: each way out is tried here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.databases import connected
from support.forks import connected_as, made_fork, made_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_SEED = """
CREATE TABLE accounts (id int PRIMARY KEY, tenant text NOT NULL, balance int NOT NULL);
INSERT INTO accounts VALUES (1, 'ours', 10), (2, 'theirs', 20);
ALTER TABLE accounts OWNER TO iso_owner;
ALTER TABLE accounts ENABLE ROW LEVEL SECURITY;
CREATE POLICY ours ON accounts TO iso_app USING (tenant = 'ours');
GRANT SELECT, UPDATE ON accounts TO iso_app;
CREATE TABLE secrets (word text);
INSERT INTO secrets VALUES ('hidden');
"""


@dataclass(frozen=True)
class World:
    template: Template
    fork: Fork
    other: Fork


@pytest.fixture(scope="module")
async def world(server: Server) -> AsyncIterator[World]:
    async with (
        made_template(server, _SEED, role="iso_app") as template,
        made_fork(server, template) as fork,
        made_fork(server, template) as other,
    ):
        yield World(template=template, fork=fork, other=other)


@pytest.fixture(scope="module")
async def agent(world: World) -> AsyncIterator[asyncpg.Connection]:
    """One session for all the statements that are refused anyway."""
    async with connected_as(world.fork) as session:
        yield session


@pytest.mark.parametrize(
    "where", ["template", "baseline", "other fork", "postgres", "template0", "template1"]
)
async def test_fork_role_enters_no_other_database(world: World, where: str) -> None:
    names = {
        "template": world.template.name,
        "baseline": world.template.baseline,
        "other fork": world.other.name,
    }
    with pytest.raises(asyncpg.PostgresError, match=r"pg_hba.conf|not currently accepting|permission denied"):
        async with connected_as(world.fork, names.get(where, where)):
            pass


@pytest.mark.parametrize("where", ["baseline", "other fork", "postgres", "template1"])
async def test_grants_alone_would_keep_the_role_out(server: Server, world: World, where: str) -> None:
    """The second wall: pg_hba.conf is not ours on a server that somebody else runs (P26, P44)."""
    names = {"baseline": world.template.baseline, "other fork": world.other.name}
    async with connected(server) as session:
        allowed = await session.fetchval(
            "SELECT has_database_privilege($1, $2, 'CONNECT')", world.fork.user, names.get(where, where)
        )
    assert allowed is False


async def test_another_forks_password_opens_nothing(world: World) -> None:
    # P55: no two forks share a secret, and none is copied from the template.
    assert world.fork.password != world.other.password
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(
            host=world.fork.host,
            port=world.fork.port,
            user=world.fork.user,
            password=world.other.password,
            database=world.fork.name,
        )


_REFUSED = {
    # P44, P45, P51: another role, or more of its own.
    "roles": [
        "CREATE ROLE intruder",
        "ALTER ROLE CURRENT_USER SUPERUSER",
        "ALTER ROLE CURRENT_USER CONNECTION LIMIT 100",
        "ALTER ROLE CURRENT_USER VALID UNTIL 'infinity'",
        "ALTER ROLE CURRENT_USER NOINHERIT",
        "ALTER ROLE rt_admin PASSWORD 'x'",
        "ALTER ROLE iso_app PASSWORD 'x'",
        "ALTER ROLE iso_app SET search_path = elsewhere",
        'ALTER ROLE "{group}" SET search_path = elsewhere',
        "ALTER ROLE \"{other}\" PASSWORD 'x'",
        "ALTER ROLE \"{other}\" SET work_mem = '1MB'",
        "ALTER ROLE ALL SET work_mem = '1MB'",
        'ALTER ROLE "{other}" RENAME TO intruder',
        'DROP ROLE "{other}"',
        "SET ROLE rt_admin",
        "SET ROLE iso_owner",
        "SET ROLE iso_app",
        'SET ROLE "{group}"',
        'SET ROLE "{other}"',
        "SET ROLE pg_read_all_data",
        "SET SESSION AUTHORIZATION rt_admin",
        'SET SESSION AUTHORIZATION "{other}"',
        "GRANT rt_admin TO CURRENT_USER",
        "GRANT iso_owner TO CURRENT_USER",
        "GRANT pg_read_server_files TO CURRENT_USER",
        'GRANT "{fork}" TO "{other}"',
        'GRANT "{group}" TO CURRENT_USER WITH ADMIN OPTION',
        'REVOKE "{group}" FROM "{other}"',
        "REASSIGN OWNED BY iso_owner TO CURRENT_USER",
        "DROP OWNED BY iso_owner",
        "SELECT rolpassword FROM pg_authid",
        "SELECT passwd FROM pg_shadow",
        "UPDATE pg_auth_members SET admin_option = true",
    ],
    # P34: what would make its own database undroppable, and what would harm another.
    "databases": [
        "CREATE DATABASE intruder",
        'CREATE DATABASE intruder TEMPLATE "{other}"',
        'DROP DATABASE "{other}" WITH (FORCE)',
        'DROP DATABASE "{fork}"',
        'ALTER DATABASE "{fork}" IS_TEMPLATE true',
        'ALTER DATABASE "{fork}" ALLOW_CONNECTIONS false',
        'ALTER DATABASE "{fork}" OWNER TO CURRENT_USER',
        'ALTER DATABASE "{fork}" CONNECTION LIMIT 0',
        'ALTER DATABASE "{fork}" SET work_mem = 1',
        'ALTER DATABASE "{fork}" RENAME TO intruder',
        'ALTER DATABASE "{other}" RENAME TO intruder',
        "COMMENT ON DATABASE \"{fork}\" IS 'mine'",
        "COMMENT ON DATABASE \"{template}\" IS 'mine'",
        "UPDATE pg_database SET datallowconn = true",
        "SELECT pg_database_size('{other}')",
    ],
    # P57: row-level security, and what belongs to other owners.
    "the application's objects": [
        "SET row_security = off; SELECT * FROM accounts",
        "ALTER TABLE accounts OWNER TO CURRENT_USER",
        "ALTER TABLE accounts DISABLE ROW LEVEL SECURITY",
        "DROP POLICY ours ON accounts",
        "CREATE POLICY mine ON accounts USING (true)",
        "CREATE RULE mine AS ON UPDATE TO accounts DO INSTEAD NOTHING",
        "CREATE TRIGGER mine BEFORE UPDATE ON accounts EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE INDEX ON accounts (id)",
        "BEGIN; LOCK TABLE secrets IN ACCESS SHARE MODE",
        "DROP TABLE accounts",
        "TRUNCATE accounts",
        "DELETE FROM accounts",
        "SELECT * FROM secrets",
        "CREATE TABLE public.mine (id int)",
        "CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA mine",
        "SELECT * FROM pg_largeobject",
        "SELECT * FROM pg_statistic",
    ],
    "code of the server": [
        "CREATE EXTENSION hstore",
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION postgres_fdw",
        "CREATE EXTENSION file_fdw",
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SUBSCRIPTION s CONNECTION 'host=/tmp' PUBLICATION p",
        "CREATE PUBLICATION p",
        "CREATE EVENT TRIGGER t ON ddl_command_start EXECUTE FUNCTION f()",
        "CREATE ACCESS METHOD m TYPE TABLE HANDLER heap_tableam_handler",
        "CREATE TYPE pg_temp.shell",
        "CREATE CAST (text AS int) WITH INOUT",
        "LOAD '/tmp/forker-intruder.so'",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE c AS '/tmp/forker-intruder.so'",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE internal AS 'pg_reload_conf'",
        "SELECT * FROM pg_subscription",
        "SELECT * FROM pg_user_mapping",
        "SELECT pg_create_physical_replication_slot('stays')",
        "SELECT pg_create_logical_replication_slot('stays', 'pgoutput')",
        "SELECT pg_replication_origin_create('stays')",
    ],
    # P58: files, the shell, and where they are.
    "files and programs": [
        "COPY accounts TO '/tmp/forker-intruder'",
        "COPY accounts FROM '/etc/passwd'",
        "COPY accounts FROM PROGRAM 'id'",
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT pg_read_binary_file('PG_VERSION')",
        "SELECT pg_stat_file('base')",
        "SELECT pg_ls_dir('.')",
        "SELECT pg_ls_tmpdir()",
        "SELECT pg_ls_waldir()",
        "SELECT pg_ls_logdir()",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_export(1, '/tmp/forker-intruder')",
        "CREATE TABLESPACE t LOCATION '/tmp'",
        "CREATE TEMP TABLE x (a int) TABLESPACE pg_global",
        "SET temp_tablespaces = pg_global",
        "SHOW data_directory",
        "SHOW unix_socket_directories",
        "SHOW hba_file",
        "SELECT * FROM pg_hba_file_rules",
        "SELECT * FROM pg_file_settings",
        "SELECT * FROM pg_config",
    ],
    "the cluster": [
        "ALTER SYSTEM SET work_mem = 1",
        "ALTER SYSTEM RESET ALL",
        "SELECT pg_reload_conf()",
        "SELECT pg_rotate_logfile()",
        "SELECT pg_switch_wal()",
        "SELECT pg_promote()",
        "SELECT pg_backup_start('x')",
        "SELECT pg_stat_reset()",
        "SELECT pg_stat_reset_shared('io')",
        "SELECT pg_log_backend_memory_contexts(1)",
        "CHECKPOINT",
        "REINDEX SYSTEM",
        "BEGIN; LOCK TABLE pg_database IN SHARE MODE",
        "BEGIN; LOCK TABLE pg_authid IN ACCESS SHARE MODE",
        "GRANT SET ON PARAMETER temp_file_limit TO CURRENT_USER",
        "SET session_replication_role = replica",
        "SET temp_file_limit = -1",  # P52
        "ALTER ROLE CURRENT_USER SET temp_file_limit = -1",
        "SET log_statement = 'all'",
        "SET log_min_messages = debug5",
        "SET track_activities = off",
        "SET session_preload_libraries = x",
        "SET dynamic_library_path = '/tmp'",
        "SET event_triggers = off",
        "SET allow_system_table_mods = on",
        "SET lo_compat_privileges = on",
        "SET zero_damaged_pages = on",
        "SET max_stack_depth = '7MB'",
        "SET lc_messages = 'C'",
    ],
}


@pytest.mark.parametrize(
    "statement", [pytest.param(each, id=f"{kind}-{each}") for kind in _REFUSED for each in _REFUSED[kind]]
)
async def test_fork_role_may_not(world: World, agent: asyncpg.Connection, statement: str) -> None:
    template = world.template
    *before, last = statement.format(
        fork=world.fork.name, other=world.other.name, group=template.group, template=template.name
    ).split("; ")
    for part in before:
        await agent.execute(part)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await agent.execute(last)
    finally:
        await agent.execute("ROLLBACK; RESET ALL")


async def test_committing_a_guards_transaction_gains_nothing(agent: asyncpg.Connection) -> None:
    # P47: whatever a tool wraps around a statement, the statement can end. The role is the wall.
    await agent.execute("BEGIN READ ONLY")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await agent.execute("COMMIT; DROP TABLE accounts")
    await agent.execute("ROLLBACK")


@pytest.mark.parametrize(
    "settings",
    [
        {"replication": "true"},
        {"replication": "database"},
        {"options": "-c session_preload_libraries=x"},
        {"options": "-c temp_file_limit=-1"},
        {"options": "-c role=rt_admin"},
        {"session_authorization": "rt_admin"},
    ],
    ids=str,
)
async def test_a_session_cannot_be_begun_with_more_rights(world: World, settings: dict[str, str]) -> None:
    with pytest.raises(asyncpg.PostgresError, match=r"permission denied|max_wal_senders|pg_hba.conf"):
        await asyncpg.connect(
            host=world.fork.host,
            port=world.fork.port,
            user=world.fork.user,
            password=world.fork.password,
            database=world.fork.name,
            server_settings=settings,
        )


async def test_fork_role_prepares_no_transaction(world: World) -> None:
    # P33: it would outlive the session and block the drop.
    async with connected_as(world.fork) as agent:
        await agent.execute("BEGIN")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="transactions are disabled"):
            await agent.execute("PREPARE TRANSACTION 'stays'")


@pytest.mark.parametrize("function", ["pg_terminate_backend", "pg_cancel_backend"])
async def test_fork_role_ends_no_foreign_session(server: Server, world: World, function: str) -> None:
    async with connected_as(world.other) as neighbour, connected(server) as admin:
        pids = [await session.fetchval("SELECT pg_backend_pid()") for session in (neighbour, admin)]
        for pid in pids:
            async with connected_as(world.fork) as agent:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await agent.execute(f"SELECT {function}({pid})")


async def test_fork_role_sees_no_query_of_others(server: Server, world: World) -> None:
    async with connected(server) as admin, connected_as(world.fork) as agent:
        await admin.execute("SELECT 'word of the admin'")
        seen = await agent.fetch(
            "SELECT query FROM pg_stat_activity WHERE query LIKE '%word of the' || ' admin%'"
        )
    assert seen == []


async def test_row_level_security_holds_the_role_as_the_application(world: World) -> None:
    async with connected_as(world.fork) as agent:
        assert [tuple(row) for row in await agent.fetch("SELECT id, balance FROM accounts")] == [(1, 10)]
        assert await agent.execute("UPDATE accounts SET balance = 0 WHERE id = 2") == "UPDATE 0"


async def test_role_may_do_what_the_application_may(world: World) -> None:
    async with connected_as(world.other) as agent:
        assert await agent.execute("UPDATE accounts SET balance = balance + 1") == "UPDATE 1"
        await agent.execute("CREATE TEMPORARY TABLE scratch AS SELECT * FROM accounts")


async def test_template_group_reaches_no_database(server: Server, world: World) -> None:
    async with connected(server) as session:
        reached = await session.fetch(
            "SELECT datname FROM pg_database d, unnest($1::text[]) role"
            " WHERE datname LIKE 'rt\\_%' AND has_database_privilege(role, d.oid, 'CONNECT')",
            [world.template.group, "iso_app"],
        )
    assert reached == []


async def test_without_a_role_the_group_reads_and_writes_all_tables_and_owns_none(server: Server) -> None:
    sql = """
        CREATE SCHEMA side; CREATE TABLE side.t (id serial PRIMARY KEY, v text);
        CREATE TABLE u (id bigint GENERATED BY DEFAULT AS IDENTITY, v text);
    """
    async with (
        made_template(server, sql) as template,
        made_fork(server, template) as fork,
        connected_as(fork) as agent,
    ):
        for table in ("side.t", "u"):
            await agent.execute(f"INSERT INTO {table} (v) VALUES ('a')")
            await agent.execute(f"UPDATE {table} SET v = 'b'")
            assert await agent.fetchval(f"DELETE FROM {table} RETURNING v") == "b"
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await agent.execute(f"ALTER TABLE {table} ADD COLUMN w int")
