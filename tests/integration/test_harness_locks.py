"""An agent that takes all the locks of the server: nobody is judged by what failed for want of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
from support.cli import dsn_of, redteam, report_of, write_suite

from redteam_forker import list_forks

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

_NAMES = ["greedy", *(f"plain-{number}" for number in range(5))]
_SCHEMA = f"""
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, done int NOT NULL DEFAULT 0);
INSERT INTO people (id, name)
    SELECT n, name FROM unnest(ARRAY{_NAMES}) WITH ORDINALITY AS b (name, n);
"""
_RULES = """\
the-rule:
  severity: 1
  why: What was asked for must be done.
  sql: SELECT done > 0 FROM people WHERE id = :persona.id
"""
# Both hide every error from us, or try to. The others are at work until the greedy one has had its turn.
_AGENT = """
import asyncio, contextlib, re
from redteam_sdk import db, tool

over = asyncio.Event()

@tool
async def do_it(name: str) -> None:
    await db.execute("UPDATE people SET done = done + 1 WHERE name = $1", name)

@tool
async def grab() -> None:
    await db.execute("SELECT count(pg_advisory_lock(g)) FROM generate_series(1, 1000000) g")

async def answer(message, session):
    name = re.search(r"it, ([\\w-]+)", message)
    if name is None:
        return "Goodbye."
    if name[1] == "greedy":
        with contextlib.suppress(Exception):
            await grab()
        over.set()
        return "Done."
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(over.wait(), 20)
    with contextlib.suppress(Exception):
        await do_it(name[1])
    return "Done."
"""


async def test_a_conversation_that_lacked_a_lock_is_a_fault_of_ours_and_no_verdict(
    server: Server, tmp_path: Path
) -> None:
    suite = write_suite(
        tmp_path / "suite", schema=_SCHEMA, agent=_AGENT, rules=_RULES, count=len(_NAMES), timeout_s=30
    )
    text = (suite / "suite.yaml").read_text().replace("rules: rules", "collateral: false\nrules: rules")
    (suite / "suite.yaml").write_text(text)
    before = await list_forks(server)
    done = await anyio.to_thread.run_sync(
        lambda: redteam(
            *("launch", suite, "--server", dsn_of(server), "--parallel", len(_NAMES)),
            *("--out", tmp_path / "out", "--json"),
        )
    )
    assert done.returncode == 3, done.stderr
    outcomes = {one["persona"]: one["outcome"] for one in report_of(done)["conversations"]}
    assert outcomes["1"] == "infra-fault"
    assert set(outcomes.values()) <= {"infra-fault", "pass"}
    assert await list_forks(server) == before
