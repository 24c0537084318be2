"""`db` gives a conversation its own fork, and an armed process never production; it leaks nothing."""

from __future__ import annotations

import asyncio
import threading
import traceback
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import asyncpg
import pytest
from support.databases import connected
from support.sdk import Minter, armed, context_for, fork

from redteam_sdk import db, tool
from redteam_sdk.context import bind, bound
from redteam_sdk.errors import EnvironmentFault, NoContext, UsageError
from redteam_sdk.record import recording

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

MINTER = Minter()


@contextmanager
def unconfigured() -> Iterator[None]:
    """Production's settings as they were before any test."""
    before = db._production
    db._production = type(before)(None, None)
    try:
        yield
    finally:
        db._production = before


@asynccontextmanager
async def production(server: Server) -> AsyncIterator[Context]:
    """A database that plays production, which `db` is configured to use."""
    async with fork(server) as place:
        with unconfigured():
            db.configure(place.dsn())
            try:
                yield place
            finally:
                await db.close()


@asynccontextmanager
async def conversation(server: Server, name: str = "c001", sql: str = "") -> AsyncIterator[Context]:
    """A fork whose context is bound in this process for the block."""
    async with fork(server, name, sql) as context:
        with armed(MINTER, context.host), bind(MINTER.mint(context)):
            try:
                yield context
            finally:
                await db.close_context(context)


async def sessions(server: Server, context: Context) -> int:
    """How many sessions the fork's role has, by the server's own count."""
    async with connected(server) as admin:
        count: int = await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", context.user
        )
        return count


async def no_session_left(server: Server, context: Context) -> None:
    """Wait, within a bound, until the server has seen the fork's sessions end."""
    async with connected(server) as admin:
        with anyio.fail_after(10):
            while await admin.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", context.user
            ):
                await admin.execute("SELECT pg_sleep(0.01)")


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
        events: list[dict[str, Any]] = []

        class Recorder:
            def emit(self, event: dict[str, Any]) -> None:
                events.append(event)

        pool = await db.pool()
        leaked = [await pool.acquire() for _ in range(3)]
        with (
            recording(Recorder()),
            pytest.raises(EnvironmentFault, match="none of its 3 connections came free"),
        ):
            async with db.connection(timeout=0.05):
                pytest.fail("a fourth connection was given")
        assert [(event["kind"], event["cause"]) for event in events] == [("fault", "environment")]
        del leaked
        with anyio.fail_after(10):
            await db.close_context(context)  # cuts what is not given back
        await no_session_left(server, context)


async def test_bookkeeping_of_a_tool_records_null_and_never_hangs_when_connections_are_leaked(
    server: Server,
) -> None:
    async with conversation(server):
        events: list[dict[str, Any]] = []

        class Recorder:
            def emit(self, event: dict[str, Any]) -> None:
                events.append(event)

        @tool
        async def leak() -> int:
            pool = await db.pool()
            return len([await pool.acquire() for _ in range(3)])

        with recording(Recorder()), anyio.fail_after(10):
            assert await leak() == 3
        assert [event["kind"] for event in events] == ["tool_call", "tool_result"]
        assert isinstance(events[0]["xid"], int)
        assert events[1]["xid"] is None


async def test_transaction_ids_bracket_what_a_tool_wrote(server: Server) -> None:
    async with conversation(server, sql="CREATE TABLE t (n int)"):
        events: list[dict[str, Any]] = []

        class Recorder:
            def emit(self, event: dict[str, Any]) -> None:
                events.append(event)

        @tool
        async def write(n: int) -> None:
            await db.execute("INSERT INTO t VALUES ($1)", n)

        with recording(Recorder()):
            await write(1)
            await write(2)
        brackets = [
            range(call["xid"], result["xid"]) for call, result in zip(events[::2], events[1::2], strict=True)
        ]
        rows = await db.fetch("SELECT n, xmin::text::bigint AS xid FROM t ORDER BY n")
        assert [[row["xid"] in bracket for bracket in brackets] for row in rows] == [
            [True, False],
            [False, True],
        ]


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
