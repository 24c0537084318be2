"""The agent process: many conversations, each on its own fork; none can hurt another or the process.

Long because it is one protocol: each request, and each way for an agent to break, over the real socket.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from support.databases import connected
from support.sdk import AgentProcess, Minter, agent_process, context_for, fork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

AGENT = '''
from __future__ import annotations
import asyncio, contextvars, json, os, sys, threading, time
from datetime import date, datetime
from decimal import Decimal
from redteam_sdk import Session, db, external, tool

class SlotTaken(Exception):
    pass

@tool
async def book(n: int, day: date = date(2026, 1, 1)) -> dict:
    """Book.

    Args:
        n: which.
    """
    if n < 0:
        raise SlotTaken(f"slot {n} is taken")
    await db.execute("INSERT INTO slot (n, day) VALUES ($1, $2)", n, day)
    return {"n": n, "day": day, "fee": Decimal("9.90")}

@tool
def plain(word: str) -> str:
    print("plain", word)
    return f"{word} from {threading.current_thread().name}"

@tool
def note(n: int) -> int:
    """Writes by code of its own, as a plain driver would."""
    asyncio.run(db.execute("INSERT INTO slot (n) VALUES ($1)", n))
    return n

@tool
async def odd() -> object:
    return object()

@tool
async def leave_tool() -> None:
    sys.exit(3)

@tool
async def unreachable() -> None:
    await db.fetchval("SELECT pg_terminate_backend(pg_backend_pid())")

@external(mock=lambda to: f"sms to {to}")
async def sms(to: str) -> str:
    raise SystemError("a real SMS")

@tool
@external
async def charge(cents: int) -> None:
    raise SystemError("a real charge")

def boom(secret):
    local_secret = "local-" + secret
    raise ValueError("broken")

never = None
commands = {}

def command(fn):
    commands[fn.__name__] = fn
    return fn

@command
async def where(rest, session):
    return await db.fetchval("SELECT current_database()")
@command
async def history(rest, session):
    session.state["n"] = session.state.get("n", 0) + 1
    return f"{session.id} {session.state['n']} " + " ".join(f"{m.role}:{m.text}" for m in session.history)
@command
async def use(rest, session):
    await book(int(rest))
    return await sms("+1")
@command
async def swallow(rest, session):
    try:
        await charge(5)
    except Exception:
        return "all is well"
@command
async def unmocked(rest, session):
    await charge(5)
@command
async def raises(rest, session):
    boom(rest)
@command
async def group(rest, session):
    async with asyncio.TaskGroup() as g:
        g.create_task(charge(5))
@command
async def leaves(rest, session):
    sys.exit("bye")
@command
async def child_leaves(rest, session):
    await asyncio.create_task(leave())
async def leave():
    raise SystemExit(4)
@command
async def stray_leaves(rest, session):
    session.state["stray"] = asyncio.create_task(leave())
    await asyncio.sleep(0)
    return "left a stray"
@command
async def dies(rest, session):
    os._exit(17)
@command
async def hangs(rest, session):
    await asyncio.Event().wait()
@command
async def stubborn(rest, session):
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
@command
async def speaks_late(rest, session):
    while not os.path.exists(rest):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass
    plain("late")
    asyncio.get_running_loop().call_later(0.01, print, "late answer is out")
    return "late"
@command
async def sleeps_in_plain_code(rest, session):
    time.sleep(float(rest))
    return "awake"
@command
async def orphans(rest, session):
    if os.fork() == 0:
        for _ in range(3000):  # not for ever, whatever becomes of the test
            if not os.path.exists(rest):
                time.sleep(0.01)
        os._exit(0)
    os._exit(17)
@command
async def cancels_itself(rest, session):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)
@command
async def blocks(rest, session):
    def wait_in_plain_code():
        while not os.path.exists(rest):
            time.sleep(0.01)
    wait_in_plain_code()
    return "unblocked"
@command
async def prints(rest, session):
    print("one", session.id)
    sys.stdout.write("two ")
    sys.stdout.buffer.write(b"halves\\nrest")
    await asyncio.to_thread(print, " in a thread")
    worker = threading.Thread(target=print, args=("nobody's",))
    worker.start()
    worker.join()
    return "printed"
@command
async def prints_secret(rest, session):
    print(db.dsn())
    raise RuntimeError(db.dsn())
@command
async def number(rest, session):
    return 7
@command
async def half_pair(rest, session):
    return "\\ud800"
@command
async def half_pair_error(rest, session):
    raise ValueError("\\ud800")
@command
async def background(rest, session):
    async def sync_calendar():
        await asyncio.Event().wait()
    session.state["task"] = asyncio.create_task(sync_calendar())
    return "started"
@command
async def bare_thread(rest, session):
    outcome = []
    def work():
        try:
            asyncio.run(db.fetchval("SELECT 1"))
        except BaseException as error:
            outcome.append(type(error).__name__)
    worker = threading.Thread(target=work)
    worker.start()
    await asyncio.to_thread(worker.join)
    return outcome[0]
@command
async def forks(rest, session):
    pid = os.fork()
    if pid == 0:
        print("from the child")
        os._exit(0)
    os.waitpid(pid, 0)
    return "forked"
@command
async def big(rest, session):
    return "x" * int(rest)

async def main(message: str, session: Session) -> str:
    name, _, rest = message.partition(" ")
    return await commands[name](rest, session)

def plain_main(message: str, session: Session) -> str:
    if message == "hang":
        threading.Event().wait()
    if message == "exit":
        sys.exit(5)
    if message == "where":
        return asyncio.run(db.fetchval("SELECT current_database()"))
    print("said", message)
    return plain(message)

def returns_coroutine(message: str, session: Session):
    return main(message, session)

class Desk:
    async def __call__(self, message: str, session: Session) -> str:
        return f"desk {message}"

desk = Desk()
not_callable = 3
def wrong_signature(message): ...
'''
SQL = "CREATE TABLE slot (n int, day date)"


@asynccontextmanager
async def armed_process(
    folder: Path, server: Server, agent: str = "agent:main", stall_s: float = 20.0
) -> AsyncIterator[AgentProcess]:
    async with agent_process(folder, AGENT) as process:
        answer = await process.arm(process.minter.trust(server.facts.host), agent, "agent", stall_s)
        assert answer["op"] == "armed", answer
        yield process


@asynccontextmanager
async def talking(
    folder: Path, server: Server, agent: str = "agent:main", stall_s: float = 20.0
) -> AsyncIterator[tuple[AgentProcess, Context]]:
    """One armed process with one open conversation, c001."""
    async with (
        fork(server, "c001", SQL) as context,
        armed_process(folder, server, agent, stall_s) as process,
    ):
        opened = await process.open(context)
        seen = {name: opened[name] for name in ("op", "database", "user")}
        assert seen == {"op": "opened", "database": context.database, "user": context.user}
        yield process, context


async def test_turn_runs_on_the_fork_and_its_events_come_before_the_reply(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server) as (process, context):
        assert (await process.turn("where"))["text"] == context.database
        reply = await process.turn("use 4", turn=2)
        assert reply["text"] == "sms to +1"
        assert process.seen[-1] == reply
        events = process.events()
        assert [(e["kind"], e["turn"], e["name"]) for e in events] == [
            ("tool_call", 2, "book"),
            ("tool_result", 2, "book"),
            ("external", 2, "sms"),
        ]
        assert events[0]["arguments"] == {"n": 4, "day": "2026-01-01"}
        assert events[1]["value"] == {"n": 4, "day": "2026-01-01", "fee": "9.90"}
        assert all(e["at"].endswith("Z") for e in events)
        async with connected(server, context.database) as admin:
            xid = await admin.fetchval("SELECT xmin::text::bigint FROM slot WHERE n = 4")
        assert xid in range(events[0]["xid"], events[1]["xid"])


async def test_what_a_plain_tool_wrote_is_traced_to_its_call(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, context):
        for n in (1, 2):
            arguments = {"n": n}
            answer = await process.ask(
                "call", conversation="c001", turn=1, call=f"tu_{n}", tool="note", arguments=arguments
            )
            assert answer["value"] == n
        events = process.events()
        brackets = [range(events[at]["xid"], events[at + 1]["xid"]) for at in (0, 2)]
        async with connected(server, context.database) as admin:
            rows = await admin.fetch("SELECT xmin::text::bigint AS xid FROM slot ORDER BY n")
        assert [[row["xid"] in each for each in brackets] for row in rows] == [[True, False], [False, True]]


async def test_session_is_kept_from_turn_to_turn(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, _):
        assert (await process.turn("history"))["text"] == "c001 1 "
        assert (await process.turn("history", turn=2))["text"] == "c001 2 user:history agent:c001 1 "


async def test_twenty_conversations_at_once_each_see_their_own_fork(tmp_path: Path, server: Server) -> None:
    async with AsyncExitStack() as stack:
        contexts = [await stack.enter_async_context(fork(server, f"c{n:03}", SQL)) for n in range(20)]
        process = await stack.enter_async_context(armed_process(tmp_path, server))
        for context in contexts:
            assert (await process.open(context))["op"] == "opened"
        asked = {
            await process.send("turn", conversation=c.conversation, turn=1, text=word): (c, word)
            for word in ("where",)
            for c in contexts
        }
        for number, (context, _) in asked.items():
            assert (await process.answer(number))["text"] == context.database
        for n, context in enumerate(contexts):
            await process.turn(f"use {n}", conversation=context.conversation, turn=2)
        for n, context in enumerate(contexts):
            async with connected(server, context.database) as admin:
                assert [row["n"] for row in await admin.fetch("SELECT n FROM slot")] == [n]
            assert {
                e["arguments"]["n"] for e in process.events(context.conversation) if e["kind"] == "tool_call"
            } == {n}


@pytest.mark.parametrize(
    ("text", "cause", "message"),
    [
        ("raises x", "exception", "ValueError: broken"),
        ("leaves", "exception", "SystemExit: bye"),
        ("child_leaves", "exception", "SystemExit: 4"),
        ("cancels_itself", "exception", "CancelledError: what answered this request was cancelled"),
        ("unmocked", "unmocked", "UnmockedExternalCall: external function agent.charge"),
        ("group", "unmocked", "ExceptionGroup: unhandled errors in a TaskGroup"),
        ("number", "unserialisable", "the agent answered with a int; an answer is a str"),
        ("half_pair", "unserialisable", "the agent's answer cannot be sent"),
        ("half_pair_error", "exception", "ValueError: ?"),
        ("no_such_command", "exception", "KeyError: 'no_such_command'"),
    ],
)
async def test_what_goes_wrong_in_a_turn_is_that_turns_fault_and_the_process_lives(
    tmp_path: Path, server: Server, text: str, cause: str, message: str
) -> None:
    async with talking(tmp_path, server) as (process, context):
        fault = await process.turn(text)
        assert (fault["op"], fault["cause"]) == ("fault", cause)
        assert fault["message"].startswith(message)
        assert (await process.turn("where", turn=2))["text"] == context.database


async def test_traceback_shows_the_agents_frames_and_no_local_variable(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server) as (process, _):
        text = (await process.turn("raises hush-hush"))["traceback"]
        assert "in boom" in text
        assert "in raises" in text
        assert "hush-hush" not in text
        assert "redteam_sdk/serve" not in text


async def test_fault_of_ours_that_the_agent_swallows_is_still_an_event(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server) as (process, _):
        assert (await process.turn("swallow"))["text"] == "all is well"
        faults = [e for e in process.events() if e["kind"] == "fault"]
        assert [(f["cause"], f["whose"], f["turn"]) for f in faults] == [("unmocked", "infra", 1)]


async def test_stray_task_that_asks_to_exit_does_not_end_the_process(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, context):
        assert (await process.turn("stray_leaves"))["op"] == "reply"
        assert (await process.turn("where", turn=2))["text"] == context.database


async def test_secret_is_struck_out_of_everything_that_is_sent(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, context):
        fault = await process.turn("prints_secret")
        printed = [m["text"] for m in process.seen if m["op"] == "printed"]
        assert "[secret]" in fault["message"]
        assert "[secret]" in printed[0]
        assert context.password not in str(process.seen)


async def test_hang_in_one_conversation_holds_up_no_other(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, _), fork(server, "c002", SQL) as other:
        await process.open(other)
        hanging = await process.send("turn", conversation="c001", turn=1, text="hangs")
        assert (await process.turn("where", conversation="c002"))["text"] == other.database
        refused = await process.turn("where")
        assert (refused["cause"], refused["message"]) == (
            "protocol",
            "conversation 'c001' is still answering an earlier turn",
        )
        closed = await process.ask("close", conversation="c001")
        assert closed["late"] == ["turn 1"]
        fault = await process.answer(hanging)
        assert (fault["cause"], fault["message"]) == (
            "exception",
            "CancelledError: conversation 'c001' was closed",
        )
        assert (await process.turn("where", conversation="c002", turn=2))["text"] == other.database


async def test_hanging_plain_function_holds_up_no_other(tmp_path: Path, server: Server) -> None:
    async with AsyncExitStack() as stack:
        contexts = [await stack.enter_async_context(fork(server, f"c{n:03}", SQL)) for n in range(12)]
        process = await stack.enter_async_context(armed_process(tmp_path, server, "agent:plain_main"))
        for context in contexts:
            await process.open(context)
            await process.send("turn", conversation=context.conversation, turn=1, text="hang")
        last = await stack.enter_async_context(fork(server, "last", SQL))
        await process.open(last)
        assert (await process.turn("where", conversation="last"))["text"] == last.database
        assert (await process.ask("close", conversation="c000"))["late"] == ["turn 1", "thread of turn 1"]


async def test_plain_function_keeps_its_conversation_in_its_thread(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server, "agent:plain_main") as (process, context):
        assert (await process.turn("where"))["text"] == context.database
        assert (await process.turn("hello", turn=2))["text"] == "hello from c001 turn 2"
        assert [e["kind"] for e in process.events()] == ["tool_call", "tool_result"]
        assert all(isinstance(e["xid"], int) for e in process.events())
        assert [m["conversation"] for m in process.seen if m["op"] == "printed"] == ["c001", "c001"]
        fault = await process.turn("exit", turn=3)
        assert (fault["cause"], fault["message"]) == ("exception", "SystemExit: 5")
        assert (await process.turn("where", turn=4))["text"] == context.database


@pytest.mark.parametrize(
    ("agent", "text"), [("agent:returns_coroutine", "c001 1 "), ("agent:desk", "desk history")]
)
async def test_other_shapes_of_callable_work(tmp_path: Path, server: Server, agent: str, text: str) -> None:
    async with talking(tmp_path, server, agent) as (process, _):
        assert (await process.turn("history"))["text"] == text


async def test_printed_lines_belong_to_the_conversation_that_printed_them(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server) as (process, _):
        await process.turn("prints")
        printed = [(m["conversation"], m["text"]) for m in process.seen if m["op"] == "printed"]
        assert printed == [
            ("c001", "one c001"),
            ("c001", "two halves"),
            ("c001", "rest in a thread"),
            (None, "nobody's"),
        ]


async def test_child_that_the_agent_forks_does_not_speak_for_it(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, _):
        assert (await process.turn("forks"))["text"] == "forked"
        assert "from the child" not in str(process.seen)


async def test_bare_thread_has_no_database(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, _):
        assert (await process.turn("bare_thread"))["text"] == "NoContext"


async def test_long_answers_come_whole(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, _):
        assert len((await process.turn("big 3000000"))["text"]) == 3_000_000


async def test_stall_names_the_conversation_and_the_code_that_holds_the_loop(
    tmp_path: Path, server: Server
) -> None:
    gate = tmp_path / "gate"
    async with talking(tmp_path, server, stall_s=0.4) as (process, _):
        number = await process.send("turn", conversation="c001", turn=1, text=f"blocks {gate}")
        stalled = await process.unsolicited("stalled")
        assert stalled["conversation"] == "c001"
        assert stalled["for_s"] >= 0.4
        assert "wait_in_plain_code" in stalled["stack"]
        await anyio.Path(gate).touch()
        assert (await process.answer(number))["text"] == "unblocked"
        assert [m["op"] for m in process.seen].count("stalled") == 1


async def test_one_stall_is_told_once(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server, stall_s=0.1) as (process, _):
        before = len(process.seen)  # on a slow machine the opening may have been one
        for turn in (1, 2):
            assert (await process.turn("sleeps_in_plain_code 0.6", turn=turn))["text"] == "awake"
        assert [m["op"] for m in process.seen[before:]].count("stalled") == 2


async def test_end_of_the_socket_ends_the_process_though_its_loop_hangs(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server, stall_s=0.2) as (process, _):
        await process.send("turn", conversation="c001", turn=1, text="blocks /nowhere")
        await process.unsolicited("stalled")
        with anyio.fail_after(5):
            assert await process.hang_up() == 0


async def test_interrupt_is_the_harness_business(tmp_path: Path, server: Server) -> None:
    gate = tmp_path / "gate"
    async with talking(tmp_path, server, stall_s=0.2) as (process, context):
        number = await process.send("turn", conversation="c001", turn=1, text=f"blocks {gate}")
        await process.unsolicited("stalled")  # the agent's own code is what a signal would break into
        os.kill(process.process.pid, signal.SIGINT)
        await anyio.Path(gate).touch()
        assert (await process.answer(number))["text"] == "unblocked"
        assert (await process.turn("where", turn=2))["text"] == context.database
        with anyio.fail_after(5):
            assert await process.hang_up() == 0


async def test_death_of_the_process_is_the_end_of_the_socket(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, _):
        with pytest.raises(anyio.EndOfStream):
            await process.turn("dies")
        assert await process.process.wait() == 17


async def test_child_that_outlives_the_process_does_not_hide_its_death(
    tmp_path: Path, server: Server
) -> None:
    gate = tmp_path / "gate"
    async with talking(tmp_path, server) as (process, _):
        with anyio.fail_after(10), pytest.raises(anyio.EndOfStream):
            await process.turn(f"orphans {gate}")
        await anyio.Path(gate).touch()


async def test_close_cancels_what_still_runs_names_it_and_closes_the_sessions(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server) as (process, context):
        await process.turn("where")
        await process.turn("background", turn=2)
        late = (await process.ask("close", conversation="c001"))["late"]
        assert late == ["background.<locals>.sync_calendar"]
        async with connected(server) as admin:
            with anyio.fail_after(10):
                while await admin.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", context.user
                ):
                    await admin.execute("SELECT pg_sleep(0.01)")
        again = await process.turn("where", turn=3)
        assert (again["cause"], again["message"]) == ("protocol", "conversation 'c001' is not open")


async def test_nothing_of_a_conversation_is_sent_after_it_was_closed(tmp_path: Path, server: Server) -> None:
    gate = tmp_path / "gate"
    async with talking(tmp_path, server) as (process, context):
        number = await process.send("turn", conversation="c001", turn=1, text=f"speaks_late {gate}")
        other = context_for(conversation="c002", host=context.host)
        assert (await process.open(other))["cause"] == "environment"  # the turn has begun by now
        assert (await process.ask("close", conversation="c001"))["op"] == "closed"
        assert (await process.answer(number))["op"] == "fault"
        told = len(process.seen)
        await anyio.Path(gate).touch()
        while (await process.unsolicited("printed"))["text"] != "late answer is out":
            pass
        assert [(m["op"], m["conversation"], m["text"]) for m in process.seen[told:]] == [
            ("printed", None, "plain late"),
            ("printed", None, "late answer is out"),
        ]


async def test_task_that_refuses_to_be_cancelled_is_answered_for(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, context):
        number = await process.send("turn", conversation="c001", turn=1, text="stubborn")
        other = context_for(conversation="c002", host=context.host)
        assert (await process.open(other))["cause"] == "environment"  # the turn has begun by now
        closed = await process.ask("close", conversation="c001")
        assert closed["late"] == ["turn 1"]
        fault = await process.answer(number)
        assert fault["cause"] == "exception"
        assert "goes on regardless" in fault["message"]


def told(answer: dict[str, Any]) -> tuple[Any, ...]:
    return answer["op"], answer.get("cause"), answer["message"].partition(":")[0]


async def test_conversation_opens_for_its_own_valid_token_only(tmp_path: Path, server: Server) -> None:
    async with fork(server, "c001", SQL) as context, armed_process(tmp_path, server) as process:
        mint = process.minter.mint

        async def open_with(token: Any) -> tuple[Any, ...]:
            return told(await process.ask("open", conversation="c001", token=token))

        assert await open_with(mint(context)[:-1]) == ("fault", "context", "InvalidContext")
        assert await open_with(None) == ("fault", "context", "InvalidContext")
        assert await open_with(Minter().mint(context)) == ("fault", "context", "UntrustedContext")
        assert await open_with(mint(context, aud="billing")) == ("fault", "context", "UntrustedContext")
        replayed = mint(replace(context, conversation="c002"))
        assert await open_with(replayed) == ("fault", "context", "UntrustedContext")
        elsewhere = mint(replace(context, host="production.example"))
        assert await open_with(elsewhere) == ("fault", "context", "ForbiddenHost")
        wrong = mint(replace(context, password="another-password"))
        assert await open_with(wrong) == ("fault", "environment", "EnvironmentFault")
        assert told(await process.turn("where")) == ("fault", "protocol", "conversation 'c001' is not open")
        assert context.password not in str(process.seen)


async def test_calls_run_tools_with_converted_arguments_under_the_models_id(
    tmp_path: Path, server: Server
) -> None:
    async with talking(tmp_path, server) as (process, _):

        async def call(name: str, **arguments: Any) -> dict[str, Any]:
            answer = await process.ask(
                "call", conversation="c001", turn=3, call=f"tu_{name}", tool=name, arguments=arguments
            )
            answer.pop("id")
            return answer

        assert await call("book", n=1, day="2026-11-30") == {
            "op": "result",
            "value": {"n": 1, "day": "2026-11-30", "fee": "9.90"},
        }
        assert await call("book", n=-1) == {"op": "error", "type": "SlotTaken", "message": "slot -1 is taken"}
        assert await call("book", n="x") == {
            "op": "error",
            "type": "InvalidArguments",
            "message": "n is 'x'; it must be a whole number",
        }
        assert (await call("nothing"))["type"] == "UnknownTool"
        assert await call("plain", word="hi") == {"op": "result", "value": "hi from c001 tool plain"}
        assert (await call("odd"))["cause"] == "unserialisable"
        assert (await call("charge", cents=1))["cause"] == "unmocked"
        assert (await call("unreachable"))["cause"] == "environment"
        assert (await call("leave_tool"))["message"] == "SystemExit: 3"
        events = process.events()
        assert {e["turn"] for e in events} == {3}
        calls = [e["call"] for e in events if e["kind"] == "tool_call"]
        ends = [e["call"] for e in events if e["kind"] in ("tool_result", "tool_error")]
        assert (
            calls
            == ends
            == [
                *["tu_book"] * 3,
                "tu_nothing",
                "tu_plain",
                "tu_odd",
                "tu_charge",
                "tu_unreachable",
                "tu_leave_tool",
            ]
        )
        assert {e["cause"] for e in events if e["kind"] == "fault"} == {"unmocked", "environment"}


async def test_requests_that_make_no_sense_are_refused_one_by_one(tmp_path: Path, server: Server) -> None:
    async with talking(tmp_path, server) as (process, context):
        senseless: list[tuple[str, dict[str, Any]]] = [
            ("dance", {}),
            ("turn", {"conversation": "c001", "turn": "1", "text": "where"}),
            ("turn", {"conversation": "c001", "turn": 1}),
            ("turn", {"turn": 1, "text": "where"}),
            ("call", {"conversation": "c001", "turn": 1, "call": "x", "tool": "book", "arguments": []}),
            ("close", {"conversation": "c999"}),
            ("open", {"conversation": "c001", "token": process.minter.mint(context)}),
        ]
        for op, facts in senseless:
            assert (await process.ask(op, **facts))["cause"] == "protocol"
        assert (await process.turn("where"))["text"] == context.database


async def test_armed_names_tools_and_versions(tmp_path: Path) -> None:
    async with agent_process(tmp_path, AGENT) as process:
        armed = await process.arm(process.minter.trust("/x"), None, "agent")
        assert [tool["name"] for tool in armed["tools"]] == [
            "book",
            "plain",
            "note",
            "odd",
            "leave_tool",
            "unreachable",
            "charge",
        ]
        assert armed["tools"][0]["input_schema"]["properties"]["n"] == {
            "type": "integer",
            "description": "which.",
        }
        assert armed["python"].startswith("3.")
        assert armed["sdk"]


@pytest.mark.parametrize(
    ("code", "agent", "tools", "says"),
    [
        (AGENT, "missing:main", None, "importing module 'missing' from "),
        (AGENT, "missing:main", None, "ModuleNotFoundError: No module named 'missing'"),
        (
            "import no_such_dependency",
            "agent:main",
            None,
            "ModuleNotFoundError: No module named 'no_such_dependency'",
        ),
        ("1 / 0", "agent:main", None, "failed: ZeroDivisionError: division by zero"),
        ("def (", "agent:main", None, "failed: SyntaxError"),
        ("import sys; sys.exit(9)", "agent:main", None, "failed: SystemExit: 9"),
        (AGENT, "agent:nobody", None, "module 'agent' was imported and has no 'nobody'"),
        (AGENT, "agent:not_callable", None, "agent 'agent:not_callable' is a int, which cannot be called"),
        (AGENT, "agent:wrong_signature", None, "must take (message, session); it takes (message)"),
        (AGENT, "agent", None, "agent 'agent' is not of the form module:callable"),
        (AGENT, None, "missing", "tools module 'missing' cannot be served"),
        ("x = 1", None, "agent", "has no function marked with @tool"),
        (AGENT, None, None, "there is nothing to serve"),
        (
            "import asyncio\nfrom redteam_sdk import db\nasyncio.run(db.fetchval('SELECT 1'))",
            "agent:main",
            None,
            "failed: NoContext",
        ),
    ],
)
async def test_agent_that_cannot_be_served_is_refused_with_the_reason(
    tmp_path: Path, code: str, agent: str | None, tools: str | None, says: str
) -> None:
    production = {"DATABASE_URL": "postgresql://production.invalid/production"}
    async with agent_process(tmp_path, code, env=production) as process:
        refused = await process.arm(process.minter.trust("/x"), agent, tools)
        assert refused["op"] == "refused"
        assert says in refused["message"]
        with anyio.fail_after(5):
            assert await process.process.wait() == 0


async def test_arming_with_another_version_or_an_odd_trust_is_refused(tmp_path: Path) -> None:
    requests: list[dict[str, Any]] = [
        {"version": 2, "trust": Minter().trust("/x").to_json(), "agent": "agent:main"},
        {"version": 1, "trust": {}, "agent": "agent:main"},
        {"version": 1, "trust": Minter().trust("/x").to_json(), "agent": "agent:main", "stall_s": 0},
        {"version": 1, "trust": Minter().trust("/x").to_json(), "agent": 7},
    ]
    for facts in requests:
        async with agent_process(tmp_path, AGENT) as process:
            await process.send("arm", **facts)
            assert (await process.receive())["op"] == "refused"
            assert await process.process.wait() == 0


async def test_process_ends_with_its_socket_even_before_it_is_armed(tmp_path: Path) -> None:
    async with agent_process(tmp_path, AGENT) as process:
        assert await process.hang_up() == 0


async def test_process_that_is_given_no_socket_says_so() -> None:
    done = await anyio.run_process(
        [sys.executable, "-m", "redteam_sdk.serve", "--fd", "0"], stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 2
    assert b"file descriptor 0 is no socket that this process inherited" in done.stderr
