"""`alternatives.json` beside the benchmark's files, and what each alternative is worth."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from redteam_harness.benchmarks.tau2.action import Action
from redteam_harness.benchmarks.tau2.alternatives import Alternative, read_alternatives
from redteam_harness.benchmarks.tau2.data import Expected, Instructions, Task
from redteam_harness.benchmarks.tau2.outcome import Attempt, Refused, with_standings
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_ACTION = {"action_id": "1_0", "name": "get_order_details", "arguments": {"order_id": "#1"}}
_WAY = {"why": "It is as good.", "actions": [_ACTION]}


def _file(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "alternatives.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_alternatives_are_read_by_task_and_none_are_needed(tmp_path: Path) -> None:
    found = read_alternatives(_file(tmp_path, {"7": [_WAY]}), {"7", "8"})
    action = Action(name="get_order_details", arguments={"order_id": "#1"})
    assert found == {"7": [Alternative(why="It is as good.", actions=[action])]}
    assert read_alternatives(tmp_path / "none.json", {"7"}) == {}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", r"is no JSON: .*; write it as \{\"<task id>\""),
        ([_WAY], r"must be an object with a task's id for each key"),
        ({"9": [_WAY]}, r"has alternatives for task 9, and tasks\.json has no such task; correct the id"),
        ({"7": _WAY}, r", task 7: Input should be a valid list; write it as"),
        ({"7": []}, r", task 7: List should have at least 1 item"),
        ({"7": [_WAY, {"actions": [_ACTION]}]}, r", task 7, alternative 2, why: Field required"),
        ({"7": [{**_WAY, "why": "  "}]}, r", task 7, alternative 1, why: String should have at least 1"),
        ({"7": [{**_WAY, "actions": []}]}, r", task 7, alternative 1, actions: List should have at least 1"),
        ({"7": [{**_WAY, "because": ""}]}, r", task 7, alternative 1, because: Extra inputs"),
        ({"7": [{**_WAY, "actions": [{"name": "x"}]}]}, r", alternative 1, actions/0/arguments: Field req"),
        ('{"7": [], "7": []}', r"names '7' twice in one place; put both into one"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_file_task_and_what_to_write(
    tmp_path: Path, content: Any, told: str
) -> None:
    path = _file(tmp_path, content)
    with pytest.raises(UsageError, match=told) as refused:
        read_alternatives(path, {"7"})
    assert str(refused.value).startswith(str(path))


def _task(count: int) -> Task:
    way = Alternative.model_validate(_WAY)
    return Task(
        id="7",
        instructions=Instructions(reason_for_call=""),
        actions=(),
        communicate=(),
        expected=Expected(end_state_sha256="gold", unchanged=False),
        alternatives=[way] * count,
    )


def test_only_what_ends_in_a_state_of_its_own_is_accepted() -> None:
    refused = Refused(index=0, tool="t", type="E", message="no")
    attempts = [
        Attempt(sha256="a"),
        Attempt(sha256="gold"),
        Attempt(sha256="initial"),
        Attempt(sha256="b", refused=[refused]),
        Attempt(sha256="a"),
        Attempt(fault="the server is gone"),
        Attempt(sha256="b"),
    ]
    runs = with_standings(_task(len(attempts)), attempts, initial_sha256="initial")
    assert [(run.name, run.standing) for run in runs] == [
        ("alternative 1", "accepted"),
        ("alternative 2", "as gold"),
        ("alternative 3", "changes nothing"),
        ("alternative 4", "refused"),
        ("alternative 5", "repeated"),
        ("alternative 6", "fault"),
        # Like the fourth, of which nothing is known because one of its actions was refused.
        ("alternative 7", "accepted"),
    ]
