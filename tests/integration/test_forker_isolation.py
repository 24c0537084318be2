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


@pytest.mark.parametrize("where", ["template", "baseline", "other fork", "postgres", "template1"])
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
    """The second wall: pg_hba.conf is not ours on a server that somebody else runs."""
    names = {"baseline": world.template.baseline, "other fork": world.other.name}
    async with connected(server) as session:
        allowed = await session.fetchval(
            "SELECT has_database_privilege($1, $2, 'CONNECT')", world.fork.user, names.get(where, where)
        )
    assert allowed is False


async def test_another_forks_password_opens_nothing(world: World) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(
            host=world.fork.host,
            port=world.fork.port,
            user=world.fork.user,
            password=world.other.password,
            database=world.fork.name,
        )


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE ROLE intruder",
        "ALTER ROLE CURRENT_USER SUPERUSER",
        "ALTER ROLE CURRENT_USER CONNECTION LIMIT 100",
        "ALTER ROLE CURRENT_USER VALID UNTIL 'infinity'",
        "ALTER ROLE rt_admin PASSWORD 'x'",
        "SET ROLE rt_admin",
        "SET ROLE iso_owner",
        "SET SESSION AUTHORIZATION rt_admin",
        "SET session_replication_role = replica",
        "SET row_security = off; SELECT * FROM accounts",
        "GRANT rt_admin TO CURRENT_USER",
        "GRANT iso_owner TO CURRENT_USER",
        "GRANT pg_read_server_files TO CURRENT_USER",
        "CREATE DATABASE intruder",
        'CREATE DATABASE intruder TEMPLATE "{other}"',
        'DROP DATABASE "{other}" WITH (FORCE)',
        'DROP DATABASE "{fork}"',
        'ALTER DATABASE "{fork}" IS_TEMPLATE true',
        'ALTER DATABASE "{fork}" OWNER TO CURRENT_USER',
        'ALTER DATABASE "{fork}" CONNECTION LIMIT 0',
        'ALTER DATABASE "{fork}" SET work_mem = 1',
        'ALTER DATABASE "{other}" RENAME TO intruder',
        "ALTER TABLE accounts OWNER TO CURRENT_USER",
        "ALTER TABLE accounts DISABLE ROW LEVEL SECURITY",
        "DROP POLICY ours ON accounts",
        "DROP TABLE accounts",
        "TRUNCATE accounts",
        "DELETE FROM accounts",
        "SELECT * FROM secrets",
        "CREATE TABLE public.mine (id int)",
        "CREATE SCHEMA mine",
        "CREATE EXTENSION dblink",
        "CREATE EXTENSION file_fdw",
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SUBSCRIPTION s CONNECTION 'host=/tmp' PUBLICATION p",
        "COPY accounts TO '/tmp/forker-intruder'",
        "COPY accounts FROM PROGRAM 'id'",
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT pg_reload_conf()",
        "SELECT rolpassword FROM pg_authid",
        "ALTER SYSTEM SET work_mem = 1",
        "CHECKPOINT",
        "LOAD '/tmp/forker-intruder.so'",
        "CREATE FUNCTION f() RETURNS int LANGUAGE c AS '/tmp/forker-intruder.so'",
        "SELECT pg_create_physical_replication_slot('stays')",
        "CREATE EVENT TRIGGER t ON ddl_command_start EXECUTE FUNCTION f()",
        "CREATE TABLESPACE t LOCATION '/tmp'",
        "UPDATE pg_database SET datallowconn = true",
    ],
)
async def test_fork_role_may_not(world: World, statement: str) -> None:
    *before, last = statement.format(fork=world.fork.name, other=world.other.name).split("; ")
    async with connected_as(world.fork) as agent:
        for part in before:
            await agent.execute(part)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await agent.execute(last)


async def test_fork_role_prepares_no_transaction(world: World) -> None:
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
