"""The retail world that ships: its loader, its export, and its tools as production code."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest
from support.cli import ROOT
from support.retail import Desk, Retail, build_retail, tiny_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from redteam_forker.servers import Server

_UNSET = (
    "cancel_reason", "exchange_items", "exchange_new_items", "exchange_payment_method_id",
    "exchange_price_difference", "return_items", "return_payment_method_id",
)  # fmt: skip
_ADDRESS = {
    "address1": "2 Oak St", "address2": "Apt 3", "city": "Joliet", "state": "IL", "country": "USA",
    "zip": "60431",
}  # fmt: skip
_SWAP = {
    "order_id": "#1",
    "item_ids": ["mug-red"],
    "new_item_ids": ["mug-blue"],
    "payment_method_id": "ann-visa",
}
_EXCHANGE = {**_SWAP, "order_id": "#3"}
_RETURN = {"order_id": "#3", "item_ids": ["mug-red"], "payment_method_id": "ann-visa"}

# tool, arguments, the error that refuses it
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("find_user_id_by_email", {"email": "nobody@example.org"}, "UnknownUser"),
    ("find_user_id_by_name_zip", {"first_name": "Ann", "last_name": "O'Doe", "zip": "1"}, "UnknownUser"),
    ("get_user_details", {"user_id": "nobody"}, "UnknownUser"),
    ("get_order_details", {"order_id": "1"}, "UnknownOrder"),
    ("get_product_details", {"product_id": "mug-red"}, "UnknownProduct"),
    ("get_item_details", {"item_id": "mugs"}, "UnknownItem"),
    ("calculate", {"expression": "__import__('os')"}, "BadExpression"),
    ("calculate", {"expression": "1 / 0"}, "BadExpression"),
    ("calculate", {"expression": "9 ** 9"}, "BadExpression"),
    ("cancel_pending_order", {"order_id": "#9", "reason": "no longer needed"}, "UnknownOrder"),
    ("cancel_pending_order", {"order_id": "#3", "reason": "no longer needed"}, "WrongStatus"),
    ("cancel_pending_order", {"order_id": "#1", "reason": "too dear"}, "InvalidArguments"),
    ("modify_pending_order_items", {**_SWAP, "order_id": "#3"}, "WrongStatus"),
    ("modify_pending_order_items", {**_SWAP, "item_ids": ["cap-l"]}, "ItemNotInOrder"),
    ("modify_pending_order_items",
     {**_SWAP, "item_ids": ["mug-red"] * 2, "new_item_ids": ["mug-blue"] * 2}, "ItemNotInOrder"),
    ("modify_pending_order_items", {**_SWAP, "new_item_ids": []}, "UnevenLists"),
    ("modify_pending_order_items", {**_SWAP, "item_ids": [], "new_item_ids": []}, "UnevenLists"),
    ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-odd"]}, "UnknownItem"),
    ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-gold"]}, "ItemUnavailable"),
    ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["cap-l"]}, "WrongProduct"),
    ("modify_pending_order_items", {**_SWAP, "new_item_ids": ["mug-red"]}, "NothingToChange"),
    ("modify_pending_order_items", {**_SWAP, "payment_method_id": "bob-paypal"}, "UnknownPaymentMethod"),
    ("modify_pending_order_address", {"order_id": "#4", **_ADDRESS}, "WrongStatus"),
    ("modify_pending_order_payment", {"order_id": "#1", "payment_method_id": "ann-gift"}, "NothingToChange"),
    ("modify_pending_order_payment", {"order_id": "#1", "payment_method_id": "none"}, "UnknownPaymentMethod"),
    ("modify_pending_order_payment", {"order_id": "#4", "payment_method_id": "ann-paypal"}, "WrongStatus"),
    ("exchange_delivered_order_items", {**_EXCHANGE, "order_id": "#1"}, "WrongStatus"),
    ("exchange_delivered_order_items",
     {**_EXCHANGE, "item_ids": ["mug-red"] * 3, "new_item_ids": ["mug-blue"] * 3}, "ItemNotInOrder"),
    ("return_delivered_order_items", {**_RETURN, "order_id": "#2"}, "WrongStatus"),
    ("return_delivered_order_items", {**_RETURN, "item_ids": []}, "UnevenLists"),
    ("return_delivered_order_items", {**_RETURN, "item_ids": ["cap-s"]}, "ItemNotInOrder"),
    ("return_delivered_order_items", {**_RETURN, "payment_method_id": "ann-paypal"}, "PaymentNotAllowed"),
    ("modify_user_address", {"user_id": "nobody", **_ADDRESS}, "UnknownUser"),
]  # fmt: skip


@pytest.fixture(scope="module")
async def retail(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Retail]:
    async with build_retail(server, tmp_path_factory.mktemp("retail")) as built:
        yield built


@pytest.fixture
async def desk(retail: Retail) -> AsyncIterator[Desk]:
    async with retail.desk() as opened:
        yield opened


async def test_an_untouched_export_is_the_document_that_was_loaded(desk: Desk) -> None:
    expected = tiny_world()
    for order in expected["orders"].values():
        order.update(dict.fromkeys(_UNSET))
    text = json.dumps(expected, sort_keys=True)
    exported = json.loads(await desk.admin.fetchval(desk.world.export))
    assert json.dumps(exported, sort_keys=True) == text  # as text: 20.0 and 20 are not the same here
    assert await desk.state() == hashlib.sha256(text.encode()).hexdigest()


def test_the_loader_is_a_command_that_names_what_is_wrong(tmp_path: Path) -> None:
    world = tiny_world()
    del world["users"]["ann"]["email"]
    (tmp_path / "db.json").write_text(json.dumps(world))
    command = [
        sys.executable,
        "-m",
        "seeds.retail.load",
        str(tmp_path / "db.json"),
        "-o",
        str(tmp_path / "d.sql"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (2, f"{tmp_path / 'db.json'}: something lacks 'email'\n")


async def test_every_refusal_is_a_typed_error_and_leaves_no_trace(desk: Desk) -> None:
    answers = [await desk.call(tool, **arguments) for tool, arguments, _ in REFUSALS]
    assert [answer.get("type") for answer in answers] == [error for *_, error in REFUSALS]
    changes = await desk.changes()
    assert (changes.tables, changes.writes, changes.objects, changes.sequences) == ((), (), (), ())


async def test_whatever_is_asked_for_a_refusal_changes_nothing(desk: Desk) -> None:
    draw = random.Random(20261130)
    items = ["mug-red", "mug-blue", "mug-gold", "cap-s", "cap-l", "none"]
    methods = ["ann-gift", "ann-visa", "ann-paypal", "bob-paypal", "none"]
    seen: Counter[str] = Counter()
    state = await desk.state()
    for _ in range(150):
        size = draw.randint(0, 3)
        parts = {
            "order_id": f"#{draw.randint(1, 7)}",
            "item_ids": draw.choices(items, k=size),
            "new_item_ids": draw.choices(items, k=draw.choice([size, size, 1])),
            "payment_method_id": draw.choice(methods),
            "reason": "no longer needed",
        }
        tool, *names = draw.choice([
            ("cancel_pending_order", "order_id", "reason"),
            ("modify_pending_order_items", "order_id", "item_ids", "new_item_ids", "payment_method_id"),
            ("modify_pending_order_payment", "order_id", "payment_method_id"),
            ("exchange_delivered_order_items", "order_id", "item_ids", "new_item_ids", "payment_method_id"),
            ("return_delivered_order_items", "order_id", "item_ids", "payment_method_id"),
        ])  # fmt: skip
        answer = await desk.call(tool, **{name: parts[name] for name in names})
        now = await desk.state()
        assert (now == state) == (answer["op"] == "error"), (tool, parts, answer)
        seen[answer.get("type", "done")] += 1
        state = now
    # A tool that fails is not one that refuses.
    assert {name for name in seen if name.endswith("Error") or "Violation" in name} == set()
    assert seen["done"] >= 4
    assert len(seen) >= 8, seen


async def test_a_changed_item_costs_the_difference_as_the_benchmark_sums_it(desk: Desk) -> None:
    order = await desk.done(
        "modify_pending_order_items",
        order_id="#1",
        item_ids=["cap-s"],
        new_item_ids=["cap-l"],
        payment_method_id="ann-gift",
    )
    assert order["payment_history"][-1]["amount"] == 47.84 - 46.66 != 1.18  # the first quirk
    assert await desk.balance("ann-gift") == "48.82"
    assert order["status"] == "pending (item modified)"
    again = await desk.call("modify_pending_order_items", **_SWAP)
    assert again["type"] == "WrongStatus"


async def test_of_several_changed_items_each_has_the_price_and_options_of_the_last(desk: Desk) -> None:
    order = await desk.done(
        "modify_pending_order_items",
        order_id="#1",
        item_ids=["mug-red", "cap-s"],
        new_item_ids=["mug-blue", "cap-l"],
        payment_method_id="ann-visa",
    )
    first, second = order["items"]
    assert (first["item_id"], first["name"], second["item_id"]) == ("mug-blue", "MUGS", "cap-l")
    assert first["price"] == second["price"] == 47.84
    assert first["options"] == second["options"]


async def test_an_item_that_is_there_twice_is_changed_where_it_stands(desk: Desk) -> None:
    order = await desk.done("modify_pending_order_items", **{**_SWAP, "order_id": "#2"})
    assert [item["item_id"] for item in order["items"]] == ["mug-blue", "mug-red"]


async def test_a_cancelled_order_gives_a_gift_card_its_money_at_once(desk: Desk) -> None:
    order = await desk.done("cancel_pending_order", order_id="#1", reason="ordered by mistake")
    assert [one["transaction_type"] for one in order["payment_history"]] == ["payment", "refund"]
    assert (order["status"], order["cancel_reason"]) == ("cancelled", "ordered by mistake")
    assert await desk.balance("ann-gift") == "106.66"


async def test_a_new_payment_method_is_charged_and_the_old_one_gets_its_money(desk: Desk) -> None:
    order = await desk.done("modify_pending_order_payment", order_id="#6", payment_method_id="ann-gift")
    paid = [(one["transaction_type"], one["payment_method_id"]) for one in order["payment_history"]]
    assert paid == [("payment", "ann-visa"), ("payment", "ann-gift"), ("refund", "ann-visa")]
    assert await desk.balance("ann-gift") == "3.34"
    refused = await desk.call("modify_pending_order_payment", order_id="#6", payment_method_id="ann-paypal")
    assert refused["type"] == "PaymentNotAllowed"


async def test_what_was_paid_back_already_is_not_paid_back_again(desk: Desk) -> None:
    await desk.done("modify_pending_order_payment", order_id="#6", payment_method_id="ann-gift")
    order = await desk.done("cancel_pending_order", order_id="#6", reason="no longer needed")
    refunds = [one for one in order["payment_history"] if one["transaction_type"] == "refund"]
    assert [one["payment_method_id"] for one in refunds] == ["ann-visa", "ann-gift"]
    assert await desk.balance("ann-gift") == "50.00"


async def test_an_exchange_records_both_lists_sorted_and_moves_no_money(desk: Desk) -> None:
    order = await desk.done(
        "exchange_delivered_order_items",
        order_id="#3",
        item_ids=["mug-red", "cap-l"],
        new_item_ids=["mug-blue", "cap-s"],
        payment_method_id="ann-gift",
    )
    assert (order["exchange_items"], order["exchange_new_items"]) == (
        ["cap-l", "mug-red"],
        ["cap-s", "mug-blue"],
    )
    assert order["exchange_price_difference"] == 1.17
    assert len(order["payment_history"]) == 1
    assert await desk.balance("ann-gift") == "50.00"


async def test_of_two_cancellations_at_once_one_is_refused(desk: Desk) -> None:
    answers: list[str] = []

    async def cancel() -> None:
        answer = await desk.call("cancel_pending_order", order_id="#1", reason="no longer needed")
        answers.append(answer.get("type", "done"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        tasks.start_soon(cancel)
    assert sorted(answers) == ["WrongStatus", "done"]
    assert await desk.balance("ann-gift") == "106.66"


async def test_a_gift_card_that_two_orders_want_at_once_is_never_overdrawn(desk: Desk) -> None:
    answers: list[str] = []

    async def pay(order: str) -> None:
        answer = await desk.call("modify_pending_order_payment", order_id=order, payment_method_id="ann-gift")
        answers.append(answer.get("type", "done"))

    await desk.admin.execute("UPDATE payments SET amount = 40.00 WHERE order_id = '#2'")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pay, "#2")
        tasks.start_soon(pay, "#6")
    assert sorted(answers) == ["InsufficientBalance", "done"]
    assert await desk.balance("ann-gift") in ("10.00", "3.34")


async def test_the_application_may_not_change_what_is_sold(desk: Desk) -> None:
    fork = desk.fork
    connection = await asyncpg.connect(
        host=fork.host, port=fork.port, user=fork.user, password=fork.password, database=fork.database
    )
    try:
        for statement in (
            "UPDATE variants SET price = 0",
            "DELETE FROM orders",
            "UPDATE users SET email = ''",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_reads_find_people_and_things_as_they_are_called(desk: Desk) -> None:
    assert await desk.done("find_user_id_by_email", email="ANN@example.org") == "ann"
    by_name = await desk.done("find_user_id_by_name_zip", first_name="ann", last_name="o'doe", zip="62701")
    assert by_name == "ann"
    assert (await desk.done("get_user_details", user_id="ann"))["orders"] == ["#6", "#4", "#3", "#2", "#1"]
    assert await desk.done("list_all_product_types") == {"CAPS": "caps", "MUGS": "mugs"}
    assert (await desk.done("get_item_details", item_id="mug-gold"))["available"] is False
    assert await desk.done("calculate", expression="(0.1 + 0.2) * 3 - -1") == "1.9"
    assert (await desk.changes()).tables == ()
