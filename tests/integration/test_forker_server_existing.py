"""A server that somebody else runs: the embedded one of the tests stands for it, named by its socket."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.databases import connected
from support.forks import connected_as, made_fork, made_template
from support.servers import stranger

from redteam_forker.errors import ServerUnavailable
from redteam_forker.fork import close_fork, list_forks
from redteam_forker.servers import open_server
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server


def dsn_of(server: Server, user: str, password: str, database: str) -> str:
    host = urllib.parse.quote(server.facts.host, safe="")
    return f"postgresql://{user}:{password}@{host}:{server.facts.port}/{database}"


def password_of(server: Server) -> str:
    return server.psql("postgres").env["PGPASSWORD"]


async def test_forks_are_made_on_a_server_named_by_dsn(server: Server) -> None:
    dsn = dsn_of(server, "rt_admin", password_of(server), "postgres")
    async with open_server(dsn) as existing:
        assert (existing.facts.kind, existing.facts.host) == ("existing", server.facts.host)
        assert existing.facts.instance == server.facts.instance
        sql = "CREATE TABLE t (id int PRIMARY KEY); -- on an existing server"
        async with made_template(existing, sql) as template, made_fork(existing, template) as fork:
            assert fork.reaches == (fork.name,)
            assert fork.name in await list_forks(existing)
        assert fork.name not in await list_forks(existing)


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ("CREATEDB", "lacks CREATEROLE"),
        ("CREATEROLE", "lacks CREATEDB"),
        ("", "lacks CREATEDB; run .* lacks CREATEROLE"),
    ],
)
async def test_missing_right_is_named(server: Server, rights: str, missing: str) -> None:
    async with stranger(server, rights) as dsn:
        with pytest.raises(ServerUnavailable, match=missing):
            async with open_server(dsn):
                pass


async def test_role_that_is_no_superuser_is_enough_to_open(server: Server) -> None:
    async with stranger(server, "CREATEDB CREATEROLE") as dsn, open_server(dsn) as existing:
        assert not existing.facts.superuser
        async with connected(existing) as session:
            assert await session.fetchval("SHOW createrole_self_grant") == "set, inherit"


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 1, "cannot use the server at 127.0.0.1:1"),
        ("/nonexistent", 5432, "cannot use the server at /nonexistent:5432"),
    ],
)
async def test_unreachable_server_is_named_without_the_password(host: str, port: int, message: str) -> None:
    dsn = f"postgresql://me:geheim@{urllib.parse.quote(host, safe='')}:{port}/postgres"
    with pytest.raises(ServerUnavailable, match=message) as refused:
        async with open_server(dsn):
            pass
    assert "geheim" not in str(refused.value)


async def test_wrong_password_is_said_and_not_shown(server: Server) -> None:
    with pytest.raises(ServerUnavailable, match="the password was not accepted") as refused:
        async with open_server(dsn_of(server, "rt_admin", "geheim", "postgres")):
            pass
    assert "geheim" not in str(refused.value)


async def test_maintenance_database_that_is_not_there_is_named(server: Server) -> None:
    dsn = dsn_of(server, "rt_admin", password_of(server), "no_such_database")
    with pytest.raises(ServerUnavailable, match='database "no_such_database" does not exist'):
        async with open_server(dsn):
            pass


def test_data_root_is_for_an_embedded_server_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave them out with a DSN"):
        open_server("postgresql://me@h/x", data_root=tmp_path)


def let_all_in(server: Server) -> None:
    Path(server.facts.host, "../data/pg_hba.conf").write_text("local all all scram-sha-256\n")


@pytest.fixture
async def open_to_all() -> AsyncIterator[Server]:
    """A server whose pg_hba.conf keeps nobody out, as others' may: there the grants are the only wall."""
    async with open_server() as server:
        let_all_in(server)
        async with connected(server) as admin:
            await admin.execute("SELECT pg_reload_conf()")
        yield server


async def test_a_role_that_is_no_superuser_makes_forks(open_to_all: Server) -> None:
    sql = """
        CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2);
        ALTER TABLE t ENABLE ROW LEVEL SECURITY;
        CREATE POLICY second ON t TO reader USING (id = 2);
        GRANT SELECT ON t TO reader;
    """
    async with (
        stranger(open_to_all, "CREATEDB CREATEROLE") as dsn,
        open_server(dsn) as existing,
        made_template(existing, sql, role="reader") as template,
    ):
        async with made_fork(existing, template) as fork, connected_as(fork) as agent:
            assert await agent.fetch("SELECT id FROM t") == [(2,)]
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connected_as(fork, template.baseline):
                    pass
            assert (await close_fork(existing, fork)).late == 0
        assert fork.name not in await list_forks(existing)


async def test_what_a_server_of_others_lets_a_fork_reach_is_reported(open_to_all: Server) -> None:
    async with connected(open_to_all) as admin:
        await admin.execute("GRANT CONNECT ON DATABASE template1 TO PUBLIC")
    dsn = dsn_of(open_to_all, "rt_admin", password_of(open_to_all), "postgres")
    async with (
        open_server(dsn) as existing,
        made_template(existing, "CREATE TABLE t (id int);") as template,
        made_fork(existing, template) as fork,
    ):
        assert set(fork.reaches) == {fork.name, "template1"}
