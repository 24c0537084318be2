"""`redteam bench tau2` against its oracle, and what the suite that it writes says of three agents.

One run writes the suite for the module; each agent is launched once. Without the benchmark's data, which is
no part of this project, all of it is skipped.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
import yaml
from support.cli import ROOT, dsn_of, redteam
from support.retail import DATA, FOLDER, few_tasks, long_redteam, needs_data

from redteam_forker import list_forks

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

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
    data = few_tasks(tmp_path / "data", "1", "2", "4", "5")
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
    data = few_tasks(tmp_path / "data", "1", "2")
    tasks = json.loads((data / "tasks.json").read_text())
    tasks[0]["evaluation_criteria"]["actions"][-1]["arguments"]["order_id"] = "#W0"
    (data / "tasks.json").write_text(json.dumps(tasks))
    done = redteam("bench", "tau2", "--data", data)
    assert done.returncode == 1
    assert "1 of 2 tasks match" in done.stdout
    assert "UnknownOrder: there is no order #W0; expected: done" in done.stdout
    assert "nothing changed" in done.stdout
    # These are not the actions that the hash is of, so there is nothing to put beside what changed.
    assert "what was expected is not known" in done.stdout
    assert "beside the expected end state" not in done.stdout


def _world(folder: Path, module: str, right: str, wrong: str) -> Path:
    """The world with one mistake in it."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / module).read_text(encoding="utf-8")
    assert text.count(right) == 1
    (folder / module).write_text(text.replace(right, wrong), encoding="utf-8")
    return folder


def test_what_a_wrong_tool_left_is_told_beside_what_the_right_one_would_have(tmp_path: Path) -> None:
    data = few_tasks(tmp_path / "data", "1", "2")
    world = _world(
        tmp_path / "world", "changes.py",
        "(order_id, place, item) for place, item in enumerate(item_ids,",
        "(order_id, place, item) for place, item in enumerate(item_ids[:1],",
    )  # fmt: skip
    done = redteam("bench", "tau2", "--data", data, "--world", world)
    assert done.returncode == 1
    assert "1 of 2 tasks match" in done.stdout
    _, _, told = done.stdout.partition("  beside the expected end state: ")
    assert told.splitlines()[:4] == [
        "values not as expected 1, changed as expected 2",
        "    orders/#W2378156/return_items  was null;"
        ' expected ["4202497723", "4602305039", "9408160950"], found ["4602305039"]',
        '    orders/#W2378156/return_payment_method_id  null became "credit_card_9513926", as expected',
        '    orders/#W2378156/status  "delivered" became "return requested", as expected',
    ]
    assert "return_items" in done.stdout.partition("  what changed:")[2]

    facts = json.loads(redteam("bench", "tau2", "--data", data, "--world", world, "--json").stdout)
    matching, wrong = facts["runs"]
    assert matching["beside_expected"] is None
    beside = wrong["beside_expected"]
    assert beside["reference_sha256"] == wrong["expected_sha256"] != wrong["end_state_sha256"]
    assert (beside["is_known"], beside["not_as_expected"], beside["more"]) == (True, 1, 0)
    assert beside["values"][0] == {
        "path": ["orders", "#W2378156", "return_items"],
        "before": None,
        "expected": ["4202497723", "4602305039", "9408160950"],
        "found": ["4602305039"],
        "as_expected": False,
    }


def test_a_world_that_is_wrong_in_very_many_places_is_told_in_few_lines(tmp_path: Path) -> None:
    data = few_tasks(tmp_path / "data", "1")
    world = _world(
        tmp_path / "world", "changes.py",
        "    async with db.transaction() as connection:\n"
        '        order = await _lock_order_that_is(connection, order_id, "delivered")\n'
        "        pairs =",
        "    async with db.transaction() as connection:\n"
        '        order = await _lock_order_that_is(connection, order_id, "delivered")\n'
        "        await connection.execute(\"UPDATE users SET address2 = 'c/o ' || address2\")\n"
        "        pairs =",
    )  # fmt: skip
    done = redteam("bench", "tau2", "--data", data, "--world", world)
    assert done.returncode == 1
    assert "values not as expected 500, changed as expected 5" in done.stdout
    _, _, told = done.stdout.partition("  beside the expected end state: ")
    assert told.splitlines()[13] == "    and 493 more"


async def test_the_tasks_run_on_a_server_that_is_there_already_and_leave_nothing_on_it(
    server: Server, tmp_path: Path
) -> None:
    data = few_tasks(tmp_path / "data", "1", "2", "10")
    before = await list_forks(server)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("bench", "tau2", "--data", data, "--server", dsn_of(server), "--parallel", 3)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("server  existing PostgreSQL ")
    assert "3 of 3 tasks match" in done.stdout
    assert await list_forks(server) == before
