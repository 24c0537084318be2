"""A run goes out as spans and comes back as cases, a suite and a run of their own, with the same steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import dsn_of, redteam, report_of, write_suite
from support.terminal import at_a_terminal

from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import open_run, read_conversation
from redteam_harness.exchange.history import read_history
from redteam_harness.exchange.recording import Recorded, parse_lines
from redteam_harness.launch.suite import load_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redteam_forker import Server

pytestmark = pytest.mark.timeout(240)

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, visits int NOT NULL DEFAULT 0);
INSERT INTO people VALUES (101, 'Ada Byron'), (102, 'Bo Lund');
"""
AGENT = '''
import asyncio
from redteam_sdk import db, tool

class NotToday(Exception):
    """A refusal."""

@tool
async def count_visit(person: int) -> dict:
    await asyncio.sleep(0.002)
    visits = await db.fetchval("UPDATE people SET visits = visits + 1 WHERE id = $1 RETURNING visits", person)
    if visits is None:
        raise NotToday("nobody of that number")
    return {"visits": visits, "seen": [True, None, "\u00fc"]}

async def answer(message, session):
    await asyncio.sleep(0.002)
    done = await count_visit(101)
    await asyncio.sleep(0.002)
    try:
        await count_visit(7)
    except NotToday as error:
        return f"Counted {done['visits']}; {error} \u2028 Thank you."
'''
RULES = """
the-rule:
  severity: 2
  changes: [{people: {where: "id = :persona.id", do: [update]}}]
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("import") / "suite"
    return write_suite(folder, schema=SCHEMA, agent=AGENT, rules=RULES, count=2, turns=2)


@pytest.fixture(scope="module")
async def run(server: Server, suite: Path) -> Path:
    done = await anyio.to_thread.run_sync(
        lambda: redteam(
            *("launch", suite, "--parallel", 1, "--server", dsn_of(server)),
            *("--out", suite.parent / "out", "--json"),
        )
    )
    return suite.parent / "out" / str(report_of(done)["run"])


@pytest.fixture(scope="module")
async def spans(run: Path) -> Path:
    file = run.parent.parent / "spans.jsonl"
    done = await anyio.to_thread.run_sync(lambda: redteam("export", run, "--output", file))
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture(scope="module")
def import_(server: Server, suite: Path) -> Callable[..., Any]:
    def run_import(*arguments: object) -> Any:
        return redteam(
            "import", *arguments, "--suite", suite, "--server", dsn_of(server), "--out", suite.parent / "out"
        )

    return run_import


def steps_of(run: Path, conversation: str) -> Any:
    trace = (run / "conversations" / conversation / "trace.jsonl").read_text(encoding="utf-8")
    return parse_lines(conversation, trace).steps


async def test_spans_come_back_as_a_run_that_is_replayed_with_the_same_steps(
    import_: Callable[..., Any], run: Path, spans: Path, suite: Path, server: Server
) -> None:
    done = await anyio.to_thread.run_sync(lambda: import_(spans, "--name", "back", "--json"))
    assert done.returncode == 0, done.stderr
    told = report_of(done)
    held = {str(read_facts(open_run(str(run), run))["plan"][n]["persona"]) for n in range(2)}
    assert {case["persona"] for case in told["cases"]} == held
    assert {case["by"] for case in told["cases"]} == {"the file says so"}
    assert [one.id for one in load_suite(suite / "imported-back.yaml").spec.cases] == ["back-1", "back-2"]
    imported = run.parent / told["run"]
    for name in ("c001", "c002"):
        assert steps_of(imported, name) == steps_of(run, name)
        (again,) = read_history(suite / "imported" / f"back-{int(name[1:])}.jsonl").whole
        assert isinstance(again, Recorded)
        assert again.steps == steps_of(run, name)
    # What nobody saw is not judged, and in no rate.
    report = await anyio.to_thread.run_sync(lambda: redteam("report", imported))
    assert "imported" in report.stdout, report.stdout + report.stderr
    entries = [
        one for one in read_journal(imported / "journal.jsonl") if one["kind"] == "conversation_finished"
    ]
    assert {one["cause"] for one in entries} == {"imported"}
    assert read_conversation(open_run(told["run"], run.parent), "c001").verdicts == ()
    # Held again by the same agent on fresh forks, with the recorded lines.
    replayed = await anyio.to_thread.run_sync(
        lambda: redteam(
            "replay", told["run"], "--level", "2", "--server", dsn_of(server), "--out", run.parent, "--json"
        )
    )
    assert replayed.returncode in (0, 1), replayed.stdout + replayed.stderr
    base = run.parent / str(report_of(replayed)["run"])
    for name in ("c001", "c002"):
        assert steps_of(base, name) == steps_of(run, name)
    exported = await anyio.to_thread.run_sync(lambda: redteam("export", imported, "--output", "-"))
    assert exported.stdout.count("\n") == 2, exported.stderr


CHAT = [
    {"role": "system", "content": "You are a desk."},
    {"role": "user", "content": "I am Zoe Zimmer, please count me."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "function": {"name": "count_visit", "arguments": '{"person": 101}'}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": '{"visits": 4}'},
    {"role": "assistant", "content": "Counted, Zoe Zimmer."},
]


async def test_a_message_list_finds_its_row_and_loses_the_real_name(
    import_: Callable[..., Any], suite: Path, tmp_path: Path
) -> None:
    chat, mapping = tmp_path / "chat.json", tmp_path / "map.yaml"
    chat.write_text(json.dumps(CHAT), encoding="utf-8")
    mapping.write_text("Zoe Zimmer: Ada Byron\nNobody: Somebody\n", encoding="utf-8")
    done = await anyio.to_thread.run_sync(lambda: import_(chat, "--replace", mapping))
    assert done.returncode == 0, done.stderr
    assert "replaced 2 times; entries that stand nowhere: 2" in done.stdout
    assert "row 101, by id, name" in done.stdout
    written = (suite / "imported" / "chat.jsonl").read_text(encoding="utf-8")
    assert "Ada Byron" in written
    assert "Zimmer" not in written + (suite / "imported-chat.yaml").read_text(encoding="utf-8")
    (case,) = load_suite(suite / "imported-chat.yaml").spec.cases
    assert (case.who, case.demand) == ("id = 101", "I am Ada Byron, please count me.")
    # A name that is taken is not written over.
    again = await anyio.to_thread.run_sync(lambda: import_(chat, "--replace", mapping))
    assert again.returncode == 2
    assert "is there already" in again.stderr


async def test_a_row_that_is_not_clear_is_asked_for_and_nothing_is_written(
    import_: Callable[..., Any], suite: Path, tmp_path: Path
) -> None:
    chat = tmp_path / "unclear.json"
    chat.write_text(json.dumps([CHAT[1], CHAT[4]]), encoding="utf-8")
    done = await anyio.to_thread.run_sync(lambda: import_(chat))
    assert done.returncode == 2
    assert "--persona KEY" in done.stderr
    named = await anyio.to_thread.run_sync(lambda: import_(chat, "--persona", "999"))
    assert named.returncode == 2
    assert not (suite / "imported-unclear.yaml").exists()
    assert not (suite / "imported" / "unclear.jsonl").exists()


async def test_a_row_that_is_not_clear_is_asked_for_at_a_terminal(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    chat = tmp_path / "asked.json"
    chat.write_text(
        json.dumps([{"role": "user", "content": "Ada Byron or Bo Lund?"}, CHAT[4]]), encoding="utf-8"
    )

    def ask() -> int:
        out = suite.parent / "asked"
        with at_a_terminal(
            "import", chat, "--suite", suite, "--server", dsn_of(server), "--out", out
        ) as terminal:
            assert "name Bo Lund" in terminal.expect("Which row does asked belong to?")
            terminal.type("103\n")
            terminal.expect("there is no '103'")
            terminal.type("102\n")
            return terminal.finish()

    assert await anyio.to_thread.run_sync(ask) == 0
    (case,) = load_suite(suite / "imported-asked.yaml").spec.cases
    assert case.who == "id = 102"


def test_what_is_not_whole_is_refused_with_zero_steps(tmp_path: Path) -> None:
    chat = tmp_path / "cut.jsonl"
    chat.write_text(
        "".join(json.dumps({"messages": one}) + "\n" for one in (CHAT, CHAT[:-1])), encoding="utf-8"
    )
    done = redteam("import", chat, "--json", cwd=tmp_path)
    assert done.returncode == 1
    told = report_of(done)
    assert told["imported"] == []
    assert [one["missing"] for one in told["refused"]] == [
        "turn 1: the agent's reply is missing; the conversation is cut off there"
    ]
    assert not (tmp_path / "imported").exists()
    whole = redteam("import", chat, "--skip-degraded", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert len(list((tmp_path / "imported").iterdir())) == 1


def test_a_file_can_be_looked_at_without_writing_anything(tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps(CHAT), encoding="utf-8")
    done = redteam("import", chat, "--check", cwd=tmp_path)
    assert done.returncode == 0
    assert "read as openai: 1 whole conversation, 1 turn; left out: 1 system" in done.stdout
    assert list(tmp_path.iterdir()) == [chat]
