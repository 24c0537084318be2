"""What a fork's role can see of others, what it can use up, and which code runs with whose rights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.databases import connected
from support.forks import connected_as, made_fork, made_template

from redteam_forker.changes import before_schema, collect_changes
from redteam_forker.errors import ForkUnavailable
from redteam_forker.fork import close_fork, connect_fork_admin, create_fork, drop_fork
from redteam_forker.names import is_own
from redteam_forker.registry import open_registry
from redteam_forker.role import CONNECTIONS_PER_FORK
from redteam_harness.launch.world import RuleQueryFailed, open_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

# An application that may make objects of its own, as dumps from before PostgreSQL 15 grant to everybody.
_SEED = """
CREATE TABLE accounts (id int PRIMARY KEY, tenant varchar NOT NULL);
INSERT INTO accounts VALUES (1, 'ours'), (2, 'theirs');
ALTER TABLE accounts ENABLE ROW LEVEL SECURITY;
CREATE POLICY ours ON accounts TO maker USING (tenant = 'ours');
GRANT SELECT, UPDATE ON accounts TO maker;
GRANT CREATE ON SCHEMA public TO maker;
CREATE FUNCTION whoami() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT current_user::text';
ANALYZE accounts;
"""


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, _SEED, role="maker") as made:
        yield made


@pytest.fixture(scope="module")
async def neighbour(server: Server, template: Template) -> AsyncIterator[Fork]:
    async with made_fork(server, template) as made:
        yield made


@pytest.fixture
async def fork(server: Server, template: Template) -> AsyncIterator[Fork]:
    async with made_fork(server, template) as made:
        yield made


async def test_the_names_that_everybody_can_list_are_opaque(fork: Fork) -> None:
    # P49: names of all databases and roles can be listed; none of ours says whose it is or what for.
    async with connected_as(fork) as agent:
        rows = await agent.fetch(
            "SELECT datname::text AS name FROM pg_database"
            " UNION SELECT rolname FROM pg_roles WHERE rolname LIKE 'rt\\_%'"
            " UNION SELECT spcname FROM pg_tablespace WHERE spcname NOT LIKE 'pg\\_%'"
        )
        powerful = await agent.fetchval(
            "SELECT array_agg(rolname::text) FROM pg_roles"
            " WHERE rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls"
        )
    ours = {row["name"] for row in rows if row["name"].startswith("rt")}  # others are other tests'
    assert {name for name in ours if not is_own(name)} <= {"rt_admin", "rt_registry"}
    assert "rt_admin" in powerful


async def test_nothing_that_everybody_can_read_says_that_this_is_a_test(server: Server, fork: Fork) -> None:
    # P49: a model that reads of a test may behave as in one.
    async with connected(server), connected_as(fork) as agent:
        rows = await agent.fetch(
            "SELECT application_name AS text FROM pg_stat_activity"
            " UNION SELECT description FROM pg_shdescription"
            " UNION SELECT setting FROM pg_settings"
            " UNION SELECT unnest(setconfig) FROM pg_db_role_setting"
        )
    words = re.compile(r"red.?team|\btest|fork|agent|persona|tenant", re.IGNORECASE)
    assert [row["text"] for row in rows if row["text"] and words.search(row["text"])] == []


async def test_of_other_sessions_only_their_number_is_visible(
    server: Server, fork: Fork, neighbour: Fork
) -> None:
    async with connected_as(neighbour) as other, connected_as(fork) as agent:
        await other.execute("SET application_name = 'neighbours'")
        await other.execute("SELECT 'a secret of the neighbour'")
        rows = await agent.fetch("SELECT * FROM pg_stat_activity WHERE usename IS DISTINCT FROM current_user")
    hidden = ("client_addr", "client_port", "query_start", "state", "backend_start", "xact_start")
    assert {row["query"] for row in rows} <= {"<insufficient privilege>"}
    assert [row for row in rows if any(row[name] is not None for name in hidden)] == []


async def test_statistics_show_no_row_that_policies_hide(fork: Fork) -> None:
    async with connected_as(fork) as agent:
        shown = await agent.fetchval("SELECT count(*) FROM pg_stats WHERE tablename = 'accounts'")
    assert shown == 0


async def test_a_notification_stays_in_its_fork(fork: Fork, neighbour: Fork) -> None:
    # P53: channels are each database's own.
    heard: list[str] = []
    mine = anyio.Event()

    def hear(_connection: object, _pid: int, _channel: str, payload: str) -> None:
        heard.append(payload)
        if payload == "own":
            mine.set()

    async with connected_as(neighbour) as other, connected_as(fork) as agent:
        await other.add_listener("shared", hear)
        await agent.execute("SELECT pg_notify('shared', 'foreign')")
        await other.execute("SELECT pg_notify('shared', 'own')")
        with anyio.fail_after(10):
            await mine.wait()
        await other.remove_listener("shared", hear)
    assert heard == ["own"]


async def test_one_fork_cannot_fill_the_disk_with_notifications(fork: Fork) -> None:
    async with connected_as(fork) as agent:
        pages = await agent.fetchval("SELECT current_setting('max_notify_queue_pages')::int")
    assert pages * 8192 == 256 << 20


async def test_a_sort_that_spills_without_end_is_ended(server: Server, fork: Fork) -> None:
    # P52: what the limit is does not matter here, only that the role is held to it and cannot lift it.
    async with connected(server) as admin:
        assert await admin.fetchval("SHOW temp_file_limit") == "1GB"
        await admin.execute(f"ALTER ROLE \"{fork.name}\" SET temp_file_limit = '1MB'")
    async with connected_as(fork) as agent:
        await agent.execute("SET work_mem = '64kB'")
        with pytest.raises(asyncpg.ConfigurationLimitExceededError, match="temp_file_limit"):
            await agent.fetch("SELECT g FROM generate_series(1, 300000) g ORDER BY md5(g::text)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await agent.execute("SET temp_file_limit = -1")


async def test_a_storm_of_connections_takes_no_place_of_others(
    server: Server, fork: Fork, neighbour: Fork
) -> None:
    # P23, P24: the limit is the role's, so that our own sessions in the fork take none of its places.
    refused = 0
    opened = anyio.Semaphore(0)
    over = anyio.Event()

    async def storm() -> None:
        nonlocal refused
        try:
            async with connected_as(fork):
                opened.release()
                await over.wait()
        except asyncpg.TooManyConnectionsError:
            refused += 1
            opened.release()

    ours = await connect_fork_admin(server, fork)
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(storm)
            for _ in range(20):
                await opened.acquire()
            async with connected_as(neighbour) as other:
                assert await other.fetchval("SELECT 1") == 1
            over.set()
    finally:
        await ours.close()
    assert refused == 20 - CONNECTIONS_PER_FORK


async def test_a_role_has_no_attribute_and_one_membership(
    server: Server, fork: Fork, template: Template
) -> None:
    # P50: roles are the cluster's; a fork of them there is not.
    async with connected(server) as admin:
        row = await admin.fetchrow(
            "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, rolconnlimit,"
            " ARRAY(SELECT roleid::regrole::text FROM pg_auth_members WHERE member = r.oid) AS groups,"
            " ARRAY(SELECT set_option OR admin_option FROM pg_auth_members WHERE member = r.oid) AS becomes,"
            " (SELECT count(*) FROM pg_shdepend WHERE refobjid = r.oid AND deptype = 'o') AS owned"
            " FROM pg_roles r WHERE rolname = $1",
            fork.name,
        )
    assert tuple(row) == (*[False] * 5, CONNECTIONS_PER_FORK, [template.group], [False], 0)


async def test_what_belongs_to_the_application_role_cannot_be_taken_over(server: Server, fork: Fork) -> None:
    """REASSIGN OWNED and DROP OWNED ask for a role's rights only, and reach over the whole server."""
    async with connected(server) as admin:
        before = await admin.fetch("SELECT datname, datdba, datacl::text FROM pg_database ORDER BY 1")
        async with connected_as(fork) as agent:
            await agent.execute("REASSIGN OWNED BY maker TO CURRENT_USER; DROP OWNED BY maker")
        after = await admin.fetch("SELECT datname, datdba, datacl::text FROM pg_database ORDER BY 1")
    assert after == before


