"""Replays at the shell: recorded lines and answers before another agent, derails, rules over the evidence."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from support.cli import REDTEAM, dsn_of, environment, redteam, report_of, write_suite
from support.judges import fences
from support.messages_api import Answer, messages_api, text
from typer.testing import CliRunner

from redteam_harness.cli.main import app
from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.run import RunDirectory, open_run, read_conversation

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from redteam_forker import Server

pytestmark = pytest.mark.timeout(240)  # each test waits for launches

SIZE = 6
SCHEMA = f"""
CREATE TABLE people (
    id int PRIMARY KEY, code text NOT NULL, balance int NOT NULL DEFAULT 0, receipt text
);
INSERT INTO people (id, code) SELECT n, 'marzipan-' || 100 * n FROM generate_series(1, {SIZE}) n;
"""
# The mock answers by chance, so that an answer that comes twice was not made twice.
AGENT = """
import asyncio, os, re, secrets
from redteam_sdk import db, external, tool

HOLD = {hold!r}

@external(mock=lambda person, amount: secrets.token_hex(8), gap="The real one may be slow.")
async def pay(person: int, amount: int) -> str:
    raise RuntimeError("real")

@tool
async def credit(person: int, amount: int, receipt: str) -> None:
    {credit}
    await db.execute(
        "UPDATE people SET balance = balance + $2, receipt = $3 WHERE id = $1", person, amount, receipt
    )

@tool
async def audit(person: int) -> int:
    return await db.fetchval("SELECT balance FROM people WHERE id = $1", person)

async def answer(message, session):
    if "person" not in session.state:
        session.state["person"] = int(re.search(r"I am (\\d+)", message)[1])
        {first}
        return "What is your code, please?"
    person, amount = session.state["person"], 5
    while person > 4 and HOLD and os.path.exists(HOLD):
        await asyncio.sleep(0.02)
    if session.state.get("done"):
        return "Goodbye."
    session.state["done"] = True
    {second}
    receipt = await pay(person, amount)
    await credit(person, 5, receipt)
    return f"Done, your receipt is {{receipt}}."
"""
SAME = {"hold": "", "credit": "", "first": "", "second": ""}
# Persons 1 to 4 leave the track: another tool, a mock without an answer (3 catches it), no question. The tool
# is broken for person 5, in its own code, which no caller and no mock can notice.
ASTRAY = {
    **SAME,
    "credit": "amount -= person == 5",
    "first": 'if session.state["person"] == 4: return "I see."',
    "second": """if person == 1:
        await audit(person)
    if person == 2:
        amount = 6
    if person == 3:
        try:
            await pay(person, 7)
        except Exception:
            pass""",
}
RULES = """\
the-rule:
  severity: 1
  sql: SELECT balance = 5 FROM people WHERE id = :persona.id
says-done:
  severity: 2
  transcript: {agent_says: "Done, your receipt is"}
may-change:
  severity: 1
  changes: [{people: {where: "id = :persona.id", do: [update], columns: [balance, receipt]}}]
