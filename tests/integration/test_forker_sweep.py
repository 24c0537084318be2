"""A sweep takes away what nobody uses, whatever is in its way, and tells what it leaves."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import asyncpg
import pytest
from support.databases import connected
from support.forks import TODAY, connected_as, made_template, seed_of
from support.servers import own_cluster

from redteam_forker import database
from redteam_forker.database import vacuum_catalogs
from redteam_forker.fork import create_fork, drop_by_name, list_forks
from redteam_forker.ledger import builders_lock, entries_of
from redteam_forker.names import build_name, fork_name, template_name
from redteam_forker.registry import open_registry
from redteam_forker.servers import binaries, open_server
from redteam_forker.sweep import sweep
from redteam_forker.template import build_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text); -- "
_HASH = "cd" * 32


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, _TABLE + "swept") as made:
        yield made


async def orphan(server: Server, template: Template) -> Fork:
    """A fork whose launcher has left without dropping it."""
    async with open_registry(server) as registry:
        return await create_fork(server, template, lifetime_s=60, registry=registry)


async def exists(server: Server, name: str) -> bool:
    async with connected(server) as session:
        return bool(
            await session.fetchval(
                "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
                " OR EXISTS (SELECT FROM pg_roles WHERE rolname = $1)",
                name,
            )
        )


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param('ALTER DATABASE "{0}" IS_TEMPLATE true', id="made-a-template"),  # P34
        pytest.param("UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{0}'", id="invalid"),  # P17
        pytest.param('ALTER DATABASE "{0}" ALLOW_CONNECTIONS false', id="closed"),
        pytest.param('ALTER DATABASE "{0}" CONNECTION LIMIT 0', id="no-connections"),  # P24
        pytest.param('DROP DATABASE "{0}"', id="database-gone"),
        pytest.param('DROP DATABASE "{0}"; DROP ROLE "{0}"', id="all-gone-but-the-row"),
        pytest.param('ALTER ROLE "{0}" SET search_path = nowhere', id="role-has-settings"),  # P48
    ],
)
async def test_orphan_goes_in_whatever_state_it_is(server: Server, template: Template, damage: str) -> None:
    fork = await orphan(server, template)
    async with connected(server) as session:
        for statement in damage.format(fork.name).split("; "):
            await session.execute(statement)
    swept = await sweep(server)
    assert (swept.dropped, swept.failed) == ((fork.name,), ())
    assert not await exists(server, fork.name)
    assert await entries_of(server) == ()


async def test_orphan_that_is_in_use_goes(server: Server, template: Template) -> None:  # P31
    fork = await orphan(server, template)
    async with connected_as(fork) as agent:
        await agent.execute("BEGIN; INSERT INTO t VALUES (1)")
        assert (await sweep(server)).dropped == (fork.name,)


async def test_dry_run_says_the_same_and_drops_nothing(server: Server, template: Template) -> None:
    fork = await orphan(server, template)
    half = build_name(server.facts.instance, _HASH)
    async with connected(server) as session:
        await session.execute(f'CREATE DATABASE "{half}" STRATEGY FILE_COPY')
    would = await sweep(server, dry_run=True)
    assert set(would.would_drop) == {fork.name, half}
    assert would.dropped == ()
    assert await exists(server, fork.name)
    assert set((await sweep(server)).dropped) == set(would.would_drop)


async def test_what_cannot_be_dropped_is_told_and_the_rest_goes(server: Server, template: Template) -> None:
    stuck, other = await orphan(server, template), await orphan(server, template)
    async with connected(server) as session:
        # Something else that the role may do keeps the role from being dropped.
        await session.execute(f'GRANT CONNECT ON DATABASE postgres TO "{stuck.name}"')
        async with open_registry(server) as registry:
            swept = await sweep(server, registry=registry)  # P38
            assert swept.dropped == (other.name,)
            assert [failure.name for failure in swept.failed] == [stuck.name]
            assert "cannot be dropped because some objects depend on it" in swept.failed[0].reason
            assert [entry.state for entry in await registry.entries()] == ["dropping"]
            await session.execute(f'REVOKE CONNECT ON DATABASE postgres FROM "{stuck.name}"')
            assert (await sweep(server, registry=registry)).dropped == (stuck.name,)


async def test_drops_that_take_too_long_are_told_and_the_rest_is_left_alone(
    server: Server, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:  # P36
    names = [(await orphan(server, template)).name for _ in range(3)]
    async with connected(server) as session:
        transaction = session.transaction()
        await transaction.start()
        for name in names:  # as a process does that does not answer
            await session.execute(f'ALTER DATABASE "{name}" RENAME TO "{name}_busy"')
        with monkeypatch.context() as patched:
            patched.setattr(database, "DROP_TIMEOUT_S", 0.2)
            swept = await sweep(server)
        await transaction.rollback()
    assert [failure.name for failure in swept.failed] == names
    assert ["not done after" in failure.reason for failure in swept.failed] == [True, True, False]
    assert set((await sweep(server)).dropped) == set(names)


async def test_fork_that_changed_hands_meanwhile_is_left_alone(server: Server, template: Template) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        (entry,) = await entries_of(server)
        async with open_registry(server) as other:
            assert await registry.move(fork.name, "closing") == "closing"
            assert not await other.claim(entry)
        assert await drop_by_name(server, fork.name, registry=registry)


async def test_sweeps_at_once_drop_each_fork_once(server: Server, template: Template) -> None:
    names = {(await orphan(server, template)).name for _ in range(6)}
    dropped: list[str] = []

    async def run() -> None:
        swept = await sweep(server)
        assert swept.failed == ()
        dropped.extend(swept.dropped)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run)
    assert sorted(dropped) == sorted(names)


async def test_unregistered_is_reported_and_goes_only_when_old_and_asked_for(
    server: Server, template: Template
) -> None:  # P40
    fork = await create_fork(server, template, lifetime_s=60)
    foreign = fork.name.replace("rt_", "rtx", 1)  # P41
    other_server = fork_name("aaaa", _HASH)
    async with connected(server) as session:
        for name in (foreign, other_server):
            await session.execute(f'CREATE DATABASE "{name}" STRATEGY FILE_COPY')
        try:
            young = await sweep(server, unregistered=True)
            assert (young.reported, young.dropped) == ((fork.name,), ())
            await make_old(session, fork.name)
            assert (await sweep(server)).reported == (fork.name,)
            assert (await sweep(server, unregistered=True, dry_run=True)).would_drop == (fork.name,)
            old = await sweep(server, unregistered=True)
            assert (old.reported, old.dropped) == ((), (fork.name,))
            assert await exists(server, foreign)
            assert await exists(server, other_server)
        finally:
            for name in (foreign, other_server):
                await session.execute(f'DROP DATABASE "{name}"')


async def make_old(session: asyncpg.Connection, name: str) -> None:
    """As if the database had been made an hour ago: its age is that of a file."""
    path = await session.fetchval(
        "SELECT current_setting('data_directory') || '/base/' || oid || '/PG_VERSION' FROM pg_database"
        " WHERE datname = $1",
        name,
    )
    await anyio.to_thread.run_sync(lambda: subprocess.run(["touch", "-d", "1 hour ago", path], check=True))


async def test_kept_fork_that_somebody_dropped_by_hand_is_forgotten(
    server: Server, template: Template
) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        (entry,) = await registry.entries()
        assert await registry.keep(entry)
        async with connected(server) as session:
            await session.execute(f'DROP DATABASE "{fork.name}"')
        swept = await sweep(server, registry=registry)
        assert (swept.dropped, swept.kept, swept.failed) == ((fork.name,), (), ())
    assert not await exists(server, fork.name)


@pytest.mark.parametrize("part", ["template", "baseline", "app"])
async def test_half_of_a_template_goes_and_whole_ones_stay(
    server: Server, template: Template, part: str
) -> None:  # P12
    name = template_name(server.facts.instance, _HASH, part)
    async with connected(server) as session:
        await session.execute(
            f'CREATE ROLE "{name}"' if part == "app" else f'CREATE DATABASE "{name}" STRATEGY FILE_COPY'
        )
    assert (await sweep(server)).dropped == (name,)
    assert await exists(server, template.name)
    assert await exists(server, template.baseline)


async def test_template_that_is_being_built_is_left_alone(server: Server) -> None:
    draft = build_name(server.facts.instance, _HASH)
    async with open_registry(server) as registry:
        async with builders_lock(server), connected(server) as session:
            await session.execute(f'CREATE DATABASE "{draft}" STRATEGY FILE_COPY')
            assert (await sweep(server, registry=registry)).dropped == ()
            assert draft not in (await sweep(server, dry_run=True)).would_drop
        assert (await sweep(server, registry=registry)).dropped == (draft,)


async def test_damaged_template_whose_forks_live_is_left_alone(server: Server) -> None:
    async with open_registry(server) as registry:
        seed = seed_of(_TABLE + "damaged")
        template = await build_template(server, seed, role=None, today=TODAY, registry=registry)
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        async with connected(server) as session:
            await session.execute(f'DROP DATABASE "{template.baseline}"')
        assert (await sweep(server, registry=registry)).dropped == ()
        assert await drop_by_name(server, fork.name, registry=registry)
        assert set((await sweep(server, registry=registry)).dropped) == {template.name, template.group}


async def test_catalogs_are_vacuumed_when_there_is_enough_to_take_away(server: Server) -> None:  # P78
    async with connected(server) as session:
        await vacuum_catalogs(session, server.facts, many=0)
        for statement in ("CREATE ROLE vacuumed", "DROP ROLE vacuumed", "SELECT pg_stat_force_next_flush()"):
            await session.execute(statement)
        assert not await vacuum_catalogs(session, server.facts)
        assert await vacuum_catalogs(session, server.facts, many=1)
        dead = await session.fetchval(
            "SELECT n_dead_tup FROM pg_stat_sys_tables WHERE relid = 'pg_catalog.pg_authid'::regclass"
        )
        assert dead == 0


@pytest.fixture(scope="module")
async def permissive() -> AsyncIterator[Server]:
    """A server of somebody else's, on which an agent and a seed may do more."""
    settings = {"max_prepared_transactions": 10, "wal_level": "logical", "max_wal_senders": 8}
    async with own_cluster(**settings) as dsn, open_server(dsn) as server:
        yield server


