"""Every recorded call has the transaction ids around it, however it is made, and disturbs nothing else."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import psycopg
from support.conversations import MINTER, conversation, no_session_left, recorded, sessions
from support.databases import connected
from support.sdk import armed, context_for, production

from redteam_sdk import context as redteam_context
from redteam_sdk import db, tool
from redteam_sdk.context import bound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context


def bracket(events: list[dict[str, Any]]) -> range:
    """The transaction ids that a call and its result enclose."""
    return range(events[0]["xid"], events[1]["xid"])


@contextmanager
def unbound() -> Iterator[None]:
    """No context is bound for the block, as in another request."""
    reset = redteam_context._bound.set(None)
    try:
        yield
    finally:
        redteam_context._bound.reset(reset)


async def end_sessions(server: Server, context: Context, *, block: bool = False) -> None:
    """End the fork's sessions as a server that restarts would; `block` lets none begin again."""
    async with connected(server) as admin:
        if block:
            await admin.execute(f"ALTER ROLE {context.user} NOLOGIN")
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", context.user
        )
    await no_session_left(server, context)


async def test_tool_that_holds_all_connections_still_gets_its_transaction_ids(server: Server) -> None:
    async with conversation(server, sql="CREATE TABLE t (n int)") as context:

        @tool
        async def leak() -> int:
            pool = await db.pool()
            held = [await pool.acquire() for _ in range(3)]
            await held[0].execute("INSERT INTO t VALUES (1)")
            return len(held)

        with recorded() as events, anyio.fail_after(10):
            assert await leak() == 3
        assert [event["kind"] for event in events] == ["tool_call", "tool_result"]
        async with connected(server, context.database) as admin:
            assert await admin.fetchval("SELECT xmin::text::bigint FROM t") in bracket(events)


async def test_transaction_ids_bracket_what_a_tool_wrote(server: Server) -> None:
    async with conversation(server, sql="CREATE TABLE t (n int)") as context:

        @tool
        async def write(n: int) -> None:
            await db.execute("INSERT INTO t VALUES ($1)", n)

        @tool
        def write_plainly(n: int) -> None:
            with psycopg.connect(context.dsn()) as conn:
                conn.execute("INSERT INTO t VALUES (%s)", [n])

        with recorded() as events:
            await write(1)
            write_plainly(2)  # on the event loop's own thread, where an agent may call it
            await asyncio.to_thread(write_plainly, 3)
            await asyncio.to_thread(asyncio.run, write(4))  # in a loop of its own
        brackets = [bracket(events[at : at + 2]) for at in range(0, 8, 2)]
        rows = await db.fetch("SELECT n, xmin::text::bigint AS xid FROM t ORDER BY n")
        assert [[row["xid"] in each for each in brackets] for row in rows] == [
            [at == n for at in range(4)] for n in range(4)
        ]


async def test_bookkeeping_takes_one_session_of_a_conversation_and_none_of_production(server: Server) -> None:
    @tool
    def nothing() -> None: ...

    async with production(server) as place:
        for _ in range(3):
            nothing()
        with recorded() as events:
            nothing()  # recorded, and still on no fork
        assert [event["xid"] for event in events] == [None, None]
        assert await sessions(server, place) == 0
    async with conversation(server) as context:
        nothing()
        assert await sessions(server, context) == 0
        with recorded() as events:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(anyio.to_thread.run_sync, nothing)
        assert all(isinstance(event["xid"], int) for event in events)
        assert await sessions(server, context) == 1
    await no_session_left(server, context)


async def test_bookkeeping_that_fails_is_null_and_fails_no_tool(server: Server) -> None:
    @tool
    async def work() -> int:
        return 7

    @tool
    def plain() -> int:
        return 7

    gone = context_for(host="/nowhere", token_id="gone")
    async with conversation(server) as context:
        await end_sessions(server, context, block=True)
        for nowhere in (gone, context):
            with armed(MINTER, "/nowhere"), anyio.fail_after(20):
                with unbound(), bound(nowhere), recorded() as events:
                    assert await work() == plain() == 7
                assert [event["xid"] for event in events] == [None] * 4
                assert not [event for event in events if event["kind"] == "fault"]


async def test_bookkeeping_survives_that_its_session_is_ended(server: Server) -> None:
    @tool
    async def work() -> None: ...

    async with conversation(server) as context:
        with recorded() as events:
            await work()
            await end_sessions(server, context)
            await work()
        assert isinstance(events[0]["xid"], int)
        assert [event["kind"] for event in events] == ["tool_call", "tool_result"] * 2