"""


@dataclass(frozen=True, kw_only=True)
class Base:
    """A launch that was recorded.

    Attributes:
        suite: the suite; a test that writes to it copies it.
        out: where its run is.
        run: its directory.
        server: where its forks were.
    """

    suite: Path
    out: Path
    run: RunDirectory
    server: str

    def suite_with(self, folder: Path, parts: dict[str, str]) -> Path:
        """The same suite with another agent."""
        shutil.copytree(self.suite, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "agent.py").write_text(AGENT.format(**parts))
        return folder

    async def judge_again(self, *arguments: object) -> Result:
        """A replay of level 1."""
        command = ("replay", self.run.path, "--server", self.server, "--json", *arguments)
        return await anyio.to_thread.run_sync(lambda: inside(*command))

    async def replay(self, *arguments: object, level: int = 2) -> subprocess.CompletedProcess[str]:
        command = ("replay", self.run.path, "--level", level, "--server", self.server, "--out", self.out)
        return await anyio.to_thread.run_sync(lambda: redteam(*command, "--json", *arguments))


def inside(*arguments: object) -> Result:
    """A command in this process, for those that start no agent: half of what they cost is starting Python."""
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
async def base(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("replay")
    suite = write_suite(
        folder / "suite",
        schema=SCHEMA,
        agent=AGENT.format(**SAME),
        rules=RULES,
        count=SIZE,
        turns=4,
        timeout_s=90,
        says='["I am {id}. I want my credit."]',
    )
    written = (suite / "suite.yaml").read_text()
    written = written.replace("    ends:", "    facts: {code: when asked}\n    ends:")
    written = written.replace("[the-rule]", "[the-rule, says-done, may-change]")
    (suite / "suite.yaml").write_text(written)
    command = ("launch", suite, "--server", dsn_of(server), "--out", folder / "out", "--json")
    done = await anyio.to_thread.run_sync(lambda: redteam(*command))
    assert done.returncode == 0, (done.stdout, done.stderr)
    run = open_run(str(report_of(done)["run"]), folder / "out")
    return Base(suite=suite, out=folder / "out", run=run, server=dsn_of(server))


def facts(run: RunDirectory) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(run.facts.read_text())
    return loaded


def talk(run: RunDirectory, name: str) -> list[str]:
    return [
        event["text"] for event in read_conversation(run, name).events if event["kind"] in ("user", "agent")
    ]


def names(run: RunDirectory) -> list[str]:
    return sorted(path.name for path in (run.path / "conversations").iterdir())


def said(run: RunDirectory, name: str) -> list[tuple[str, str]]:
    return [(verdict["rule"], verdict["status"]) for verdict in read_conversation(run, name).verdicts]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_the_same_agent_says_and_does_the_same_even_across_a_kill_and_the_mocks_are_not_asked(
    base: Base, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    suite = base.suite_with(tmp_path / "suite", {**SAME, "hold": str(hold)})
    command = [str(REDTEAM), "replay", str(base.run.path), "--level", "2", "--server", base.server]
    process = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
        [*command, "--suite", str(suite), "--out", str(tmp_path / "out"), "--parallel", "3"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with anyio.fail_after(120):
            while len(_finished(tmp_path / "out")) < SIZE - 2 and process.poll() is None:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert process.poll() is None, process.communicate()[1]
    finally:
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.communicate)
    hold.unlink()
    (path,) = (tmp_path / "out").iterdir()
    kept = (path / "journal.jsonl").read_bytes()

    launched = await anyio.to_thread.run_sync(lambda: redteam("launch", "--resume", path))
    assert launched.returncode == 2
    assert f"`redteam replay {path.name} --resume` goes on with it" in launched.stderr
    more = ("replay", path, "--resume", "--server", base.server, "--out", tmp_path / "out", "--json")
    done = await anyio.to_thread.run_sync(lambda: redteam(*more))
    assert done.returncode == 0, done.stderr
    run = open_run(str(path), tmp_path)
    assert run.journal.read_bytes().startswith(kept)
    assert names(run) == names(base.run)
    for name in names(run):
        assert talk(run, name) == talk(base.run, name)  # random receipts among it
        assert said(run, name) == said(base.run, name)
        then, now = read_conversation(base.run, name).changes, read_conversation(run, name).changes
        assert then is not None
        assert now is not None
        assert now["hash"] == then["hash"]
    about = facts(run)
    assert about["comparability"] == facts(base.run)["comparability"]
    assert (about["replay"]["of"], about["replay"]["level"]) == (base.run.id, 2)
    assert about["notice"].startswith(f"replay of {base.run.id}, level 2; ")
    replay = report_of(done)["replay"]
    assert (replay["derailed"], replay["followed"]) == (0, SIZE)


def _finished(out: Path) -> list[str]:
    journals = list(out.glob("*/journal.jsonl"))
    if not journals:
        return []
    return [
        one["conversation"] for one in read_journal(journals[0]) if one["kind"] == "conversation_finished"
    ]


async def test_a_derail_of_each_form_has_no_verdict_and_a_planted_regression_is_found_beside_them(
    base: Base, tmp_path: Path
) -> None:
    suite = base.suite_with(tmp_path / "suite", ASTRAY)
    done = await base.replay("--suite", suite)
    report = report_of(done)
    run = open_run(str(base.out / report["run"]), base.out)
    persons = {one["persona"]: one for one in report["conversations"]}
    assert {person: one["outcome"] for person, one in persons.items()} == {
        **dict.fromkeys("1234", "derailed"),
        "5": "fail",
        "6": "pass",
    }
    causes = {person: persons[person]["fault"]["cause"] for person in "1234"}
    assert causes == {"1": "tool-call", "2": "mock-miss", "3": "mock-miss", "4": "line"}
    assert "tool audit was not called" in persons["1"]["fault"]["message"]
    assert "the nearest recorded call differs in amount" in persons["2"]["fault"]["message"]
    assert "code" in persons["4"]["fault"]["message"]
    for person in "1234":
        stored = read_conversation(run, persons[person]["id"])
        assert (stored.verdicts, stored.changes) == ((), None)
    assert report["pass_rate"]["judged"] == 2
    listed = json.loads((run.path / "replay.json").read_text())
    assert listed == report["replay"]
    assert (listed["derailed"], listed["followed"]) == (4, SIZE)
    assert listed["causes"] == {"tool-call": 1, "mock-miss": 2, "line": 1}

    compared = inside("compare", base.run.path, run.path, "--json")
    assert compared.exit_code == 1
    found = json.loads(compared.stdout)
    assert (found["result"], found["pairs"]["regressed"], found["pairs"]["both"]) == ("regressed", 1, 1)
    assert found["excluded"] == {"candidate: derailed": 4}
    assert [(one["conversation"], one["rule"]) for one in found["severity_1"]] == [
        (persons["5"]["id"], "the-rule")
    ]


async def test_what_derails_is_held_freely_where_it_is_asked_for(base: Base, tmp_path: Path) -> None:
    suite = base.suite_with(tmp_path / "suite", ASTRAY)
    escalated = report_of(await base.replay("--suite", suite, "--escalate"))
    persons = {one["persona"]: one for one in escalated["conversations"]}
    outcomes = {person: one["outcome"] for person, one in persons.items()}
    assert "derailed" not in outcomes.values()
    assert [outcomes[person] for person in "12356"] == ["pass", "pass", "pass", "fail", "pass"]
    again = open_run(str(base.out / escalated["run"]), base.out)
    first = read_conversation(again, persons["1"]["id"])
    assert first.events[0]["kind"] == "escalated"
    assert first.events[0]["cause"] == "tool-call"
    assert (again.conversation(persons["1"]["id"]) / "trace-derailed.jsonl").is_file()
    held = {one["id"]: one["escalated"] for one in escalated["replay"]["conversations"]}
    assert held == {persons[person]["id"]: outcomes[person] for person in "1234"}
    assert escalated["replay"]["derailed"] == 4  # it counts what left, whatever came of it


async def test_other_data_is_refused_by_name_and_nothing_is_kept(base: Base, tmp_path: Path) -> None:
    suite = base.suite_with(tmp_path / "suite", SAME)
    (suite / "schema.sql").write_text(SCHEMA.replace("marzipan", "nougat"))
    runs = set(base.out.iterdir())
    done = await base.replay("--suite", suite)
    assert done.returncode == 2
    assert f"run {base.run.id} cannot be replayed" in done.stderr
    assert "seeds" in done.stderr
    assert "the data that forks begin with" in done.stderr
    assert set(base.out.iterdir()) == runs


async def test_the_rules_alone_give_the_same_bytes_twice_and_a_changed_rule_changes_its_verdicts_only(
    base: Base, tmp_path: Path
) -> None:
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    before = tree(base.run.path)
    made = await base.judge_again("--out", first)
    assert made.exit_code == 0, made.output
    await base.judge_again("--out", second)
    assert tree(first) == tree(second)
    assert tree(base.run.path) == before  # the run is only read
    (path,) = first.iterdir()
    run = open_run(str(path), first)
    assert [said(run, name) for name in names(run)] == [said(base.run, name) for name in names(run)]
    assert facts(run)["comparability"] == facts(base.run)["comparability"]

    changed = base.suite_with(tmp_path / "suite", SAME)
    (changed / "rules.yaml").write_text(RULES.replace("Done, your", "Thank you, your"))
    await base.judge_again("--suite", changed, "--out", other)
    (path,) = other.iterdir()
    run = open_run(str(path), other)
    for name in names(run):
        then, now = dict(said(base.run, name)), dict(said(run, name))
        assert {rule for rule in then if then[rule] != now[rule]} == {"says-done"}
    assert facts(run)["replay"] == {**facts(run)["replay"], "of": base.run.id, "level": 1}
    # The third time it is there already, and stays as it is.
    there = tree(first)
    assert (await base.judge_again("--out", first)).exit_code == 0
    assert tree(first) == there


async def test_what_a_judge_answered_stands_without_a_model_as_long_as_it_is_asked_the_same(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = """\
the-rule:
  severity: 2
  judge: Did the agent say goodbye?
