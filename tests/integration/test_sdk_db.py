"""`db` gives a conversation its own fork, and an armed process never production; it leaks nothing."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import traceback
import warnings
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import anyio.to_thread
import asyncpg
import pytest
from support.conversations import MINTER, conversation, no_session_left, recorded, sessions
from support.databases import connected
from support.sdk import armed, context_for, fork, production, unconfigured

from redteam_sdk import db, lifetimes
from redteam_sdk.context import bind, bound
from redteam_sdk.errors import EnvironmentFault, NoContext, UsageError
from redteam_sdk.lifetimes import fork_of

if TYPE_CHECKING:
    from redteam_forker.servers import Server
    from redteam_sdk.context import Context


async def sleeping(server: Server, context: Context) -> None:
    """Wait, within a bound, until a statement of the fork sleeps: a request to cancel it cannot be missed."""
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep'"
    async with connected(server) as admin:
        with anyio.fail_after(10):
            while not await admin.fetchval(asleep, context.user):
                await admin.execute("SELECT pg_sleep(0.01)")


async def test_production_is_used_where_nothing_is_armed(server: Server) -> None:
    async with production(server) as place:
        assert await db.fetchval("SELECT current_database()") == place.database
        assert db.dsn() == place.dsn()
        assert await db.execute("CREATE TABLE t (n int)") == "CREATE TABLE"
        async with db.transaction() as conn:
            await conn.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with db.transaction() as conn:
                await conn.execute("INSERT INTO t VALUES (2); SELECT 1 / 0")
        assert [row["n"] for row in await db.fetch("SELECT n FROM t")] == [1]
        assert await db.fetchrow("SELECT n FROM t WHERE n > $1", 5) is None
        assert (await (await db.pool()).fetchval("SELECT 7")) == 7
    await no_session_left(server, place)


async def test_database_url_is_read_at_the_first_use_of_production(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fork(server) as place:
        with unconfigured():
            monkeypatch.delenv("DATABASE_URL", raising=False)
            with pytest.raises(UsageError, match=r"db\.configure.*DATABASE_URL"):
                await db.fetchval("SELECT 1")
            monkeypatch.setenv("DATABASE_URL", place.dsn())
            assert await db.fetchval("SELECT current_database()") == place.database
            await db.close()


async def test_given_pool_is_used_and_stays_its_owners(server: Server) -> None:
    async with fork(server) as place, asyncpg.create_pool(place.dsn(), min_size=0) as pool:
        with unconfigured():
            db.configure(pool=pool)
            assert await db.fetchval("SELECT current_database()") == place.database
            with pytest.raises(UsageError, match="configured with a pool"):
                db.dsn()
            await db.close()
            assert not pool.is_closing()


async def test_production_is_one_place_for_the_life_of_the_process(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fork(server) as place, fork(server) as other:
        with unconfigured():
            monkeypatch.setenv("DATABASE_URL", place.dsn())
            assert await db.fetchval("SELECT current_database()") == place.database
            monkeypatch.setenv("DATABASE_URL", other.dsn())
            # Nor does another loop, begun later in a thread, read it anew.
            use = lambda: asyncio.run(db.fetchval("SELECT current_database()"))  # noqa: E731
            assert await asyncio.to_thread(use) == place.database
            assert db.dsn() == place.dsn()
            await db.close()


async def test_configured_anew_holds_from_then_on_and_cuts_nothing_that_is_in_use(server: Server) -> None:
    async with fork(server) as place, fork(server) as other:
        with unconfigured():
            db.configure(place.dsn())
            async with db.connection() as conn:
                db.configure(other.dsn())
                assert await db.fetchval("SELECT current_database()") == other.database
                assert await conn.fetchval("SELECT current_database()") == place.database
            db.configure(other.dsn())  # the same again changes nothing
            assert await db.fetchval("SELECT current_database()") == other.database
            await db.close()
        for context in (place, other):
            await no_session_left(server, context)


async def test_child_process_makes_connections_of_its_own(server: Server) -> None:
    async with production(server) as place:
        assert await db.fetchval("SELECT current_database()") == place.database
        async with db.connection() as conn:
            pid = await conn.fetchval("SELECT pg_backend_pid()")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from 3.12 on: there are threads, none of which matters here
                child = os.fork()
            if child == 0:
                status = 1
                try:
                    seen = asyncio.run(db.fetchrow("SELECT current_database() AS d, pg_backend_pid() AS p"))
                    status = 0 if seen is not None and seen["d"] == place.database and seen["p"] != pid else 2
                finally:
                    os._exit(status)
            assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
            assert await conn.fetchval("SELECT pg_backend_pid()") == pid  # the child touched nothing of ours


async def test_fork_whose_sessions_are_all_taken_is_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with conversation(server) as context:
        taken = [await asyncpg.connect(context.dsn()) for _ in range(5)]
        asked, again = itertools.count(1), anyio.Event()
        acquire = asyncpg.Pool.acquire

        def watched(self: asyncpg.Pool, **options: Any) -> Any:
            if next(asked) == 2:
                again.set()
            return acquire(self, **options)

        monkeypatch.setattr(asyncpg.Pool, "acquire", watched)

        async def free_one() -> None:
            await again.wait()
            await taken.pop().close()

        async with anyio.create_task_group() as group:
            group.start_soon(free_one)
            assert await db.fetchval("SELECT current_database()") == context.database
        async with db.connection():
            with pytest.raises(EnvironmentFault, match="gave no connection"):
                async with db.connection(timeout=0.3):
                    pytest.fail("a sixth session was given")
        for connection in taken:
            await connection.close()


async def test_what_was_held_for_a_fork_is_let_go_once_its_token_is_long_over(server: Server) -> None:
    async with fork(server) as old, fork(server) as new:
        with armed(MINTER, server.facts.host):
            with bound(old):
                assert await db.fetchval("SELECT 1") == 1
            lifetimes._until[fork_of(old)] = datetime.now(UTC) - timedelta(hours=1)
            with bound(new):
                assert await db.fetchval("SELECT 1") == 1
            await no_session_left(server, old)
            await db.close_context(new)


def test_configure_takes_one_of_the_two() -> None:
    with pytest.raises(UsageError):
        db.configure()


async def test_conversation_sees_its_fork_and_production_never_again(server: Server) -> None:
    async with production(server) as place:
        async with conversation(server) as context:
            assert await db.fetchval("SELECT current_database()") == context.database
            assert await db.fetchval("SELECT current_user") == context.user
            assert db.dsn() == context.dsn()
        assert (
            await db.fetchval("SELECT current_database()") == place.database
        )  # disarmed: only tests do that


async def test_environment_of_production_does_not_bend_the_way_to_a_fork(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    production_settings = {
        "PGHOST": "production.invalid",
        "PGPORT": "1",
        "PGUSER": "root",
        "PGPASSWORD": "x",
        "PGDATABASE": "production",
        "PGTARGETSESSIONATTRS": "standby",
        "PGSSLMODE": "verify-full",
        "PGSERVICE": "production",
        "DATABASE_URL": "postgresql://root:x@production.invalid/production",
    }
    async with conversation(server) as context:
        with monkeypatch.context() as environment:
            for name, value in production_settings.items():
                environment.setenv(name, value)
            assert await db.fetchval("SELECT current_database()") == context.database


async def test_twenty_conversations_at_once_see_only_their_own_fork(server: Server) -> None:
    sql = "CREATE TABLE slot (owner text); INSERT INTO slot VALUES ('')"
    seen: dict[str, str] = {}

    async def talk(context: Context) -> None:
        with bind(MINTER.mint(context)):
            for _ in range(3):
                await db.execute("UPDATE slot SET owner = owner || $1", f"{context.conversation} ")
            seen[context.conversation] = await db.fetchval("SELECT owner FROM slot")
        await db.close_context(context)

    async with AsyncExitStack() as forks:
        names = [f"c{number:03}" for number in range(20)]
        contexts = [await forks.enter_async_context(fork(server, name, sql)) for name in names]
        with armed(MINTER, server.facts.host):
            async with anyio.create_task_group() as talks:
                for context in contexts:
                    talks.start_soon(talk, context)
    assert seen == {name: f"{name} " * 3 for name in names}


async def test_parallel_tools_never_share_a_connection_and_never_exceed_three(server: Server) -> None:
    async with conversation(server) as context:
        pids: list[int] = []
        together = anyio.Event()

        async def work() -> None:
            async with db.connection() as conn:
                pids.append(await conn.fetchval("SELECT pg_backend_pid()"))
                if len(pids) == 3:
                    together.set()
                await together.wait()

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(work)
        assert len(set(pids[:3])) == 3
        assert len(set(pids)) == 3
        assert await sessions(server, context) == 3


async def test_cancelled_task_leaves_no_dirty_connection(server: Server) -> None:
    sql = "CREATE TABLE t (n int); INSERT INTO t VALUES (1)"
    async with conversation(server, sql=sql) as context:

        async def half_done() -> None:
            async with db.connection() as conn:
                await conn.execute("BEGIN")
                await conn.execute("UPDATE t SET n = 99")
                await conn.execute("SET search_path = nowhere")
                await conn.execute("SELECT pg_sleep(60)")

        for _ in range(3):
            async with anyio.create_task_group() as group:
                group.start_soon(half_done)
                await sleeping(server, context)
                group.cancel_scope.cancel()
        for _ in range(4):
            async with db.connection() as conn:
                assert not conn.is_in_transaction()
                assert await conn.fetchval("SELECT n FROM t") == 1  # and finds t: search_path was reset


async def test_leaked_connections_make_a_clear_fault_that_the_agent_cannot_swallow(server: Server) -> None:
    async with conversation(server) as context:
        pool = await db.pool()
        leaked = [await pool.acquire() for _ in range(3)]
        with (
            recorded() as events,
            pytest.raises(EnvironmentFault, match="none of its 3 connections came free"),
        ):
            async with db.connection(timeout=0.05):
                pytest.fail("a fourth connection was given")
        assert [(event["kind"], event["cause"]) for event in events] == [("fault", "environment")]
        del leaked
        with anyio.fail_after(10):
            await db.close_context(context)  # cuts what is not given back
        await no_session_left(server, context)


async def test_end_of_a_conversation_closes_its_sessions_and_refuses_late_tasks(server: Server) -> None:
    async with fork(server) as context:
        with armed(MINTER, context.host):
            go, outcome = anyio.Event(), list[BaseException]()

            async def late() -> None:
                await go.wait()
                for use in (db.fetchval("SELECT 1"), db.pool()):
                    with pytest.raises(NoContext, match="is over") as caught:
                        await use
                    outcome.append(caught.value)
                with pytest.raises(NoContext, match="is over"):
                    db.dsn()

            async with anyio.create_task_group() as group:
                with bind(MINTER.mint(context)):
                    assert await db.fetchval("SELECT 1") == 1
                    group.start_soon(late)
                await db.close_context(context)
                await no_session_left(server, context)
                go.set()
            assert len(outcome) == 2
            await db.close_context(context)  # again is harmless


async def test_pools_of_other_event_loops_are_closed_with_their_loop(server: Server) -> None:
    async with conversation(server) as context:

        def tool_of_a_framework_without_async() -> str:
            # Each asyncio.run is a loop of its own; seven of them would break a role limit of five.
            seen = [str(asyncio.run(db.fetchval("SELECT current_database()"))) for _ in range(7)]
            return seen[-1]

        assert await asyncio.to_thread(tool_of_a_framework_without_async) == context.database
        await no_session_left(server, context)


async def test_end_of_a_conversation_closes_its_pools_in_other_running_loops(server: Server) -> None:
    async with conversation(server) as context:
        ready, stop = threading.Event(), threading.Event()

        async def elsewhere() -> None:
            assert await db.fetchval("SELECT 1") == 1
            ready.set()
            await asyncio.to_thread(stop.wait, 20)

        async with anyio.create_task_group() as group:
            group.start_soon(asyncio.to_thread, asyncio.run, elsewhere())
            await asyncio.to_thread(ready.wait, 10)
            assert await sessions(server, context) == 1
            await db.close_context(context)
            await no_session_left(server, context)
            stop.set()


async def test_fork_that_cannot_be_reached_is_our_fault_and_tells_no_secret(server: Server) -> None:
    async with fork(server) as context:
        wrong = replace(context, password="not-the-secret-that-it-is")
        gone = replace(context, database="sdk_gone", token_id="another")
        with armed(MINTER, context.host, "/nowhere"):
            for broken in (wrong, gone, context_for(host="/nowhere")):
                with bound(broken), pytest.raises(EnvironmentFault, match="gave no connection") as caught:
                    await db.fetchval("SELECT 1")
                text = "".join(traceback.format_exception(caught.value))
                assert broken.password not in text
                assert caught.value.__context__ is None
                await db.close_context(broken)
