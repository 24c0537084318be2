"""Forks on other people's servers: PostgreSQL 15 to 18, by a superuser and by a role with two rights."""

from __future__ import annotations

import contextlib
import secrets
import urllib.parse
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.databases import connected
from support.forks import TODAY, connected_as, made_fork, seed_of
from support.versions import VERSIONS, NotFoundError, dsn_at, foreign_server, programs_of

from redteam_forker import _pg, database
from redteam_forker.changes import collect_changes
from redteam_forker.errors import ForkUnavailable
from redteam_forker.fork import close_fork, create_fork, drop_fork, list_forks
from redteam_forker.registry import open_registry
from redteam_forker.servers import open_server, settings
from redteam_forker.template import build_template, drop_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_SQL = """
CREATE TABLE t (id int PRIMARY KEY, note text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY from_second ON t TO reader USING (id >= 2) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON t TO reader;
"""


@pytest.fixture(scope="module", params=VERSIONS, ids=str)
async def foreign(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[str]:
    """The superuser's DSN on a server of one version; a version that is not found is named in the summary."""
    try:
        programs = await anyio.to_thread.run_sync(programs_of, request.param)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn:
        yield dsn


@contextlib.asynccontextmanager
async def made_role(dsn: str, rights: str) -> AsyncIterator[str]:
    """The DSN of a new role, in a maintenance database of the server's own."""
    name, password = f"stranger_{secrets.token_hex(4)}", secrets.token_hex(8)
    admin = await asyncpg.connect(dsn)
    try:
        # A registry is its maker's, and whoever had this server before may have made one.
        await admin.execute("DROP DATABASE IF EXISTS rt_registry WITH (FORCE)")
        await admin.execute(f"CREATE ROLE {name} LOGIN {rights} PASSWORD '{password}'")
        try:
            yield dsn_at(
                urllib.parse.unquote(dsn.rpartition("@")[2].partition(":")[0]), name, password, "postgres"
            )
        finally:
            await admin.execute("DROP DATABASE IF EXISTS rt_registry WITH (FORCE)")  # where it built
            await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    finally:
        await admin.close()


@contextlib.asynccontextmanager
async def made(server: Server) -> AsyncIterator[Template]:
    template = await build_template(server, seed_of(_SQL), role="reader", today=TODAY)
    try:
        yield template
    finally:
        await drop_template(server, template)


@pytest.mark.parametrize("rights", ["SUPERUSER", "CREATEDB CREATEROLE"])
async def test_a_fork_that_takes_every_lock_is_ended(foreign: str, rights: str) -> None:
    async with (
        made_role(foreign, rights) as dsn,
        open_server(dsn) as server,
        made(server) as template,
        open_registry(server) as registry,
    ):
        fork = await create_fork(server, template, lifetime_s=600, registry=registry)
        async with connected_as(fork) as agent:
            with pytest.raises(asyncpg.OutOfMemoryError):
                await agent.execute("SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 1000000) g")
            with pytest.raises(ForkUnavailable, match="says nothing of the agent"):
                await close_fork(server, fork, settle_s=0.05, registry=registry)
        assert await drop_fork(server, fork, registry=registry)


@pytest.mark.parametrize("rights", ["SUPERUSER", "CREATEDB CREATEROLE"])
async def test_whole_life_of_a_fork(foreign: str, rights: str) -> None:
    # P15, P20: what each version does not know is not asked of it, nor what a plain role may not.
    async with made_role(foreign, rights) as dsn, open_server(dsn) as server:
        assert (server.facts.superuser, server.facts.shared) == (rights == "SUPERUSER", False)
        async with made(server) as template:
            again = await build_template(server, seed_of(_SQL), role="reader", today=TODAY)
            assert (again.name, again.from_cache, again.created_roles) == (template.name, True, ("reader",))
            async with made_fork(server, template) as fork:
                async with connected_as(fork) as agent:
                    await agent.execute("UPDATE t SET note = 'both'; INSERT INTO t VALUES (3, 'three')")
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        async with connected_as(fork, template.baseline):
                            pass
                    assert (await close_fork(server, fork)).late == 0
                changes = await collect_changes(
                    server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
                )
            assert fork.name not in await list_forks(server)
    rows = [(row.op, row.new) for table in changes.tables for row in table.rows]
    assert rows == [
        ("update", {"id": "2", "note": "both"}),
        ("insert", {"id": "3", "note": "three"}),
    ]
    assert await left_on(foreign) == []


async def left_on(dsn: str) -> list[str]:
    """Databases and roles that a server of others does not have by itself."""
    admin = await asyncpg.connect(dsn)
    try:
        rows = await admin.fetch(
            "SELECT datname AS name FROM pg_database WHERE datname ~ '^rt_' "
            "UNION SELECT rolname FROM pg_roles WHERE rolname ~ '^(rt_|reader|stranger_)'"
        )
    finally:
        await admin.close()
    return [row["name"] for row in rows]


async def test_settings_for_containers_are_known_to_every_version(foreign: str) -> None:
    # P15: an unknown one would keep the server from starting.
    names = {flag.partition("=")[0] for flag in settings.command_flags()[1::2]}
    async with open_server(foreign) as server, connected(server) as session:
        known = {row["name"] for row in await session.fetch("SELECT name FROM pg_settings")}
    assert {name.lower() for name in names} - {name.lower() for name in known} == set()


async def test_interrupted_drop_is_finished(foreign: str) -> None:
    # P17: any ALTER on such a database would end our session.
    async with (
        open_server(foreign) as server,
        made(server) as template,
        made_fork(server, template) as fork,
        connected(server) as admin,
    ):
        await admin.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = $1", fork.name)
        await drop_fork(server, fork)
        assert fork.name not in await list_forks(server)


async def test_collation_that_changed_under_a_template_is_told_with_the_way_out(foreign: str) -> None:
    # P18: another version of the operating system's or ICU's rules, as after an image was changed.
    source, name = (f"scratch_{secrets.token_hex(4)}" for _ in range(2))
    admin = await asyncpg.connect(foreign)
    try:
        try:
            await admin.execute(
                f"CREATE DATABASE {source} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
            )
        except asyncpg.PostgresError as error:
            pytest.skip(f"these programs are built without ICU: {error}")
        try:
            await admin.execute("UPDATE pg_database SET datcollversion = '1.2.3' WHERE datname = $1", source)
            with (
                pytest.raises(ForkUnavailable, match="REFRESH COLLATION VERSION on the template"),
                _pg.translated(f"cannot make fork {name!r}", ForkUnavailable),
            ):
                await database.clone(admin, name, source, file_copy=True)
        finally:
            await admin.execute(f"DROP DATABASE {source}")
    finally:
        await admin.close()
