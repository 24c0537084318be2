"""An end state beside the expected one, value by value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.retail import DATA, needs_data

from redteam_harness.benchmarks.tau2 import read_benchmark
from redteam_harness.benchmarks.tau2.difference import beside_expected, difference_of


def _order(**changed: Any) -> dict[str, Any]:
    return {"orders": {"#1": {"status": "pending", "items": [{"price": 20.0}], "sent": None, **changed}}}


def _told(before: Any, expected: Any, found: Any) -> list[tuple[str, Any, bool]]:
    return [
        ("/".join(map(str, leaf.path)), dict(leaf.sides), leaf.is_as_expected)
        for leaf in difference_of(before, expected, found).leaves
    ]


def test_what_is_not_as_expected_comes_before_what_is() -> None:
    told = _told(_order(), _order(reason="r", status="cancelled"), _order(reason="r", zip="1"))
    assert told == [
        ("orders/#1/status", {"before": "pending", "expected": "cancelled", "found": "pending"}, False),
        ("orders/#1/zip", {"found": "1"}, False),
        ("orders/#1/reason", {"expected": "r", "found": "r"}, True),
    ]


@pytest.mark.parametrize(
    ("found", "path"),
    [
        ({"items": [{"price": 20}]}, "orders/#1/items/0/price"),
        ({"items": [{"price": 20.0}, {"price": 1.0}]}, "orders/#1/items/1"),
        ({"items": []}, "orders/#1/items/0/price"),
        ({"items": None}, "orders/#1/items"),
        ({"sent": False}, "orders/#1/sent"),
        ({"sent": ["a", "b"]}, "orders/#1/sent"),
    ],
    ids=["integer", "added", "gone", "no list", "false is not null", "names"],
)
def test_a_difference_is_named_by_the_place_where_a_person_would_look(
    found: dict[str, Any], path: str
) -> None:
    ((where, _, is_as_expected),) = _told(_order(), _order(), _order(**found))
    assert (where, is_as_expected) == (path, False)


def test_documents_that_are_alike_have_no_difference_whatever_the_order_of_their_keys() -> None:
    turned = {"orders": {"#1": dict(reversed(_order()["orders"]["#1"].items()))}}
    assert _told(_order(), _order(), turned) == []


def test_of_very_many_differences_the_first_are_kept_and_all_are_counted() -> None:
    found = {"orders": {f"#{number}": {"status": "lost"} for number in range(5000)}}
    difference = difference_of({"orders": {}}, {"orders": {}}, found)
    assert (len(difference.leaves), difference.wrong, difference.right) == (200, 5000, 0)


@needs_data
def test_only_a_document_with_the_expected_hash_is_called_the_expected_one() -> None:
    benchmark = read_benchmark(DATA)
    task = next(task for task in benchmark.tasks if not task.expected.unchanged)
    untouched = Path(benchmark.db).read_text(encoding="utf-8")
    beside = beside_expected(benchmark, task, untouched)
    assert beside.reference_sha256 == task.expected.end_state_sha256
    assert beside.difference is not None
    other = beside_expected(benchmark, replace(task, actions=task.actions[:-1]), untouched)
    assert (other.reference_sha256, other.difference) == (benchmark.initial_sha256, None)


@needs_data
def test_where_the_beginning_is_the_right_end_the_actions_are_not_asked() -> None:
    benchmark = read_benchmark(DATA)
    idle = next(task for task in benchmark.tasks if task.expected.unchanged)
    busy = next(task for task in benchmark.tasks if not task.expected.unchanged)
    mixed_up = replace(idle, actions=busy.actions)
    beside = beside_expected(benchmark, mixed_up, '{"orders": {}, "products": {}, "users": {}}')
    assert beside.difference is not None
    assert beside.difference.wrong > 1000
