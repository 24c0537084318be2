"""What `redteam bench tau2` reads, and the rules that it writes from what gold actions changed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from support.cli import redteam

from redteam_forker.changes import ChangeSet, RowChange, TableChanges
from redteam_harness.benchmarks.tau2 import read_benchmark
from redteam_harness.benchmarks.tau2.rules import NOTHING_CHANGED, nothing_changed_rule, rules_of
from redteam_harness.benchmarks.tau2.ways import Way
from redteam_rubrics import parse_rules
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def _table(name: str, key: tuple[str, ...], *rows: RowChange) -> TableChanges:
    return TableChanges(
        schema="public", table=name, key=key, columns={}, method="pages", reason=None, rows=rows
    )


def _added(new: dict[str, str | None]) -> RowChange:
    return RowChange(op="insert", key=None, old=None, new=new)


def _rules(*tables: TableChanges, told: tuple[str, ...] = ()) -> dict[str, Any]:
    rules = rules_of("task-1", ChangeSet(tables=tables), told)
    parse_rules(rules)  # what is written can be loaded
    return rules


def test_an_updated_row_is_named_by_its_key_and_asked_for_what_it_became() -> None:
    row = RowChange(
        op="update",
        key={"id": "#W1"},
        old={"id": "#W1", "status": "pending", "zip": "1"},
        new={"id": "#W1", "status": "it's off", "zip": "1"},
        changed=("status",),
    )
    rules = _rules(_table("orders", ("id",), row))
    assert rules["task-1-changes"]["changes"] == [
        {"orders": {"where": "id = '#W1'", "do": "update", "columns": ["status"], "exactly": 1}}
    ]
    assert "WHERE id = '#W1' AND status = 'it''s off'" in rules["task-1-values"]["sql"]


def test_in_which_order_items_were_named_is_no_difference_and_twice_is_twice() -> None:
    rows = [_added({"order_id": "#W1", "position": place, "item_id": "7"}) for place in ("1", "2")]
    rules = _rules(_table("return_items", ("order_id", "position"), *rows))
    assert rules["task-1-changes"]["changes"] == [
        {"return_items": {"where": "order_id = '#W1' AND item_id = '7'", "do": "insert", "exactly": 2}}
    ]


def test_what_was_paid_is_compared_to_the_cent() -> None:
    row = _added({"order_id": "#W1", "amount": "1.1800000000000068", "note": None})
    (entry,) = _rules(_table("payments", ("order_id",), row))["task-1-changes"]["changes"]
    assert entry["payments"]["where"] == "order_id = '#W1' AND round(amount, 2) = 1.18 AND note IS NULL"


@pytest.mark.parametrize(
    ("amount", "said", "holds"),
    [
        ("1095.55", "You get $1,095.55 back.", True),
        ("1095.55", "You get 1095.55.", True),
        ("1095.55", "You get 11095.55 back.", False),
        ("1095.55", "You get 1095.551 back.", False),
        ("481.5", "It is $481.50.", True),
        ("10", "There are 10 of them", True),
        ("10", "There are 110 of them", False),
        ("10", "It is 10.5 inches", False),
        ("10", "You pay $10,500", False),
        ("500", "You pay $10,500", False),
        ("10", "There are 10, and 5 more", True),
        ("746342064230", "Its number is 746342064230.", True),
        ("20 hours", "The battery lasts 20 hours.", True),
    ],
)
def test_an_amount_is_told_however_it_is_grouped_and_never_by_another_one(
    amount: str, said: str, holds: bool
) -> None:
    (phrase,) = _rules(told=(amount,))["task-1-told"]["transcript"]["agent_says"]
    found = phrase in said if isinstance(phrase, str) else re.search(phrase["matches"], said) is not None
    assert found == holds


def test_nothing_changed_is_a_rule_that_can_be_loaded() -> None:
    parse_rules({NOTHING_CHANGED: nothing_changed_rule()})
    assert rules_of("task-1", ChangeSet(), ()) == {}


def _status(status: str) -> ChangeSet:
    row = RowChange(
        op="update", key={"id": "#W1"}, old={"id": "#W1", "status": "pending"},
        new={"id": "#W1", "status": status}, changed=("status",),
    )  # fmt: skip
    return ChangeSet(tables=(_table("orders", ("id",), row),))


def test_with_alternatives_both_rules_accept_each_way_as_a_whole_and_say_why() -> None:
    ways = [Way("alternative 1", "It was sent.", _status("it's sent"))]
    rules = rules_of("task-1", _status("cancelled"), (), ways)
    parse_rules(rules)
    (entry,) = rules["task-1-changes"]["changes"]
    assert list(entry["any_of"]) == ["gold", "alternative 1"]
    assert "alternative 1: It was sent." in rules["task-1-changes"]["why"]
    sql = rules["task-1-values"]["sql"]
    assert "'cancelled'" in sql
    assert "'it''s sent'" in sql


def test_where_the_right_end_is_the_beginning_an_alternative_is_one_more_way() -> None:
    rules = rules_of("task-1", ChangeSet(), (), [Way("alternative 1", "why", _status("cancelled"))])
    parse_rules(rules)
    (entry,) = rules["task-1-changes"]["changes"]
    assert entry["any_of"]["gold"] == nothing_changed_rule()["changes"]


def _folder(tmp_path: Path, **parts: Any) -> Path:
    task = {
        "id": 1,
        "user_scenario": {"instructions": {"reason_for_call": "Cancel it."}},
        "evaluation_criteria": {"actions": None},
    }
    expected = {"initial_sha256": "0", "tasks": {"1": {"end_state_sha256": "0", "unchanged": True}}}
    for name, content in {"db": {"users": {}}, "tasks": [task], "expected": expected, **parts}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_a_folder_of_the_benchmark_is_read_without_what_may_be_missing(tmp_path: Path) -> None:
    benchmark = read_benchmark(_folder(tmp_path))
    (task,) = benchmark.tasks
    assert (task.id, list(task.actions), task.expected.unchanged, benchmark.policy) == ("1", [], True, None)


def test_a_task_that_the_oracle_does_not_know_is_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path, expected={"initial_sha256": "0", "tasks": {}})
    with pytest.raises(UsageError, match=r"expected\.json says nothing of task 1$"):
        read_benchmark(folder)


def test_a_file_of_another_shape_is_refused_with_the_place(tmp_path: Path) -> None:
    folder = _folder(tmp_path, tasks=[{"id": "1"}])
    with pytest.raises(UsageError, match=r"tasks\.json is not of the benchmark's shape: 0/user_scenario"):
        read_benchmark(folder)


def test_the_folder_above_the_data_is_told_apart_by_name(tmp_path: Path) -> None:
    (tmp_path / "retail").mkdir()
    _folder(tmp_path / "retail")
    done = redteam("bench", "tau2", "--data", tmp_path)
    assert done.returncode == 2
    assert f"did you mean {tmp_path / 'retail'}?" in done.stderr


def test_a_suite_is_never_written_over_something(tmp_path: Path) -> None:
    done = redteam("bench", "tau2", "--data", _folder(tmp_path), "--suite", tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"redteam: {tmp_path} is there already; name a folder to make\n",
    )


def test_a_wrong_file_of_alternatives_is_a_mistake_of_its_writer(tmp_path: Path) -> None:
    folder = _folder(tmp_path, alternatives={"1": [{"why": "It is as good."}]})
    done = redteam("bench", "tau2", "--data", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{folder / 'alternatives.json'}, task 1, alternative 1, actions: Field required" in done.stderr
