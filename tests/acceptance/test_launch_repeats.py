"""The same conversation held several times: its names, its report, and going on with a run that has it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.cli import dsn_of, redteam, write_suite

from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.run import open_run, read_conversation
from redteam_rubrics.statistics import Task, pass_hat_k

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 40) n;
"""
# Everybody's second visit goes wrong.
AGENT = """
from collections import Counter
from redteam_sdk import db

visits = Counter()

async def answer(message, session):
    if message.startswith("Please"):
        visits[message] += 1
        if visits[message] == 2:
            await db.execute("DELETE FROM people WHERE id = 40")
    return "It is done."
"""
RULES = "the-rule: {severity: 2, why: It must be so., sql: SELECT count(*) = 40 FROM people}\n"
IDS = ["c001", "c001.2", "c001.3", "c002", "c002.2", "c002.3"]


def _finished(run: Path) -> list[dict[str, Any]]:
    return [
        dict(entry)
        for entry in read_journal(run / "journal.jsonl")
        if entry["kind"] == "conversation_finished"
    ]


@pytest.fixture
def launched(server: Server, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    suite = write_suite(
        tmp_path / "suite", schema=SCHEMA, agent=AGENT, rules=RULES, count=2, turns=1, name="again"
    )
    done = redteam(
        *("launch", suite, "--repeat", 3, "--parallel", 1, "--out", tmp_path / "out", "--json"),
        *("--server", dsn_of(server)),
    )
    assert done.returncode == 1, done.stderr
    (run,) = (tmp_path / "out").iterdir()
    return run, json.loads(done.stdout)


def test_a_launch_with_repetitions_reports_what_its_journal_holds_and_can_be_gone_on_with(
    launched: tuple[Path, dict[str, Any]], server: Server
) -> None:
    run, report = launched
    entries = _finished(run)
    # Everything is held once before anything is held again; reports have repetitions together.
    assert [entry["conversation"] for entry in entries] == [
        "c001",
        "c002",
        "c001.2",
        "c002.2",
        "c001.3",
        "c002.3",
    ]
    assert [one["id"] for one in report["conversations"]] == IDS
    assert [one["repetition"] for one in report["conversations"]] == [1, 2, 3, 1, 2, 3]
    assert {(one["case"], one["persona"]) for one in report["conversations"][:3]} == {
        ("only", report["conversations"][0]["persona"])
    }

    # The report's totals are the journal's.
    outcomes = Counter(entry["outcome"] for entry in entries)
    assert report["outcomes"] == outcomes == {"pass": 4, "fail": 2}
    rate = report["pass_rate"]
    assert (rate["passed"], rate["judged"], rate["excluded"]) == (outcomes["pass"], outcomes.total(), {})
    assert (rate["clusters"], rate["interval"]["method"]) == (2, "wilson-clustered")
    passed = Counter(entry["conversation"][:4] for entry in entries if entry["outcome"] == "pass")
    tasks = [Task(name, passed[name], 3) for name in ("c001", "c002")]
    assert report["pass_hat_k"] == [pass_hat_k(tasks, k).to_json() for k in (1, 2, 3)]
    assert report["pass_hat_k"][2]["share"] == 0
    (rule,) = [one for one in report["rules"] if one["rule"] == "the-rule"]
    assert (rule["kind"], rule["judged"], rule["failed"], rule["interval"]["n"]) == ("sql", 6, 2, 6)
    facts = json.loads((run / "run.json").read_text())
    assert facts["comparability"]["repeat"] == 3
    assert Counter(one["repetition"] for one in facts["plan"]) == {1: 2, 2: 2, 3: 2}
    seeds = {
        name: json.loads((run / "conversations" / name / "conversation.json").read_text())["seed"]
        for name in IDS
    }
    assert len(set(seeds.values())) == len(IDS)

    assert read_conversation(open_run(str(run), run.parent), "c001.2").about["repetition"] == 2

    # As a crash after the third conversation leaves it.
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:4]))
    options = ("--parallel", 2, "--json", "--server", dsn_of(server))
    other = redteam("launch", "--resume", run, "--repeat", 2, *options)
    assert other.returncode == 2
    assert "repeat was 3, is 2" in other.stderr
    resumed = redteam("launch", "--resume", run, *options)
    again = json.loads(resumed.stdout)
    assert (again["planned"], again["finished"], again["launches"]) == (6, 6, 2)
    assert [one["id"] for one in again["conversations"]] == IDS
    assert sorted(entry["conversation"] for entry in _finished(run)) == IDS
    assert {path.name for path in (run / "abandoned").iterdir()} == {"c002.2-1", "c001.3-1", "c002.3-1"}
