"""What keeps a redteam context and what loses it. Each row of the table in docs/sdk.md is one case here.

Long because each row is shown.
`WRITE_SDK_TABLE=1` in the environment writes the table into the document from what these cases are.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from support.children import WAYS
from support.sdk import Minter, armed, fork, production

from redteam_sdk import carry, db
from redteam_sdk import context as redteam
from redteam_sdk.carry import ContextExecutor
from redteam_sdk.context import bind
from redteam_sdk.errors import NoContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

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


async def carried_thread() -> str:
    return await asyncio.to_thread(in_thread, carry(look))


async def carried_to_executor() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, carry(look))


async def carried_submit() -> str:
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.wrap_future(pool.submit(carry(look)))


async def context_executor() -> str:
    loop = asyncio.get_running_loop()
    with ContextExecutor(1) as pool:
        await asyncio.wrap_future(pool.submit(int))  # its thread is there before anything is bound to it
        seen = await asyncio.wrap_future(pool.submit(look))
        assert seen == await loop.run_in_executor(pool, look) == next(pool.map(lambda _: look(), [1]))
        return seen


async def task_callback() -> str:
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: done.set_result(database()))
    return await done


async def thread_callback() -> str:
    """What a thread asks the loop to do has the thread's context."""
    return await from_a_thread(database)


async def carried_thread_callback() -> str:
    return await from_a_thread(carry(database))


async def from_a_thread(use: Use) -> str:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()

    def settle() -> None:
        try:
            done.set_result(use())
        except NoContext as error:
            done.set_exception(error)

    threading.Thread(target=loop.call_soon_threadsafe, args=(settle,)).start()
    return await done


async def coroutine_from_a_thread() -> str:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(
        in_thread, lambda: asyncio.run_coroutine_threadsafe(look_async(), loop).result(20)
    )


async def carried_coroutine_from_a_thread() -> str:
    loop, carried = asyncio.get_running_loop(), carry(look_async)
    return await asyncio.to_thread(
        in_thread, lambda: asyncio.run_coroutine_threadsafe(carried(), loop).result(20)
    )


async def back_from_anyio_thread() -> str:
    return await anyio.to_thread.run_sync(anyio.from_thread.run, look_async)


async def generator_here() -> str:
    """A generator runs wherever it is iterated; here it was made where nothing is bound."""
    return next(MADE_EARLIER["plain"]())


async def generator_in_thread() -> str:
    steps = plain_steps()
    return await asyncio.to_thread(in_thread, lambda: next(steps))


async def async_generator() -> str:
    async for seen in steps():
        return seen
    raise AssertionError


async def queue_worker() -> str:
    return await through_queue(look)


async def queue_worker_carried() -> str:
    return await through_queue(carry(look))


async def through_queue(job: Use) -> str:
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    JOBS.put((job, asyncio.get_running_loop(), done))
    return await done


def plain_steps() -> Iterator[str]:
    yield look_here()


async def steps() -> AsyncIterator[str]:
    yield await look_async()


def look_here() -> str:
    """As `look`, on a thread that may run a loop."""
    return database()


def database() -> str:
    return db.dsn().partition("?")[0].rpartition("/")[2]


MADE_EARLIER: dict[str, Callable[[], Iterator[str]]] = {"plain": plain_steps}
JOBS: queue.Queue[Any] = queue.Queue()


def work() -> None:
    """A worker that is there before any context is bound, and takes jobs until it is told to end."""
    while (taken := JOBS.get()) is not None:
        job, loop, done = taken
        try:
            seen = job()
        except NoContext as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, seen)


# The words are the first column of the document's table.
KEPT: dict[str, Callable[[], Awaitable[str]]] = {
    "`await`": plain_await,
    "`asyncio.create_task`": create_task,
    "`asyncio.TaskGroup`, `anyio` task groups": task_group,
    "`loop.call_soon`, `call_later`": call_soon,
    "`Task.add_done_callback`": task_callback,
    "`asyncio.to_thread`": to_thread,
    "`anyio.to_thread.run_sync`, and `anyio.from_thread.run` back": anyio_thread,
    "`threading.Thread` running `contextvars.copy_context().run`": thread_with_copied_context,
    "`Executor.submit(contextvars.copy_context().run, ...)`": submit_with_copied_context,
    "`threading.Thread(target=carry(fn))`": carried_thread,
    "`loop.run_in_executor(None, carry(fn))`": carried_to_executor,
    "`Executor.submit(carry(fn))`": carried_submit,
    "`redteam_sdk.carry.ContextExecutor`: `submit`, `map`, `run_in_executor`": context_executor,
    "`loop.call_soon_threadsafe(carry(fn))` from a thread": carried_thread_callback,
    "`run_coroutine_threadsafe(carry(fn)(), loop)` from a thread": carried_coroutine_from_a_thread,
    "a generator or `async` generator: that of whoever iterates": async_generator,
    "a queue's worker that was started earlier, given `carry(fn)`": queue_worker_carried,
}
LOST: dict[str, Callable[[], Awaitable[str]]] = {
    "`threading.Thread`": thread,
    "`loop.run_in_executor`": run_in_executor,
    "`Executor.submit`": submit,
    "`loop.call_soon_threadsafe` from a thread": thread_callback,
    "`run_coroutine_threadsafe` from a thread": coroutine_from_a_thread,
    "a generator that a bare thread iterates": generator_in_thread,
    "a queue's worker that was started earlier": queue_worker,
}
EARLIER = "a task or thread that was started before the context was bound"
# Of Starlette and of the middlewares; shown in test_sdk_middleware.py.
SERVED = (
    "Starlette's and FastAPI's background tasks and streamed responses; Flask's, to the response's `close`"
)
# By whether what is seen at the end of a way through support/children.py is the fork.
CHILDREN = {
    "`os.fork`; `multiprocessing` that forks": ("kept", ["`os.fork`; `multiprocessing` that forks", "fork"]),
    "`multiprocessing` that spawns; `ProcessPoolExecutor`": (
        "lost",
        ["`multiprocessing` that spawns; `ProcessPoolExecutor`", "pool"],
    ),
    **{
        way: ("lost" if way == "`subprocess`, any other program" else "kept", [way]) for way in list(WAYS)[4:]
    },
}


