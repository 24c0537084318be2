"""Whatever a fork's role does or holds, its fork can be closed, compared and dropped, and so can others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import asyncpg
import pytest
from support.databases import connected, scratch_database, until_active
from support.forks import connected_as, made_fork, made_template

from redteam_forker import database
from redteam_forker.changes import collect_changes
from redteam_forker.errors import DropFailed
from redteam_forker.fork import close_fork, create_fork, drop_fork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_SEED = """
CREATE TABLE stock (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO stock VALUES (1, 'one'), (2, 'two');
GRANT ALL ON stock TO holder;
"""
_DEADLINE_S = 15


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, _SEED, role="holder") as made:
        yield made


async def is_gone(server: Server, fork: Fork) -> bool:
    async with connected(server) as session:
        left = await session.fetchval(
            "SELECT (SELECT count(*) FROM pg_database WHERE datname = $1)"
            " + (SELECT count(*) FROM pg_roles WHERE rolname = $1)"
            " + (SELECT count(*) FROM pg_stat_activity WHERE usename = $1)",
            fork.name,
        )
    return int(left) == 0


_HELD = {
    "open transaction": ["BEGIN", "UPDATE stock SET name = 'open'"],
    "no time limits": [
        "SET idle_in_transaction_session_timeout = 0",
        "SET statement_timeout = 0",
        "BEGIN",
        "SELECT 1",
    ],
    "exclusive lock on a table": ["BEGIN", "LOCK TABLE stock IN ACCESS EXCLUSIVE MODE"],
    "cursor that is held": ["DECLARE c CURSOR WITH HOLD FOR SELECT * FROM stock"],
    "prepared statement": ["PREPARE p AS SELECT * FROM stock"],
    "temporary tables": ["BEGIN", "CREATE TEMP TABLE t AS SELECT * FROM stock"],
    "large object": ["SELECT lo_from_bytea(0, 'mine')"],
    "exported snapshot": ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT pg_export_snapshot()"],
    # P53
    "listener in a transaction": ["LISTEN c", "BEGIN", "NOTIFY c", "SELECT 1"],
    # Advisory locks are each database's own, so ours, of which this is one, are out of reach (P12).
    "advisory lock": ["SELECT pg_advisory_lock(1920204801)", "SELECT pg_advisory_lock_shared(7)"],
    # P48: what a role may do to itself.
    "no password": ["ALTER ROLE CURRENT_USER PASSWORD NULL"],
    "settings of its own": [
        "ALTER ROLE CURRENT_USER SET default_transaction_read_only = on",
        "ALTER ROLE CURRENT_USER SET local_preload_libraries = 'nothing'",
        "ALTER ROLE CURRENT_USER SET search_path = nowhere",
    ],
    "all its rights given up": ["DROP OWNED BY CURRENT_USER"],
    "its rights given away": ['GRANT CONNECT ON DATABASE "{fork}" TO PUBLIC', "GRANT ALL ON stock TO PUBLIC"],
    "its settings for another database": [
        "ALTER ROLE CURRENT_USER IN DATABASE \"{other}\" SET work_mem = '1MB'",
        "ALTER ROLE CURRENT_USER IN DATABASE \"{template}\" SET work_mem = '1MB'",
    ],
}


@pytest.mark.parametrize("held", _HELD)
async def test_what_a_session_holds_keeps_no_fork_alive(
    server: Server, template: Template, held: str
) -> None:
    async with made_fork(server, template) as fork, made_fork(server, template) as other:
        async with connected_as(fork) as agent:
            for statement in _HELD[held]:
                await agent.execute(
                    statement.format(fork=fork.name, other=other.name, template=template.name)
                )
            with anyio.fail_after(_DEADLINE_S):
                await close_fork(server, fork, settle_s=0.05)
                # P71: whatever was open is rolled back, and the rows can be read.
                changes = await collect_changes(
                    server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
                )
                await drop_fork(server, fork)
        assert changes.tables == ()
        assert await is_gone(server, fork)
        async with connected_as(other) as neighbour:
            assert await neighbour.fetchval("SELECT count(*) FROM stock") == 2


@pytest.mark.parametrize("held", _HELD)
async def test_a_fork_that_was_not_closed_is_dropped_all_the_same(
    server: Server, template: Template, held: str
) -> None:
    async with made_fork(server, template) as other:
        fork = await create_fork(server, template, lifetime_s=60)
        async with connected_as(fork) as agent:
            for statement in _HELD[held]:
                await agent.execute(
                    statement.format(fork=fork.name, other=other.name, template=template.name)
                )
            with anyio.fail_after(_DEADLINE_S):
                await drop_fork(server, fork)
        assert await is_gone(server, fork)


async def test_a_role_that_is_changing_itself_can_be_shut_out(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        await agent.execute("BEGIN; ALTER ROLE CURRENT_USER PASSWORD 'x'")
        with anyio.fail_after(2):
            await close_fork(server, fork, settle_s=0.05)


@pytest.mark.parametrize(
    ("statement", "victim"),
    [
        pytest.param(
            "ALTER ROLE CURRENT_USER PASSWORD 'x'",
            "own",
            id="its own row",
        ),
        pytest.param(
            "ALTER ROLE CURRENT_USER IN DATABASE \"{own}\" SET work_mem = '1MB'",
            "own",
            id="its own database",
        ),
        pytest.param(
            "ALTER ROLE CURRENT_USER IN DATABASE \"{other}\" SET work_mem = '1MB'",
            "other",
            id="another fork's database",
        ),
    ],
)
async def test_no_lock_that_a_role_can_take_keeps_a_fork_alive(
    server: Server, template: Template, monkeypatch: pytest.MonkeyPatch, statement: str, victim: str
) -> None:
    async with (
        made_fork(server, template) as fork,
        made_fork(server, template) as other,
        connected_as(fork) as agent,
    ):
        await agent.execute("BEGIN")
        await agent.execute(statement.format(own=fork.name, other=other.name))
        with monkeypatch.context() as patch:
            patch.setattr(database, "DROP_TIMEOUT_S", 2.0)
            await drop_fork(server, {"own": fork, "other": other}[victim])


async def test_a_statement_that_swallows_its_cancellation_is_ended(
    server: Server, template: Template
) -> None:
    stubborn = """
        DO $$ BEGIN LOOP
          BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END;
        END LOOP; END $$
    """
    async with (
        made_fork(server, template) as fork,
        connected_as(fork) as agent,
        anyio.create_task_group() as tasks,
    ):

        async def hang() -> None:
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await agent.execute(stubborn)

        tasks.start_soon(hang)
        async with connected(server) as admin:
            await until_active(admin, "%PERFORM pg_sleep(60)%")
        with anyio.fail_after(_DEADLINE_S):
            settled = await close_fork(server, fork, settle_s=0.05)
        assert settled.late == 1


async def test_a_client_that_keeps_coming_back_does_not_stop_the_drop(
    server: Server, template: Template
) -> None:
    # P31: NOLOGIN first, or a pool would be in again between the end of its session and the drop.
    fork = await create_fork(server, template, lifetime_s=60)
    seen = 0

    async def come_back() -> None:
        nonlocal seen
        while True:
            try:
                async with connected_as(fork) as agent:
                    await agent.execute("SELECT 1")
                    seen += 1
            except (asyncpg.InvalidCatalogNameError, asyncpg.InvalidPasswordError):
                return
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await anyio.lowlevel.checkpoint()

    with anyio.fail_after(_DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(come_back)
            while seen < 10:  # noqa: ASYNC110 - until all are at it
                await anyio.sleep(0.001)
            await drop_fork(server, fork)
    assert await is_gone(server, fork)


async def test_what_bears_the_role_elsewhere_is_told_and_not_left_unsaid(
    server: Server, template: Template
) -> None:
    # P38: a fork that cannot be dropped whole is an error, never silence.
    fork = await create_fork(server, template, lifetime_s=60)
    async with scratch_database(server) as name, connected(server) as admin:
        await admin.execute(f'ALTER DATABASE {name} OWNER TO "{fork.name}"')
        with pytest.raises(DropFailed, match="some objects depend on it"):
            await drop_fork(server, fork)
        await admin.execute(f"ALTER DATABASE {name} OWNER TO CURRENT_USER")
    await drop_fork(server, fork)
    assert await is_gone(server, fork)
