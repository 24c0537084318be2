"""The benchmark's write actions on the nested document, without a database."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.retail import DATA, needs_data, tiny_world

from redteam_harness.benchmarks.tau2 import read_benchmark
from redteam_harness.benchmarks.tau2.action import Action
from redteam_harness.benchmarks.tau2.document import end_state, initial_state, sha256_of

if TYPE_CHECKING:
    from redteam_harness.benchmarks.tau2.draft import Document

_ADDRESS = {
    "address1": "2 Oak St", "address2": "", "city": "Joliet", "state": "IL", "country": "USA", "zip": "60431",
}  # fmt: skip
_SWAP = {
    "order_id": "#1",
    "item_ids": ["mug-red"],
    "new_item_ids": ["mug-blue"],
    "payment_method_id": "ann-visa",
}


def _done(tool: str, arguments: dict[str, Any], before: Document | None = None) -> Document:
    state = initial_state(tiny_world()) if before is None else before
    return end_state(state, [Action(name=tool, arguments=arguments)])


def _balance(state: Document) -> float:
    balance: float = state["users"]["ann"]["payment_methods"]["ann-gift"]["balance"]
    return balance


@needs_data
def test_the_gold_actions_of_every_task_lead_the_document_to_the_expected_hash() -> None:
    benchmark = read_benchmark(DATA)
    found = {task.id: sha256_of(end_state(benchmark.initial, task.actions)) for task in benchmark.tasks}
    assert found == {task.id: task.expected.end_state_sha256 for task in benchmark.tasks}
    assert len(found) == 80
    # Eighty tasks later, nobody has written to the one document that they all began with.
    assert sha256_of(benchmark.initial) == benchmark.initial_sha256


def test_a_document_is_never_changed_and_what_was_not_touched_is_shared() -> None:
    before = initial_state(tiny_world())
    untouched = copy.deepcopy(before)
    after = _done("cancel_pending_order", {"order_id": "#1", "reason": "no longer needed"}, before)
    assert before == untouched
    assert after["orders"]["#1"]["status"] == "cancelled"
    assert after["orders"]["#2"] is before["orders"]["#2"]
    assert after["products"] is before["products"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("cancel_pending_order", {"order_id": "#9", "reason": "no longer needed"}),
        ("cancel_pending_order", {"order_id": "#3", "reason": "no longer needed"}),
        ("cancel_pending_order", {"order_id": "#1", "reason": "too dear"}),
        ("cancel_pending_order", {"order_id": "#1"}),
        ("cancel_pending_order", {"order_id": "#1", "reason": "no longer needed", "really": True}),
        ("cancel_pending_order", {"order_id": ["#1"], "reason": "no longer needed"}),
        ("modify_pending_order_items", {**_SWAP, "order_id": "#3"}),
        ("modify_pending_order_items", {**_SWAP, "item_ids": ["cap-l"]}),
        ("modify_pending_order_items",
         {**_SWAP, "item_ids": ["mug-red"] * 2, "new_item_ids": ["mug-blue"] * 2}),
        ("modify_pending_order_items", {**_SWAP, "item_ids": [], "new_item_ids": []}),
        ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-blue"] * 2}),
        ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-odd"]}),
        ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-gold"]}),
        ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["cap-l"]}),
        ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-red"]}),
        ("modify_pending_order_items", {**_SWAP, "payment_method_id": "bob-paypal"}),
        ("modify_pending_order_address", {"order_id": "#4", **_ADDRESS}),
        ("modify_pending_order_payment", {"order_id": "#1", "payment_method_id": "ann-gift"}),
        ("modify_pending_order_payment", {"order_id": "#4", "payment_method_id": "ann-paypal"}),
        ("exchange_delivered_order_items", _SWAP),
        ("return_delivered_order_items", {"order_id": "#3", "item_ids": [], "payment_method_id": "ann-visa"}),
        ("return_delivered_order_items",
         {"order_id": "#3", "item_ids": ["mug-red"], "payment_method_id": "ann-paypal"}),
        ("modify_user_address", {"user_id": "nobody", **_ADDRESS}),
        ("get_order_details", {"order_id": "#1"}),
        ("no_such_tool", {}),
    ],
)  # fmt: skip
def test_what_is_refused_or_only_reads_changes_nothing(tool: str, arguments: dict[str, Any]) -> None:
    assert _done(tool, arguments) == initial_state(tiny_world())


def test_an_action_that_is_refused_keeps_no_later_one_from_being_made() -> None:
    cancel = Action(name="cancel_pending_order", arguments={"order_id": "#1", "reason": "no longer needed"})
    swap = Action(name="modify_pending_order_items", arguments=_SWAP)
    states = initial_state(tiny_world())
    assert end_state(states, [cancel, swap, cancel]) == end_state(states, [cancel])


def test_a_gift_card_that_does_not_cover_it_is_refused_and_one_that_does_is_charged_at_once() -> None:
    poor, rich = initial_state(tiny_world()), initial_state(tiny_world())
    poor["users"]["ann"]["payment_methods"]["ann-gift"]["balance"] = 46.65
    pay = {"order_id": "#6", "payment_method_id": "ann-gift"}
    assert _done("modify_pending_order_payment", pay, poor) == poor
    assert _balance(_done("modify_pending_order_payment", pay, rich)) == 3.34


def test_both_quirks_are_in_the_document_as_they_are_in_the_hashes() -> None:
    swap = {**_SWAP, "item_ids": ["mug-red", "cap-s"], "new_item_ids": ["mug-blue", "cap-l"]}
    order = _done("modify_pending_order_items", swap)["orders"]["#1"]
    assert [item["price"] for item in order["items"]] == [47.84, 47.84]
    assert order["payment_history"][-1]["amount"] == (12.35 - 10.0) + (47.84 - 46.66)


def test_numbers_with_and_without_a_decimal_point_have_different_hashes() -> None:
    assert json.loads("20.0") == json.loads("20")
    assert sha256_of({"price": 20.0}) != sha256_of({"price": 20})
