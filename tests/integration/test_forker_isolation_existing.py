"""On a server that somebody else runs some walls are thinner: these tests say which, and what is left.

The server here stands for one: its pg_hba.conf lets everybody in everywhere, PUBLIC may connect to `postgres`
and `template1`, prepared transactions and logical replication are on.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.databases import connected
from support.forks import TODAY, connected_as, made_fork, made_template, seed_of

from redteam_forker.errors import ForkUnavailable
from redteam_forker.fork import create_fork, create_warm, drop_fork
from redteam_forker.ledger import BUILDERS_LOCK
from redteam_forker.servers import open_server, settings
from redteam_forker.template import build_template
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_LOOSE: dict[str, str | int] = {
    "max_prepared_transactions": 5,
    "wal_level": "logical",
    "max_wal_senders": 5,
    "max_replication_slots": 5,
}
_SEED = """
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1);
GRANT ALL ON t TO guest;
"""


@pytest.fixture(scope="module")
async def existing(anyio_backend: str) -> AsyncIterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _LOOSE.items():
            patch.setitem(settings._SETTINGS, name, value)
        patch.setattr(settings, "HBA", "local all all scram-sha-256\nlocal replication all scram-sha-256\n")
        async with open_server() as embedded:
            async with connected(embedded) as admin:
                await admin.execute("GRANT CONNECT, TEMPORARY ON DATABASE postgres TO PUBLIC")
                await admin.execute("GRANT CONNECT ON DATABASE template1 TO PUBLIC")
            host = urllib.parse.quote(embedded.facts.host, safe="")
            password = embedded.psql("postgres").env["PGPASSWORD"]
            async with open_server(
                f"postgresql://rt_admin:{password}@{host}:{embedded.facts.port}/postgres"
            ) as server:
                yield server


@pytest.fixture(scope="module")
async def template(existing: Server) -> AsyncIterator[Template]:
    async with made_template(existing, _SEED, role="guest") as made:
        yield made


async def test_grants_keep_a_fork_out_of_all_databases_of_ours(existing: Server, template: Template) -> None:
    # P26, P44: without pg_hba.conf the grants are the wall, and a clone is made with PUBLIC let in.
    async with made_fork(existing, template) as fork, made_fork(existing, template) as other:
        for name in (template.baseline, template.name, other.name):
            with pytest.raises(asyncpg.PostgresError, match=r"permission denied|not currently accepting"):
                async with connected_as(fork, name):
                    pass


async def test_what_a_fork_reaches_through_public_is_in_its_facts(
    existing: Server, template: Template
) -> None:
    async with made_fork(existing, template) as fork:
        assert fork.reaches == tuple(sorted((fork.name, "postgres", "template1")))
        async with connected_as(fork, "postgres") as agent:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await agent.execute("CREATE TABLE public.left_behind (id int)")


async def test_a_prepared_transaction_does_not_outlive_its_fork(existing: Server, template: Template) -> None:
    # P32, P33
    fork = await create_fork(existing, template, lifetime_s=60)
    async with connected_as(fork) as agent:
        await agent.execute("BEGIN; DELETE FROM t; PREPARE TRANSACTION 'stays'")
    await drop_fork(existing, fork)
    async with connected(existing) as admin:
        left = await admin.fetchval(
            "SELECT (SELECT count(*) FROM pg_prepared_xacts)"
            " + (SELECT count(*) FROM pg_database WHERE datname = $1)",
            fork.name,
        )
    assert left == 0


async def test_a_logical_slot_in_a_fork_goes_with_it(existing: Server, template: Template) -> None:
    # P32: the role cannot make one; an extension, or somebody who looked into a kept fork, can.
    fork = await create_fork(existing, template, lifetime_s=60)
    async with connected(existing, fork.name) as admin:
        await admin.execute("SELECT pg_create_logical_replication_slot('left', 'pgoutput')")
    await drop_fork(existing, fork)
    async with connected(existing) as admin:
        assert await admin.fetchval("SELECT count(*) FROM pg_replication_slots") == 0


@pytest.mark.parametrize(
    "statement", ["CREATE PUBLICATION p", "SELECT pg_create_physical_replication_slot('p')"]
)
async def test_a_fork_role_does_not_replicate_where_the_server_could(
    existing: Server, template: Template, statement: str
) -> None:
    async with made_fork(existing, template) as fork:
        async with connected_as(fork) as agent:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await agent.execute(statement)
        for mode in ("true", "database"):
            with pytest.raises(asyncpg.PostgresError, match="permission denied to start WAL sender"):
                await asyncpg.connect(
                    host=fork.host,
                    port=fork.port,
                    user=fork.user,
                    password=fork.password,
                    database=fork.database,
                    server_settings={"replication": mode},
                )


@pytest.mark.parametrize("through", ["itself", "a group"])
async def test_a_role_that_owns_a_database_cannot_be_the_application(existing: Server, through: str) -> None:
    """Its forks would inherit that, and could drop the database without ever entering it (P34, P45)."""
    async with connected(existing) as admin:
        await admin.execute("CREATE ROLE landlord; CREATE ROLE tenant; GRANT landlord TO tenant")
        await admin.execute("CREATE DATABASE the_real_one OWNER landlord STRATEGY FILE_COPY")
        role = {"itself": "landlord", "a group": "tenant"}[through]
        try:
            with pytest.raises(UsageError, match="it is the owner of database the_real_one"):
                await build_template(existing, seed_of(_SEED + f"-- {role}"), role=role, today=TODAY)
        finally:
            await admin.execute("DROP DATABASE the_real_one")
            await admin.execute("DROP ROLE landlord, tenant")


@pytest.fixture
async def resident(existing: Server) -> AsyncIterator[str]:
    """An application's role that has a real database, into which nobody else may."""
    async with connected(existing) as admin:
        await admin.execute("CREATE ROLE resident")
        await admin.execute("CREATE DATABASE the_real_one STRATEGY FILE_COPY")
        await admin.execute("REVOKE ALL ON DATABASE the_real_one FROM PUBLIC")
        await admin.execute("GRANT CONNECT ON DATABASE the_real_one TO resident")
        yield "resident"
        await admin.execute("DROP DATABASE the_real_one WITH (FORCE)")
        await admin.execute("DROP ROLE resident")


