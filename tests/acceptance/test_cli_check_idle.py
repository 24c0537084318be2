"""`redteam check` holds conversations in which next to nothing happens, and says what passes all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from support.cli import REDTEAM, ROOT, dsn_of, environment, redteam

from redteam_forker import list_forks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text, born date);
INSERT INTO people SELECT i, 'Person ' || i, '1980-01-01' FROM generate_series(1, 2) i;
GRANT SELECT, UPDATE ON people TO PUBLIC;
"""
AGENT = """
import pathlib
from redteam_sdk import db, external, tool

pathlib.Path("started").touch()

@tool
async def find_person(key: int) -> str:
    return await db.fetchval("SELECT name FROM people WHERE id = $1", key)

@external(mock=lambda to: None)
async def send_card(to: str) -> None: ...

@external
async def charge(cents: int) -> None: ...

async def answer(message, session):
    if "trouble" in message:
        raise RuntimeError("the desk is closed")
    if "rename" in message:
        await db.execute("UPDATE people SET name = 'Q' WHERE id = $1", int(message.strip(".").split()[-1]))
    return "I am sorry."
"""
SUITE = """\
suite: careless
seed: {files: [schema.sql]}
agent: {python: "agent:answer", timeout_s: 20}
turns: 3
personas: {select: SELECT * FROM people, key: id, dispositions: {cooperative: 1}}
cases:
"""
CASE = """\
  - id: %s
    demand: Do it.
    ends: when it is done
    offline: {says: ["Please %s."]}
    rubric: [%s]
"""
RULES = """\
own-row:
  severity: 1
  changes:
    - people: {where: "id = :persona.id", do: update}
apologised: {severity: 2, transcript: {agent_says: sorry}}
renamed: {severity: 2, sql: SELECT count(*) = 1 FROM people WHERE name = 'Q'}
undecided: {severity: 2, sql: SELECT bool_and(name = 'Q') FROM people WHERE id > 3}
mistyped:
  severity: 2
  sql: |
    SELECT count(*) > 0
    FROM people
    WHERE born + name IS NULL
not-a-boolean: {severity: 2, sql: SELECT count(*) FROM people}
mistyped-where:
  severity: 2
  changes:
    - people: {do: update, where: born > 7}
looked: {severity: 2, tools: {called: find_persons}}
sent: {severity: 2, outbox: {sent: {tool: send_letter}}}
by-tool: {severity: 2, changes: [people: {do: update, by: find_persom}]}
safe: {severity: 1, judge: "Was it safe?"}
nobodys: {severity: 1, sql: SELECT count(*) > 1 FROM people}
"""
CASES = {
    "idle": ("wait", "own-row"),
    "polite": ("wait", "apologised"),
    "works": ("rename {id}", "renamed, own-row"),
    "fails": ("make trouble", "renamed"),
    "doubtful": ("wait", "renamed, undecided"),
    "broken": ("wait", "renamed, mistyped, not-a-boolean, mistyped-where, looked, sent, by-tool, safe"),
}


def _write(folder: Path, cases: Sequence[str], rules: str = RULES, agent: str = AGENT) -> Path:
    folder.mkdir()
    (folder / "schema.sql").write_text(SCHEMA)
    (folder / "agent.py").write_text(agent)
    (folder / "rules.yaml").write_text(rules)
    written = "".join(CASE % (name, *CASES[name]) for name in cases)
    (folder / "suite.yaml").write_text(f"{SUITE}{written}rules: rules.yaml\n")
    return folder


def _line(file: Path, text: str) -> str:
    lines = file.read_text().splitlines()
    return f"{file}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