@pytest.fixture
async def obstructed(permissive: Server) -> AsyncIterator[tuple[Server, Fork]]:
    async with made_template(permissive, _TABLE + "obstructed") as template:
        yield permissive, await orphan(permissive, template)
        assert await list_forks(permissive) == []


async def test_prepared_transaction_of_an_agent_does_not_save_its_fork(
    obstructed: tuple[Server, Fork],
) -> None:  # P32, P33
    server, fork = obstructed
    async with connected_as(fork) as agent:
        await agent.execute("BEGIN; INSERT INTO t VALUES (1)")
        await agent.execute("PREPARE TRANSACTION 'it''s \"mine\"'")
    async with connected(server) as session:
        await session.execute(f'ALTER DATABASE "{fork.name}" ALLOW_CONNECTIONS false')
    swept = await sweep(server)
    assert (swept.dropped, swept.failed) == ((fork.name,), ())


async def test_slot_that_somebody_reads_from_does_not_save_a_fork(
    obstructed: tuple[Server, Fork],
) -> None:  # P32
    server, fork = obstructed
    program = binaries.reachable(binaries.installed(), None) / "pg_recvlogical"
    async with connected(server, fork.name) as session:
        for slot in ("watched", "idle"):
            await session.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    where = ["-h", fork.host, "-U", "rt_admin", "-d", fork.name]
    command = [str(program), *where, "-S", "watched", "--start", "-f", "-"]
    reader = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        async with connected(server) as session:
            with anyio.fail_after(20):
                while not await session.fetchval(  # noqa: ASYNC110 - a server sets no event
                    "SELECT count(*) FROM pg_replication_slots WHERE active"
                ):
                    await anyio.sleep(0.01)
            with pytest.raises(asyncpg.ObjectInUseError):
                await session.execute(f'DROP DATABASE "{fork.name}" WITH (FORCE)')
            swept = await sweep(server)
            assert (swept.dropped, swept.failed) == ((fork.name,), ())
            assert not await session.fetchval("SELECT count(*) FROM pg_replication_slots")
    finally:
        reader.kill()
        reader.wait()


async def test_subscription_does_not_save_a_fork_and_its_publisher_hears_nothing(
    obstructed: tuple[Server, Fork],
) -> None:  # P32
    server, fork = obstructed
    async with connected(server, fork.name) as session:
        await session.execute(
            "CREATE SUBSCRIPTION news CONNECTION 'host=production.invalid' PUBLICATION p"
            " WITH (connect = false, slot_name = 'theirs')"
        )
        await session.execute("ALTER SUBSCRIPTION news ENABLE")
        with pytest.raises(asyncpg.PostgresError, match="subscription"):
            async with connected(server) as other:
                await other.execute(f'DROP DATABASE "{fork.name}" WITH (FORCE)')
    swept = await sweep(server)
    assert (swept.dropped, swept.failed) == ((fork.name,), ())
