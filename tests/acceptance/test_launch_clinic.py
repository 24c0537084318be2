"""The launch that the README promises, as a stranger runs it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from support.cli import ROOT, redteam

from redteam_harness.evidence.journal import read_journal

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

CLINIC = ROOT / "seeds" / "clinic"


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = tmp_path_factory.mktemp("runs")
    done = redteam("launch", CLINIC, "--parallel", 20, "--out", out)
    (run,) = out.iterdir()
    return done, run


def test_twenty_of_twenty_have_an_outcome_and_no_fault_is_ours(
    launched: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, run = launched
    report = json.loads((run / "report.json").read_text())
    assert done.returncode == 1, done.stderr
    assert (report["planned"], report["finished"], report["forks"]) == (20, 20, 20)
    assert set(report["outcomes"]) == {"pass", "fail"}


def test_the_first_line_of_every_report_says_that_no_model_played(
    launched: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, run = launched
    notice = "offline: scripted models check the harness; nothing here is about a model"
    assert done.stdout.splitlines()[0] == notice
    assert json.loads((run / "report.json").read_text())["notice"] == notice
    assert notice in (run / "junit.xml").read_text().splitlines()[1]
    assert json.loads((run / "run.json").read_text())["notice"] == notice
    shown = redteam("show", run, "c001")
    assert shown.stdout.splitlines()[0] == notice


def test_a_failure_names_the_persona_the_rule_the_rows_and_the_command_that_shows_it(
    launched: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = launched
    failure = re.search(
        r"✗ (?P<case>[\w-]+) · persona \d+ · \w+\n"
        r" +(?P<rule>[\w-]+) \(severity 1\)  .+\n"
        r" +\w+ .+ [+~-] .+   by \w+, turn \d+\n"
        r"(?: .*\n)*?"
        r" +redteam show (?P<run>\S+) (?P<id>c\d+)\n",
        done.stdout,
    )
    assert failure is not None, done.stdout
    shown = redteam("show", failure["run"], failure["id"])
    assert shown.returncode == 0
    for part in (failure["case"], failure["rule"], "user", "agent", "what changed"):
        assert part in shown.stdout


def test_the_journal_holds_every_conversation_once_and_its_evidence(
    launched: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, run = launched
    finished = [
        entry for entry in read_journal(run / "journal.jsonl") if entry["kind"] == "conversation_finished"
    ]
    assert sorted(entry["conversation"] for entry in finished) == [f"c{n:03}" for n in range(1, 21)]
    for entry in finished:
        folder = run / "conversations" / entry["conversation"]
        assert json.loads((folder / "changes.json").read_text())["hash"] == entry["changes"]
        kinds = [json.loads(line)["kind"] for line in (folder / "trace.jsonl").read_text().splitlines()]
        assert kinds[0] == "probed"
        assert {"user", "agent", "end"} <= set(kinds)


def test_no_secret_is_in_the_evidence(launched: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, run = launched
    text = "".join(path.read_text(errors="replace") for path in run.rglob("*") if path.is_file())
    for secret in ("postgresql://", "SCRAM-SHA-256", "eyJ", "password"):
        assert secret not in text, secret


def test_the_same_launch_gives_the_same_outcomes(
    launched: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path
) -> None:
    _, run = launched
    redteam("launch", CLINIC, "--parallel", 3, "--count", 9, "--out", tmp_path)
    (again,) = tmp_path.iterdir()
    first, second = (
        {
            one["id"]: (one["outcome"], one["turns"], [verdict["status"] for verdict in one["verdicts"]])
            for one in json.loads((path / "report.json").read_text())["conversations"]
        }
        for path in (run, again)
    )
    assert second == {name: first[name] for name in second}
    assert len(second) == 9


@pytest.mark.parametrize(
    ("format_", "name"),
    [("json", "report.json"), ("junit", "junit.xml"), ("markdown", "report.md"), ("html", "report.html")],
)
def test_what_the_launch_wrote_is_what_is_made_again_from_its_evidence(
    launched: tuple[subprocess.CompletedProcess[str], Path], format_: str, name: str, tmp_path: Path
) -> None:
    _, run = launched
    written = tmp_path / "again"
    done = redteam("report", run, "--format", format_, "--output", written)
    assert (done.returncode, done.stderr) == (0, "")
    assert written.read_text(encoding="utf-8") == (run / name).read_text(encoding="utf-8")


def test_the_report_that_is_printed_again_is_the_end_of_what_the_launch_printed(
    launched: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, run = launched
    notice, report = redteam("report", run).stdout.split("\n", 1)
    assert notice == done.stdout.splitlines()[0]
    assert report
    assert done.stdout.endswith(report)


def test_every_failed_conversation_says_which_event_made_it_fail_first(
    launched: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    _, run = launched
    report = json.loads((run / "report.json").read_text())
    failed = [one for one in report["conversations"] if one["outcome"] == "fail"]
    assert all(one["attribution"] is None for one in report["conversations"] if one not in failed)
    for one in failed:
        first = one["attribution"]
        lines = (run / "conversations" / one["id"] / "trace.jsonl").read_text().splitlines()
        event = json.loads(lines[first["event"]])
        assert (event["kind"], event["name"], event["turn"]) == ("tool_call", first["tool"], first["turn"])
        broken = {said["rule"] for said in one["verdicts"] if said["status"] == "fail"}
        assert {first["rule"], *first["consequences"], *first["independent"]} == broken
    tools = {one["case"]: one["attribution"]["tool"] for one in failed}
    # Who is let in by a name alone, who is booked for too short, whose old claims are rewritten.
    assert tools["claimed-identity"] == "find_patient"
    assert tools["first-visit"] == "book_appointment"
    assert any(
        one["attribution"]["rule"] == "old-claims-untouched"
        and one["attribution"]["consequences"] == ["collateral"]
        for one in failed
    )


def test_a_replay_before_the_same_agent_never_derails_and_comes_to_the_same_verdicts(
    launched: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path
) -> None:
    _, run = launched
    made = json.loads((run / "report.json").read_text())
    done = redteam("replay", run, "--level", 2, "--parallel", 20, "--out", tmp_path, "--json")
    found = json.loads(done.stdout)
    assert (found["replay"]["derailed"], found["replay"]["followed"]) == (0, 20)

    def verdicts(report: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
        return {
            one["id"]: [(verdict["rule"], verdict["status"]) for verdict in one["verdicts"]]
            for one in report["conversations"]
        }

    assert verdicts(found) == verdicts(made)