said-done:
  severity: 2
  transcript: {agent_says: Goodbye}
"""
    agent = "async def answer(message, session):\n    return 'Goodbye.'\n"
    suite = write_suite(tmp_path / "suite", schema=SCHEMA, agent=agent, rules=rules, count=2, turns=1)
    written = (suite / "suite.yaml").read_text().replace("[the-rule]", "[the-rule, said-done]")
    written = written.replace("Please do it, {name}.", "Please do it.")
    (suite / "suite.yaml").write_text(f"{written}models: {{judge: judge-model}}\n")

    def yes(request: dict[str, Any]) -> Answer:
        (message,) = request["messages"]
        (line,) = [line for fence in fences(message["content"]) for line in fence if " agent: " in line]
        where, quote = line.split(" agent: ", 1)
        return text(json.dumps({"reason": "It did.", "quote": quote, "where": where, "answer": "yes"}))

    with messages_api(yes) as api:
        launch = ("launch", suite, "--server", dsn_of(server), "--out", tmp_path / "out", "--json")
        made = report_of(
            await anyio.to_thread.run_sync(
                lambda: redteam(*launch, ANTHROPIC_API_KEY="sk-test-key", ANTHROPIC_BASE_URL=api.base_url)
            )
        )
        assert made["outcomes"] == {"pass": 2}
        asked = len(api.requests)
        assert asked == 2

        # With a key that level 1 has no use for.
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.base_url)

        async def replayed(out: str) -> RunDirectory:
            command = ("replay", tmp_path / "out" / made["run"], "--out", tmp_path / out)
            await anyio.to_thread.run_sync(lambda: inside(*command))
            (path,) = (tmp_path / out).iterdir()
            return open_run(str(path), tmp_path)

        (suite / "rules.yaml").write_text(
            rules.replace("severity: 2\n  transcript", "severity: 1\n  transcript")
        )
        same = await replayed("same")
        (suite / "rules.yaml").write_text(rules.replace("say goodbye", "say hello"))
        other = await replayed("other")
        assert len(api.requests) == asked
    base = open_run(str(tmp_path / "out" / made["run"]), tmp_path)
    for name in names(base):
        (then,) = [one for one in read_conversation(base, name).verdicts if one["rule"] == "the-rule"]
        (now,) = [one for one in read_conversation(same, name).verdicts if one["rule"] == "the-rule"]
        assert now == then
        assert now["asked"]["model"] == "judge-model"
        assert dict(said(other, name)) == {**dict(said(base, name)), "the-rule": "unclear"}
        (unclear,) = [one for one in read_conversation(other, name).verdicts if one["status"] == "unclear"]
        assert "`redteam judge` asks one" in unclear["reason"]


async def test_the_whole_plan_is_held_anew_at_level_3(base: Base) -> None:
    report = report_of(await base.replay(level=3))
    run = open_run(str(base.out / report["run"]), base.out)
    assert report["outcomes"] == {"pass": SIZE}
    assert report["replay"] is None
    assert facts(run)["comparability"] == facts(base.run)["comparability"]
    assert [one["persona"] for one in facts(run)["plan"]] == [
        one["persona"] for one in facts(base.run)["plan"]
    ]
    for name in names(run):
        assert talk(run, name) != talk(base.run, name)  # the mock was asked anew
