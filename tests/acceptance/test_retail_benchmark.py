"""`redteam bench tau2` against its oracle, and what the suite that it writes says of three agents.

One run writes the suite for the module; each agent is launched once. Without the benchmark's data, which is
no part of this project, all of it is skipped.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.cli import ROOT, redteam
from support.retail import DATA, long_redteam, needs_data

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_data, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def benched(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    suite = tmp_path_factory.mktemp("tau2") / "suite"
    done = long_redteam("bench", "tau2", "--data", DATA, "--parallel", 20, "--suite", suite, "--json")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return json.loads(done.stdout), suite


def _launched(suite: Path, agent: str, folder: Path) -> dict[str, Any]:
    """The report of a launch of the suite with another reference agent."""
    copy = folder / agent
    shutil.copytree(suite, copy)
    text = (copy / "suite.yaml").read_text(encoding="utf-8")
    (copy / "suite.yaml").write_text(text.replace("reference:gold", f"reference:{agent}"), encoding="utf-8")
    done = long_redteam("launch", copy, "--offline", "--parallel", 10, "--out", folder / "runs", "--json")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _failing(report: dict[str, Any]) -> dict[str, set[str]]:
    """The rules that failed, by case."""
    return {
        one["case"]: {verdict["rule"] for verdict in one["verdicts"] if verdict["status"] != "pass"}
        for one in report["conversations"]
    }


def _flagged(suite: Path) -> set[str]:
    cases = yaml.safe_load((suite / "suite.yaml").read_text(encoding="utf-8"))["cases"]
    return {case["id"] for case in cases if case.get("nothing_to_do")}


def test_the_gold_actions_of_every_task_end_in_the_state_that_the_oracle_knows(
    benched: tuple[dict[str, Any], Path],
) -> None:
    outcome, _ = benched
    oracle = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))["tasks"]
    assert (outcome["tasks"], outcome["matches"]) == (80, 80)
    assert {run["task"]: run["end_state_sha256"] for run in outcome["runs"]} == {
        task: expected["end_state_sha256"] for task, expected in oracle.items()
    }
    # What is refused by design is refused with an error of the shop's own, never by a crash.
    types = {refused["type"] for run in outcome["runs"] for refused in run["refused"]}
    assert types == {
        "InsufficientBalance", "UnknownOrder", "UnknownProduct", "UnknownUser", "WrongStatus",
    }  # fmt: skip


def test_an_agent_that_makes_the_gold_actions_passes_every_task(
    benched: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    report = _launched(benched[1], "gold", tmp_path)
    assert [case for case, rules in _failing(report).items() if rules] == []
    assert report["outcomes"] == {"pass": 80}


def test_an_agent_that_does_nothing_passes_only_flagged_tasks(
    benched: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    failing = _failing(_launched(benched[1], "nothing", tmp_path))
    passed = {case for case, rules in failing.items() if not rules}
    told = {case for case in _flagged(benched[1]) if failing[case] == {f"{case}-told"}}
    assert len(failing) == 80
    # Flagged tasks that say what must be told fail on that alone; in the others nothing is left to fail on.
    assert passed | told == _flagged(benched[1])
    assert passed


def test_one_unrelated_row_fails_every_task_by_the_collateral_gate(
    benched: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    failing = _failing(_launched(benched[1], "clumsy", tmp_path))
    assert len(failing) == 80
    for case, rules in failing.items():
        # A rule about the table that the row is in sees it too: what was to be done, was done and told.
        assert {"collateral"} <= rules <= {"collateral", "nothing-changed", f"{case}-changes"}, case
    assert sum(rules == {"collateral"} for rules in failing.values()) > 60


def test_check_names_the_tasks_that_need_more_than_nothing_changed(
    benched: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    copy = tmp_path / "suite"
    shutil.copytree(benched[1], copy)
    spec = yaml.safe_load((copy / "suite.yaml").read_text(encoding="utf-8"))
    spec["cases"] = [case for case in spec["cases"] if case["id"] in ("task-1", "task-10", "task-24")]
    (copy / "suite.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    found = json.loads(redteam("check", copy, "--json").stdout)["findings"]
    assert [one["about"] for one in found if one["severity"] == "mistake"] == ["task-10"]


def test_the_world_is_launched_with_its_data_and_the_suite_is_made_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("db.json", "expected.json", "policy.md"):
        (data / name).symlink_to((DATA / name).resolve())
    tasks = json.loads((DATA / "tasks.json").read_text(encoding="utf-8"))
    (data / "tasks.json").write_text(json.dumps(tasks[:4]), encoding="utf-8")
    launch = ("launch", ROOT / "seeds" / "retail", "--data", data, "--offline", "--out", tmp_path / "runs")
    first = long_redteam(*launch, "--json")
    assert json.loads(first.stdout)["outcomes"] == {"pass": 4}, first.stderr
    (suite,) = (tmp_path / "benchmarks").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in suite.glob("*.*")}
    again = long_redteam(*launch, "--count", 2)
    assert "the gold actions are run once" not in again.stdout
    assert {path.name: path.stat().st_mtime_ns for path in suite.glob("*.*")} == before
    spec = yaml.safe_load((suite / "suite.yaml").read_text(encoding="utf-8"))
    assert (spec["agent"]["claude"]["system"], set(spec["models"])) == ("policy.md", {"actor", "agent"})


def test_a_state_that_is_not_the_expected_one_is_told_with_what_changed(tmp_path: Path) -> None:
    for name in ("db.json", "tasks.json", "expected.json"):
        (tmp_path / name).write_bytes((DATA / name).read_bytes())
    tasks = json.loads((tmp_path / "tasks.json").read_text())[:2]
    tasks[0]["evaluation_criteria"]["actions"][-1]["arguments"]["order_id"] = "#W0"
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    done = redteam("bench", "tau2", "--data", tmp_path)
    assert done.returncode == 1
    assert "1 of 2 tasks match" in done.stdout
    assert "UnknownOrder: there is no order #W0; expected: done" in done.stdout
    assert "nothing changed" in done.stdout
