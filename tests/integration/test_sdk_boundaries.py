"""What keeps a redteam context and what loses it. Each row of the table in docs/sdk.md is one case here."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from support.sdk import Minter, armed, fork

from redteam_sdk import db
from redteam_sdk.context import bind
from redteam_sdk.errors import NoContext

if TYPE_CHECKING:
    from redteam_forker.servers import Server

Use = Callable[[], str]
DOCUMENT = Path(__file__).parents[2] / "docs" / "sdk.md"


def look() -> str:
    """What plain code sees: the fork's database by its address, or NoContext."""
    return str(asyncio.run(db.fetchval("SELECT current_database()")))


async def look_async() -> str:
    """What a coroutine sees."""
    return str(await db.fetchval("SELECT current_database()"))


async def plain_await() -> str:
    return await look_async()


async def create_task() -> str:
    return await asyncio.get_running_loop().create_task(look_async())


async def task_group() -> str:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(look_async())
    return task.result()


async def call_soon() -> str:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    loop.call_soon(lambda: done.set_result(db.dsn()))
    return (await done).partition("?")[0].rpartition("/")[2]


async def to_thread() -> str:
    return await asyncio.to_thread(look)


async def anyio_thread() -> str:
    return await anyio.to_thread.run_sync(look)


async def thread() -> str:
    return await asyncio.to_thread(in_thread, look)


def in_thread(use: Use) -> str:
    """Run it in a bare thread and give back what it returned or raised."""
    outcome: list[str | BaseException] = []

    def work() -> None:
        try:
            outcome.append(use())
        except NoContext as error:
            outcome.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


async def thread_with_copied_context() -> str:
    return await asyncio.to_thread(in_thread, partial(contextvars.copy_context().run, look))


async def run_in_executor() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, look)


async def submit() -> str:
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.wrap_future(pool.submit(look))


async def submit_with_copied_context() -> str:
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.wrap_future(pool.submit(contextvars.copy_context().run, look))


async def worker_started_earlier(queue: asyncio.Queue[asyncio.Future[str]]) -> str:
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    await queue.put(asked)
    return await asked


# The words are the first column of the document's table.
KEPT: dict[str, Callable[[], Awaitable[str]]] = {
    "`await`": plain_await,
    "`asyncio.create_task`": create_task,
    "`asyncio.TaskGroup`, `anyio` task groups": task_group,
    "`loop.call_soon`, `call_later`": call_soon,
    "`asyncio.to_thread`": to_thread,
    "`anyio.to_thread.run_sync`": anyio_thread,
    "`threading.Thread` running `contextvars.copy_context().run`": thread_with_copied_context,
    "`Executor.submit(contextvars.copy_context().run, ...)`": submit_with_copied_context,
}
LOST: dict[str, Callable[[], Awaitable[str]]] = {
    "`threading.Thread`": thread,
    "`loop.run_in_executor`": run_in_executor,
    "`Executor.submit`": submit,
}
EARLIER = "a task or thread that was started before the context was bound"


@pytest.mark.parametrize("name", KEPT)
async def test_context_is_kept(server: Server, name: str) -> None:
    minter = Minter()
    async with fork(server) as context:
        with armed(minter, context.host), bind(minter.mint(context)):
            assert await KEPT[name]() == context.database
            await db.close_context(context)


@pytest.mark.parametrize("name", LOST)
async def test_context_is_lost_and_an_armed_process_refuses(server: Server, name: str) -> None:
    minter = Minter()
    async with fork(server) as context:
        with armed(minter, context.host), bind(minter.mint(context)):
            with pytest.raises(NoContext):
                await LOST[name]()
            assert await look_async() == context.database
            await db.close_context(context)


async def test_worker_that_was_started_earlier_has_no_context_and_is_refused(server: Server) -> None:
    minter = Minter()
    queue: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

    async def worker() -> None:
        asked = await queue.get()
        try:
            asked.set_result(await look_async())
        except NoContext as error:
            asked.set_exception(error)

    async with fork(server) as context, anyio.create_task_group() as group:
        with armed(minter, context.host):
            group.start_soon(worker)
            with bind(minter.mint(context)), pytest.raises(NoContext):
                await worker_started_earlier(queue)


async def test_process_that_is_not_armed_uses_production_on_every_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://production.invalid/production?x")
    ways: dict[str, Any] = {"thread": partial(in_thread, db.dsn), "here": db.dsn}
    assert {name: way() for name, way in ways.items()} == dict.fromkeys(
        ways, "postgresql://production.invalid/production?x"
    )


def test_table_in_the_document_says_exactly_this() -> None:
    rows = re.findall(r"^\| (.+?) \| (kept|lost: `NoContext`) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert dict(rows) == {
        **dict.fromkeys(KEPT, "kept"),
        **dict.fromkeys(LOST, "lost: `NoContext`"),
        EARLIER: "lost: `NoContext`",
    }