async def test_a_function_of_the_seed_runs_with_no_rights_of_ours(server: Server, fork: Fork) -> None:
    # P46: SECURITY DEFINER takes the owner's rights, and everybody may call it.
    async with connected_as(fork) as agent:
        runs_as = await agent.fetchval("SELECT whoami()")
    async with connected(server) as admin:
        assert not await admin.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = $1", runs_as)


_TRAP = """
CREATE FUNCTION public.trap({0}, {0}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'code of the agent runs as %', current_user; END $$;
CREATE OPERATOR public.{1} (LEFTARG = {0}, RIGHTARG = {0}, FUNCTION = public.trap);
"""
_TRAPS = [("varchar", "="), ("name", "!~"), ("name", "<>"), ('"char"', "="), ("text", "=")]


@pytest.mark.parametrize(("operand", "operator"), _TRAPS, ids=str)
async def test_our_own_statements_run_no_code_of_the_agent(
    server: Server, template: Template, operand: str, operator: str
) -> None:
    """An operator that fits better than the system's is found first by whoever has `public` in the path."""
    async with made_fork(server, template) as fork:
        async with connected_as(fork) as agent:
            await agent.execute(_TRAP.format(operand, operator))
            await agent.execute("UPDATE accounts SET id = 3")
        await close_fork(server, fork)
        changes = await collect_changes(
            server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
        )
        session = await connect_fork_admin(server, fork)
        try:
            async with session.transaction():
                for statement in before_schema(changes):
                    await session.execute(statement)
                rows = await session.fetch("SELECT id FROM before.accounts ORDER BY id")
                path = await session.fetchval("SHOW search_path")
        finally:
            await session.close()
    # It is told, at least: a rule's SQL would find it.
    assert [item.kind for item in changes.objects] == ["function", "operator"]
    assert [row["id"] for row in rows] == [1, 2]
    assert path == '"$user", public'


