"""The agent is other people's code: what it does to itself, it does to no other conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.to_thread
from support.cli import dsn_of, redteam, report_of, write_suite
from support.tasked import write_tasked_suite

from redteam_forker import list_forks

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

AGENT = """
import asyncio, os, re, sys, time
from redteam_sdk import db, external, tool

@tool
async def do_it(name: str) -> object:
    await db.execute("UPDATE people SET done = done + 1 WHERE name = $1", name)

@tool
async def odd() -> object:
    return object()

@external
async def charge() -> None:
    raise RuntimeError("the real world was reached")

async def answer(message, session):
    name = re.search(r"it, ([\\w-]+)", message)
    if name is None:
        return "Goodbye."
    match name[1].split("-")[0]:
        case "crash":
            os._exit(7)
        case "exit":
            sys.exit(3)
        case "hang":
            await asyncio.Event().wait()
        case "block":
            time.sleep(3600)
        case "raise":
            raise ValueError("the agent's own mistake")
        case "print":
            print("debugging")
        case "reply":
            return {"not": "a text"}
        case "unmocked":
            await charge()
        case "swallow":
            try:
                await charge()
            except Exception:
                pass                       # the agent hides what went wrong from us, or tries to
        case "wander":
            await asyncio.to_thread(os.write, 1, b"raw bytes on fd 1\\n")
    await do_it(name[1])
    return "Done."
"""


def _suite(folder: Path, names: list[str], **parts: object) -> Path:
    return write_tasked_suite(folder, names, agent=AGENT, count=len(names), **{"timeout_s": 2, **parts})


def _launch(suite: Path, server: Server, out: Path) -> dict[str, tuple[str, str, str]]:
    """Outcome, cause and message of each conversation, by the name of who spoke."""
    done = redteam("launch", suite, "--server", dsn_of(server), "--parallel", 12, "--out", out, "--json")
    assert done.returncode == 3, done.stderr
    report = report_of(done)
    by_id = {one["persona"]: one for one in report["conversations"]}
    names = suite_names(suite)
    return {name: _told(by_id[str(number)]) for number, name in enumerate(names, start=1)}


def suite_names(suite: Path) -> list[str]:
    inside = (suite / "schema.sql").read_text().split("ARRAY[")[1].split("]")[0]
    return [name.strip().strip("'") for name in inside.split(",")]


def _told(one: dict[str, Any]) -> tuple[str, str, str]:
    fault = one["fault"] or {"cause": "", "message": ""}
    return one["outcome"], fault["cause"], fault["message"]


CULPRITS = {
    "crash": ("crash", "the agent process ended"),
    "exit": ("exception", "SystemExit"),
    "hang": ("hang", "did not answer within 2 s"),
    "block": ("hang", "held its process for"),
    "raise": ("exception", "ValueError: the agent's own mistake"),
    "print": ("printed", "printed to standard output: 'debugging'"),
    "reply": ("unserialisable", "dict"),
    "unmocked": ("unmocked", "charge"),
    "swallow": ("unmocked", "charge"),
}


async def test_every_way_to_break_ends_its_own_conversation_with_its_cause_and_no_other(
    server: Server, tmp_path: Path
) -> None:
    before = await list_forks(server)
    suite = _suite(tmp_path / "suite", [*CULPRITS, *(f"good-{number}" for number in range(8))])
    told = await _in_thread(_launch, suite, server, tmp_path / "out")
    for name, (cause, says) in CULPRITS.items():
        outcome, told_cause, message = told[name]
        assert (outcome, told_cause) == ("infra-fault", cause), (name, message)
        assert says in message
    assert {told[f"good-{number}"] for number in range(8)} == {("pass", "", "")}
    assert await list_forks(server) == before


async def test_prints_can_be_kept_instead(server: Server, tmp_path: Path) -> None:
    suite = _suite(tmp_path / "suite", ["print", "raise"], stdout="record")
    told = await _in_thread(_launch, suite, server, tmp_path / "out")
    assert told["print"] == ("pass", "", "")


async def test_bytes_on_the_process_standard_output_disturb_nobody(server: Server, tmp_path: Path) -> None:
    suite = _suite(tmp_path / "suite", ["wander", "raise"])
    told = await _in_thread(_launch, suite, server, tmp_path / "out")
    assert told["wander"] == ("pass", "", "")


async def _in_thread(function: Any, *args: Any) -> Any:
    return await anyio.to_thread.run_sync(function, *args)


async def test_conversations_that_change_the_same_row_see_only_their_own_value(
    server: Server, tmp_path: Path
) -> None:
    count = 20
    suite = write_suite(
        tmp_path / "suite",
        schema=f"CREATE TABLE counter (value int NOT NULL); INSERT INTO counter VALUES (0); "
        f"CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL); "
        f"INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, {count}) n;",
        agent=ISOLATION_AGENT,
        rules=ISOLATION_RULES,
        count=count,
        says='["Add {id}.", "Add {id}.", "What is it now?"]',
        turns=4,
    )
    text = (suite / "suite.yaml").read_text().replace("rules: rules", "collateral: false\nrules: rules")
    (suite / "suite.yaml").write_text(text)
    done = await _in_thread(
        lambda: redteam(
            "launch",
            suite,
            "--server",
            dsn_of(server),
            "--parallel",
            count,
            "--out",
            tmp_path / "out",
            "--json",
        )
    )
    report = report_of(done)
    assert (done.returncode, report["outcomes"]) == (0, {"pass": count}), report
    assert report["forks"] == count


# Every conversation waits until all others are in the middle of theirs, so that a shared row would be seen.
ISOLATION_AGENT = """
import asyncio, re
from redteam_sdk import db, tool

everybody = asyncio.Barrier(20)

@tool
async def add(amount: int) -> int:
    return await db.fetchval("UPDATE counter SET value = value + $1 RETURNING value", amount)

async def answer(message, session):
    amount = re.search(r"Add (\\d+)", message)
    if amount is None:
        return f"It is {await db.fetchval('SELECT value FROM counter')}."
    session.state["n"] = session.state.get("n", 0) + 1
    if session.state["n"] == 2:
        await everybody.wait()
    return f"Now it is {await add(int(amount[1]))}."
"""
ISOLATION_RULES = """\
the-rule:
  severity: 1
  why: A conversation sees the state it made, and no other's.
  sql: SELECT value = 2 * :persona.id FROM counter
"""