_OF_RESIDENT = "CREATE TABLE t (id int); GRANT SELECT ON t TO resident;"


@contextlib.asynccontextmanager
async def allowing(existing: Server, *names: str) -> AsyncIterator[Server]:
    """The same server, opened by somebody who allows forks to enter some databases."""
    host = urllib.parse.quote(existing.facts.host, safe="")
    password = existing.psql("postgres").env["PGPASSWORD"]
    dsn = f"postgresql://rt_admin:{password}@{host}:{existing.facts.port}/postgres"
    async with open_server(dsn, allow_databases=names) as server:
        yield server


async def names_of_ours(server: Server) -> set[str]:
    async with connected(server) as admin:
        rows = await admin.fetch(
            "SELECT datname::text AS name FROM pg_database WHERE datname ~ '^rt_'"
            " UNION SELECT rolname FROM pg_roles WHERE rolname ~ '^rt_'"
        )
    return {row["name"] for row in rows}


async def test_a_fork_does_not_reach_the_applications_real_database(
    existing: Server, template: Template, resident: str
) -> None:
    # P45: membership gives the application's rights in every database of the server.
    before = await names_of_ours(existing)
    with pytest.raises(UsageError) as refused:
        await build_template(existing, seed_of(_OF_RESIDENT), role=resident, today=TODAY)
    assert "'the_real_one' (role 'resident' may connect to it)" in str(refused.value)
    assert "--allow-database NAME" in str(refused.value)
    assert await names_of_ours(existing) == before  # and there is no template that a fork could be made of


async def test_a_real_database_that_was_allowed_by_name_is_reached_and_told(
    existing: Server, resident: str
) -> None:
    async with (
        allowing(existing, "the_real_one") as server,
        made_template(server, _OF_RESIDENT, role=resident) as made,
    ):
        async with made_fork(server, made) as fork:
            assert fork.reaches == tuple(sorted((fork.name, "postgres", "template1", "the_real_one")))
        # Found again, by somebody who does not allow it.
        with pytest.raises(UsageError, match="'the_real_one'"):
            await build_template(existing, seed_of(_OF_RESIDENT), role=resident, today=TODAY)


async def test_a_right_that_is_given_in_the_middle_of_a_launch_makes_no_fork(
    existing: Server, resident: str
) -> None:
    async with connected(existing) as admin:
        await admin.execute("REVOKE CONNECT ON DATABASE the_real_one FROM resident")
        async with made_template(existing, _OF_RESIDENT, role=resident) as made:
            before = await names_of_ours(existing)
            await admin.execute("GRANT CONNECT ON DATABASE the_real_one TO resident")
            with pytest.raises(ForkUnavailable, match="may connect to 'the_real_one', which nobody allowed"):
                await create_fork(existing, made, lifetime_s=60)
            with pytest.raises(ForkUnavailable, match="'the_real_one'"):
                await create_warm(existing, made)
            assert await names_of_ours(existing) == before


async def test_a_database_that_everybody_may_enter_is_refused_unless_it_was_allowed(existing: Server) -> None:
    """Connecting is enough to notify those who listen there, and to take their advisory locks."""
    async with connected(existing) as admin:
        await admin.execute("CREATE DATABASE somebodys STRATEGY FILE_COPY")
        try:
            with pytest.raises(UsageError, match=r"'somebodys' \(everybody may connect to it\)"):
                await build_template(existing, seed_of("CREATE TABLE u (id int);"), role=None, today=TODAY)
            async with (
                allowing(existing, "somebodys") as server,
                made_template(server, "CREATE TABLE u (id int);") as made,
                made_fork(server, made) as fork,
            ):
                assert "somebodys" in fork.reaches
        finally:
            await admin.execute("DROP DATABASE somebodys WITH (FORCE)")


@pytest.mark.parametrize(
    ("there", "made", "unmade", "said"),
    [
        ("postgres", "CREATE TABLE invoices (id int)", "DROP TABLE invoices", "table invoices"),
        ("template1", "CREATE EXTENSION dblink", "DROP EXTENSION dblink", "extension dblink"),
    ],
)
async def test_the_servers_own_databases_are_no_reach_as_long_as_nothing_is_in_them(
    existing: Server, there: str, made: str, unmade: str, said: str
) -> None:
    seed = seed_of(f"CREATE TABLE v (id int); -- {there}")
    async with connected(existing, there) as admin:
        await admin.execute(made)
    try:
        with pytest.raises(UsageError, match=f"'{there}' .everybody may connect to it, and it holds {said}"):
            await build_template(existing, seed, role=None, today=TODAY)
    finally:
        async with connected(existing, there) as admin:
            await admin.execute(unmade)
    async with made_template(existing, f"CREATE TABLE v (id int); -- {there}"):
        pass


async def test_a_fork_role_does_not_stop_the_builders(existing: Server, template: Template) -> None:
    # P12: advisory locks are each database's own, so it takes CONNECT on the one where ours are.
    async with made_fork(existing, template) as fork, connected_as(fork, "postgres") as agent:
        await agent.execute("SELECT pg_advisory_lock($1::bigint)", BUILDERS_LOCK)
        with anyio.fail_after(30):
            again = await build_template(existing, seed_of(_SEED), role="guest", today=TODAY)
        assert again.from_cache