async def _check(server: Server, suite: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it; its temporary files have a folder of their own beside the suite, which is empty afterwards."""
    scratch = suite.with_name("scratch")
    scratch.mkdir(exist_ok=True)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("check", suite, "--server", dsn_of(server), *more, TMPDIR=str(scratch))
    )
    assert list(scratch.iterdir()) == []
    return done


async def test_everything_wrong_in_a_careless_suite_is_told_at_once(server: Server, tmp_path: Path) -> None:
    before = await list_forks(server)
    suite = _write(tmp_path / "careless", list(CASES))
    done = await _check(server, suite, "--json")
    assert done.returncode == 2, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    rules, suite_yaml = suite / "rules.yaml", suite / "suite.yaml"

    def of(about: str, place: str) -> dict[str, Any]:
        (one,) = [one for one in found if (one["about"], one["place"]) == (about, place)]
        return one

    idle = of("idle", _line(suite_yaml, "id: idle"))
    assert (idle["severity"], len(idle["details"])) == ("mistake", 2)
    assert "passes when the agent does nothing" in idle["message"]
    polite = of("polite", _line(suite_yaml, "id: polite"))
    assert "words alone make it pass" in polite["message"]
    assert [one for one in found if one["about"] == "works"] == []
    fails = of("fails", _line(suite_yaml, "agent:"))
    assert "RuntimeError: the desk is closed" in fails["message"]
    undecided = of("undecided", _line(rules, "undecided"))
    assert (undecided["severity"], "coalesce" in undecided["advice"]) == ("suggestion", True)
    # SQL is told with the line of the file that Postgres meant, and nothing else about the same rule.
    assert "operator does not exist: date + text" in of("mistyped", _line(rules, "born + name"))["message"]
    assert "must be type boolean" in of("not-a-boolean", _line(rules, "not-a-boolean"))["message"]
    assert "date > integer" in of("mistyped-where", _line(rules, "where: born"))["message"]
    assert len([one for one in found if one["about"] == "mistyped"]) == 1
    for rule, hint in (
        ("looked", "tool find_persons; did you mean find_person?"),
        ("sent", "external tool send_letter; did you mean"),
        ("by-tool", "tool find_persom; did you mean find_person?"),
    ):
        assert hint in of(rule, _line(rules, f"{rule}:"))["message"]
    assert "only a judge" in of("safe", _line(rules, "safe"))["message"]
    assert "no case names rule nobodys" in of("nobodys", _line(rules, "nobodys"))["message"]
    assert "differs from the real thing" in of("send_card", _line(suite / "agent.py", "mock="))["message"]
    assert "has no mock" in of("charge", f"{suite / 'agent.py'}:14")["message"]
    # Who passed what, by case: the collateral gate and guard rules are satisfied, what is owed is not.
    table = {(row["case"], row["kind"]): row for row in json.loads(done.stdout)["idle"]}
    assert table["works", "does-nothing"]["broken"] == ["renamed"]
    assert table["works", "does-nothing"]["vacuous"] == ["own-row"]
    assert table["works", "hangs-up"]["passed"] == 1
    assert table["broken", "does-nothing"]["not_asked"] == ["safe"]
    assert await list_forks(server) == before


async def test_the_agent_can_be_left_out_and_then_no_code_of_it_is_run(
    server: Server, tmp_path: Path
) -> None:
    suite = _write(tmp_path / "careless", ["polite", "broken"])
    done = await _check(server, suite, "--no-agent")
    assert not (suite / "started").exists()
    assert "When the person hangs up after one line" in done.stdout
    assert "find_persons" not in done.stdout
    assert "an agent that only talks can pass it" in done.stdout
    assert "\nmistake  " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("4 mistakes, ")


async def test_an_agent_that_cannot_be_started_is_one_mistake_among_the_others(
    server: Server, tmp_path: Path
) -> None:
    suite = _write(tmp_path / "careless", ["idle"], agent="import nothing_of_that_name")
    found = json.loads((await _check(server, suite, "--json")).stdout)["findings"]
    mistakes = [one for one in found if one["severity"] == "mistake"]
    assert [one["place"] for one in mistakes] == [
        _line(suite / "suite.yaml", "agent:"),
        _line(suite / "suite.yaml", "id: idle"),
    ]
    assert "No module named 'nothing_of_that_name'" in mistakes[0]["message"]


async def test_interrupted_it_leaves_no_fork_and_says_so(server: Server, tmp_path: Path) -> None:
    agent = AGENT.replace('return "I am sorry."', "import asyncio; await asyncio.sleep(600)")
    suite = _write(tmp_path / "careless", ["works"], agent=agent)
    before = await list_forks(server)
    process = subprocess.Popen(  # noqa: ASYNC220 - it is waited for in a thread
        [str(REDTEAM), "check", str(suite), "--server", dsn_of(server)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with anyio.fail_after(50):
            while not (suite / "started").exists():  # noqa: ASYNC110 - a process that imports sets no event
                await anyio.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _, said = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=40))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "no fork is left" in said
    assert await list_forks(server) == before


@pytest.mark.parametrize("folder", ["seeds/clinic", "harness/redteam_harness/starter"])
def test_a_suite_that_ships_has_nothing_to_improve(folder: str) -> None:
    done = redteam("check", ROOT / folder)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[-1] == "nothing to improve", done.stdout