@pytest.fixture
def worker() -> Iterator[None]:
    """The queue's worker, started where nothing is bound."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    JOBS.put(None)
    thread.join()


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("name", [*KEPT, "back", "plain generator"])
async def test_context_is_kept(server: Server, name: str) -> None:
    way = {**KEPT, "back": back_from_anyio_thread, "plain generator": generator_here}[name]
    minter = Minter()
    async with fork(server) as context:
        with armed(minter, context.host), bind(minter.mint(context)):
            assert await way() == context.database
            await db.close_context(context)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("name", LOST)
async def test_context_is_lost_and_an_armed_process_refuses(server: Server, name: str) -> None:
    minter = Minter()
    async with production(server), fork(server) as context:
        with armed(minter, context.host), bind(minter.mint(context)):
            with pytest.raises(NoContext):
                await LOST[name]()
            assert await look_async() == context.database
            await db.close_context(context)


@pytest.mark.parametrize("name", WAYS)
async def test_other_process_has_the_fork_by_explicit_handover_or_nothing(server: Server, name: str) -> None:
    minter = Minter()
    async with fork(server) as place, fork(server) as context:
        with armed(minter, context.host), bind(minter.mint(context)):
            given = redteam.handover()
        seen = await anyio.to_thread.run_sync(partial(child, name, place, given))
    found = [kept for kept, ways in CHILDREN.values() if name in ways]
    assert seen == {"kept": context.database, "lost": "NoContext"}[found[0]]


def child(name: str, place: Context, given: dict[str, str]) -> str:
    tests = str(Path(__file__).parents[1])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": tests, "DATABASE_URL": place.dsn(), **given}
    command = [sys.executable, "-m", "support.children", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_end_of_a_conversation_reaches_what_was_carried(server: Server) -> None:
    minter = Minter()
    async with fork(server) as context:
        with armed(minter, context.host):
            with bind(minter.mint(context)):
                carried = carry(look)
            assert await asyncio.to_thread(carried) == context.database
            await db.close_context(context)
            with pytest.raises(NoContext, match="is over"):
                await asyncio.to_thread(carried)


async def test_worker_that_was_started_earlier_has_no_context_and_is_refused(server: Server) -> None:
    minter = Minter()
    waiting: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

    async def worker() -> None:
        asked = await waiting.get()
        try:
            asked.set_result(await look_async())
        except NoContext as error:
            asked.set_exception(error)

    async with fork(server) as context, anyio.create_task_group() as group:
        with armed(minter, context.host):
            group.start_soon(worker)
            asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            with bind(minter.mint(context)):
                await waiting.put(asked)
                with pytest.raises(NoContext):
                    await asked


async def test_process_that_is_not_armed_uses_production_on_every_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://production.invalid/production?x")
    ways: dict[str, Any] = {"thread": partial(in_thread, db.dsn), "here": db.dsn}
    assert {name: way() for name, way in ways.items()} == dict.fromkeys(
        ways, "postgresql://production.invalid/production?x"
    )


def table() -> str:
    """The document's table, from the cases above."""
    kept = [*KEPT, SERVED, *(way for way, (how, _) in CHILDREN.items() if how == "kept")]
    lost = [*LOST, EARLIER, *(way for way, (how, _) in CHILDREN.items() if how == "lost")]
    rows = [f"| {way} | kept |" for way in kept] + [f"| {way} | lost: `NoContext` |" for way in lost]
    return "\n".join(["| how the code gets there | the context is |", "|---|---|", *rows])


def test_table_in_the_document_says_exactly_this() -> None:
    before, _, rest = DOCUMENT.read_text().partition("| how the code gets there |")
    after = rest[rest.index("\n\n") :]
    if os.environ.get("WRITE_SDK_TABLE"):
        DOCUMENT.write_text(before + table() + after)
    assert DOCUMENT.read_text() == before + table() + after