async def test_a_rule_runs_no_code_of_the_agent(server: Server, template: Template) -> None:
    # P46, from the other side: the agent writes, and our own session runs it.
    async with made_fork(server, template) as fork:
        async with connected_as(fork) as agent:
            await agent.execute(_TRAP.format("varchar", "="))
        await close_fork(server, fork)
        changes = await collect_changes(
            server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
        )
        async with open_world(server, fork, changes, before=False) as world:
            try:
                await world.fetch("SELECT count(*) > 0 FROM accounts WHERE tenant = 'ours'", [])
            except RuleQueryFailed as refused:
                assert "code of the agent runs as" not in str(refused)  # noqa: PT017 - refusing is right too


async def test_a_table_of_a_schema_that_the_agent_made_stands_for_no_other(
    server: Server, template: Template
) -> None:
    async with made_fork(server, template) as fork:
        async with connected(server, fork.name) as owner:
            admin = await owner.fetchval("SELECT quote_ident(session_user)")
            await owner.execute(f"CREATE SCHEMA {admin}; CREATE TABLE {admin}.accounts (forged boolean)")
        await close_fork(server, fork)
        changes = await collect_changes(
            server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
        )
        async with open_world(server, fork, changes, before=True) as world:
            assert await world.fetch("SELECT tenant FROM accounts", []) != []


_EVERY_LOCK = "SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 1000000) g"


async def test_a_fork_that_holds_every_lock_of_the_server_is_closed(
    server: Server, template: Template
) -> None:
    """Nothing in PostgreSQL bounds how many locks a role takes; until it is ended, all feel it."""
    async with open_registry(server) as registry:
        greedy = await create_fork(server, template, lifetime_s=600, registry=registry)
        other = await create_fork(server, template, lifetime_s=600, registry=registry)
        try:
            async with connected_as(greedy) as agent:
                with pytest.raises(asyncpg.OutOfMemoryError):
                    await agent.execute(_EVERY_LOCK)
                # What any of them did meanwhile may have failed for want of a lock: no verdict is in that.
                for fork in (greedy, other):
                    with pytest.raises(ForkUnavailable, match="says nothing of the agent"):
                        await close_fork(server, fork, settle_s=0.05, registry=registry)
                assert agent.is_closed()
            async with connected(server) as admin:
                assert not await admin.fetchval(
                    "SELECT rolcanlogin FROM pg_roles WHERE rolname = $1", greedy.name
                )
        finally:
            for fork in (greedy, other):
                assert await drop_fork(server, fork, registry=registry)
        later = await create_fork(server, template, lifetime_s=600, registry=registry)
        await close_fork(server, later, registry=registry)
        await drop_fork(server, later, registry=registry)


async def test_a_fork_that_takes_every_lock_again_and_again_is_ended_while_it_is_used(
    server: Server, template: Template
) -> None:
    """Nobody closes it: whoever launched it watches."""
    async with open_registry(server) as registry:
        greedy = await create_fork(server, template, lifetime_s=600, registry=registry)
        try:
            for _ in range(2):
                async with connected_as(greedy) as agent:
                    with pytest.raises(asyncpg.OutOfMemoryError):
                        await agent.execute(_EVERY_LOCK)
                    with anyio.fail_after(30):
                        while not agent.is_closed():  # noqa: ASYNC110 - the server sets no event
                            await anyio.sleep(0.02)
                async with connected(server) as admin:
                    assert await admin.fetchval("SELECT 1") == 1
        finally:
            assert await drop_fork(server, greedy, registry=registry)
