"""More than one right way through a task: what its rules accept, and what they do not put together.

The rules are judged on forks of the made-up world. What a person does with `alternatives.json` is run with
one real task of the benchmark, where its data is.
"""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.cli import redteam
from support.retail import Desk, Retail, build_retail, few_tasks, long_redteam, needs_data, tiny_world
from support.rubrics import PostgresWorld, evidence

from redteam_harness.benchmarks.tau2.action import Action
from redteam_harness.benchmarks.tau2.document import end_state, initial_state, sha256_of
from redteam_harness.benchmarks.tau2.rules import rules_of
from redteam_harness.benchmarks.tau2.ways import Way
from redteam_rubrics import grade, parse_rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from redteam_forker import ChangeSet
    from redteam_forker.servers import Server

Call = tuple[str, dict[str, Any]]

_HERE = {"address2": "", "city": "Joliet", "state": "IL", "country": "USA", "zip": "60431"}


def _sent_to(order: str, street: str) -> Call:
    return "modify_pending_order_address", {"order_id": order, "address1": street, **_HERE}


def _paid_with(order: str, method: str) -> Call:
    return "modify_pending_order_payment", {"order_id": order, "payment_method_id": method}


def _returned(*items: str, method: str) -> Call:
    arguments = {"order_id": "#3", "item_ids": list(items), "payment_method_id": method}
    return "return_delivered_order_items", arguments


@pytest.fixture(scope="module")
async def retail(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Retail]:
    async with build_retail(server, tmp_path_factory.mktemp("retail")) as built:
        yield built


async def _make(desk: Desk, calls: Sequence[Call]) -> ChangeSet:
    for tool, arguments in calls:
        await desk.done(tool, **arguments)
    return await desk.changes()


async def _judged(
    retail: Retail, gold: Sequence[Call], alternative: Sequence[Call], done: Sequence[Call]
) -> dict[str, str]:
    """The rules that a gold end state and an alternative give, judged on a fork where something was done."""
    changes: list[ChangeSet] = []
    for calls in (gold, alternative):
        async with retail.desk() as desk:
            changes.append(await _make(desk, calls))
    rules = rules_of("task", changes[0], (), [Way("alternative 1", "It is as good.", changes[1])])
    async with retail.desk() as desk:
        found = json.loads(json.dumps((await _make(desk, done)).to_json()))
        async with desk.admin.transaction(readonly=True):
            verdicts = await grade(
                parse_rules(rules),
                evidence(tables=found["tables"]),
                PostgresWorld(desk.admin),
            )
    return {verdict.rule: verdict.status for verdict in verdicts}


_ALL_PASS = {"task-changes": "pass", "task-values": "pass", "collateral": "pass"}
_VALUES_FAIL = {**_ALL_PASS, "task-values": "fail"}

_ASH = [_sent_to("#1", "4 Ash St"), _sent_to("#2", "4 Ash St")]
_OAK = [_sent_to("#1", "2 Oak St"), _sent_to("#2", "2 Oak St")]
_TO_CARD = [_sent_to("#6", "4 Ash St"), _paid_with("#6", "ann-gift")]
_TO_PAYPAL = [_sent_to("#6", "2 Oak St"), _paid_with("#6", "ann-paypal")]


@pytest.mark.parametrize(
    ("gold", "alternative", "done", "expected"),
    [
        pytest.param(_ASH, _OAK, _ASH, _ALL_PASS, id="gold"),
        pytest.param(_ASH, _OAK, _OAK, _ALL_PASS, id="alternative"),
        pytest.param(_ASH, _OAK, list(reversed(_OAK)), _ALL_PASS, id="in another order"),
        pytest.param([], _OAK, [], _ALL_PASS, id="gold that changes nothing"),
        pytest.param([], _OAK, _OAK, _ALL_PASS, id="alternative to changing nothing"),
        # Rows that every way may touch, and values each of which is right in some way.
        pytest.param(_ASH, _OAK, [_ASH[0], _OAK[1]], _VALUES_FAIL, id="half and half"),
        # All of the smaller way, and in a row that only the larger one may touch, what neither wants.
        pytest.param(_ASH, _OAK[:1], [_OAK[0], _sent_to("#2", "3 Fir St")], _VALUES_FAIL, id="and more"),
        pytest.param(_TO_CARD, _TO_PAYPAL, _TO_CARD, _ALL_PASS, id="gold with payments"),
        pytest.param(_TO_CARD, _TO_PAYPAL, _TO_PAYPAL, _ALL_PASS, id="alternative with payments"),
        pytest.param(_TO_CARD, [_TO_PAYPAL[0], _TO_CARD[1]], [_sent_to("#6", "3 Fir St"), _TO_CARD[1]],
                     _VALUES_FAIL, id="payments of both and an address of neither"),
        pytest.param(_ASH, [_returned("mug-red", "cap-l", method="ann-visa")],
                     [_returned("cap-l", "mug-red", method="ann-visa")], _ALL_PASS, id="items in any order"),
        pytest.param([_returned("mug-red", method="ann-visa")], [_returned("cap-l", method="ann-gift")],
                     [_returned("cap-l", method="ann-visa")], _VALUES_FAIL, id="item of one, card of two"),
    ],
)  # fmt: skip
async def test_one_way_must_be_kept_to_as_a_whole(
    retail: Retail,
    gold: Sequence[Call],
    alternative: Sequence[Call],
    done: Sequence[Call],
    expected: dict[str, str],
) -> None:
    assert await _judged(retail, gold, alternative, done) == expected


async def test_a_row_of_neither_way_fails_all_that_could_have_allowed_it(retail: Retail) -> None:
    stray = ("modify_user_address", {"user_id": "bob", "address1": "9 Ash St", **_HERE})
    assert await _judged(retail, _ASH, _OAK, [*_OAK, stray]) == {
        "task-changes": "pass",  # it speaks of orders only
        "task-values": "fail",
        "collateral": "fail",
    }


async def test_the_document_and_the_database_end_alike_whatever_is_asked_of_both(retail: Retail) -> None:
    draw = random.Random(9)
    items = ["mug-red", "mug-blue", "mug-gold", "cap-s", "cap-l", "none"]
    methods = ["ann-gift", "ann-visa", "ann-paypal", "bob-paypal", "none"]
    state = initial_state(tiny_world())
    changed = 0
    paid_anew: set[str] = set()
    async with retail.desk() as desk:
        for _ in range(120):
            order = f"#{draw.randint(1, 7)}"
            size = draw.randint(0, 2)
            swap: dict[str, Any] = {
                "order_id": order,
                "item_ids": draw.choices(items, k=size),
                "new_item_ids": draw.choices(items, k=draw.choice([size, size, 1])),
                "payment_method_id": draw.choice(methods),
            }
            back = {name: swap[name] for name in ("order_id", "item_ids", "payment_method_id")}
            address = {"address1": f"{draw.randint(1, 9)} Oak St", **_HERE}
            calls: list[Call] = [
                ("cancel_pending_order", {"order_id": order, "reason": "no longer needed"}),
                ("modify_pending_order_items", swap),
                ("modify_pending_order_payment",
                 {"order_id": order, "payment_method_id": swap["payment_method_id"]}),
                ("modify_pending_order_address", {"order_id": order, **address}),
                ("modify_user_address", {"user_id": draw.choice(["ann", "bob", "eve"]), **address}),
                ("exchange_delivered_order_items", swap),
                ("return_delivered_order_items", back),
            ]  # fmt: skip
            tool, arguments = draw.choice(calls)
            if tool == "cancel_pending_order" and order in paid_anew:
                continue  # the one thing in which this world is a better shop: docs/retail.md says which
            answer = await desk.call(tool, **arguments)
            after = end_state(state, [Action(name=tool, arguments=arguments)])
            assert await desk.state() == sha256_of(after), (tool, arguments, answer)
            if tool == "modify_pending_order_payment" and after != state:
                paid_anew.add(order)
            changed += after != state
            state = after
    assert changed >= 15


_ORDER = "#W2378156"
_CARD = "credit_card_9513926"
_ALTERNATIVES = {
    "1": [
        {
            "why": "Without a fitting thermostat the caller may as well have the money back.",
            "actions": [
                {
                    "name": "return_delivered_order_items",
                    "arguments": {
                        "order_id": _ORDER,
                        "item_ids": ["4983901480"],
                        "payment_method_id": _CARD,
                    },
                }
            ],
        },
        {
            "why": "Meant well.",
            "actions": [
                {
                    "name": "cancel_pending_order",
                    "arguments": {"order_id": _ORDER, "reason": "no longer needed"},
                }
            ],
        },
        {
            "why": "The same with one look less.",
            "actions": [
                {
                    "name": "exchange_delivered_order_items",
                    "arguments": {
                        "order_id": _ORDER,
                        "item_ids": ["4983901480"],
                        "new_item_ids": ["7747408585"],
                        "payment_method_id": _CARD,
                    },
                }
            ],
        },
    ]
}  # fmt: skip
_OTHER_AGENT = f'''\
import reference
import tools


async def returns(message, session):
    """What the alternative of task 1 does; of any other task, what is gold."""
    if "task 1 of" not in message:
        return await reference.gold(message, session)
    await tools.return_delivered_order_items({_ORDER!r}, ["4983901480"], {_CARD!r})
    return "It goes back. Is there anything else?"


async def too_much(message, session):
    """What the alternative does, and an address that no way has."""
    if "task 1 of" in message:
        address = dict(address1="1 A St", address2="", city="B", state="IL", country="USA", zip="1")
        await tools.modify_user_address("yusuf_rossi_9620", **address)
    return await returns(message, session)
'''


@pytest.fixture(scope="module")
def benched(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("tau2")
    data = few_tasks(folder / "data", "1", "2", alternatives=_ALTERNATIVES)
    done = long_redteam("bench", "tau2", "--data", data, "--suite", folder / "suite", "--json")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    (folder / "suite" / "other.py").write_text(_OTHER_AGENT, encoding="utf-8")
    return json.loads(done.stdout), folder / "suite"


@needs_data
def test_alternatives_are_told_apart_and_count_as_neither_match_nor_mismatch(
    benched: tuple[dict[str, Any], Path],
) -> None:
    outcome, _ = benched
    assert (outcome["tasks"], outcome["matches"]) == (2, 2)
    first, second = outcome["runs"]
    assert [(one["number"], one["outcome"]) for one in first["alternatives"]] == [
        (1, "accepted"),
        (2, "refused"),
        (3, "as gold"),
    ]
    assert [one["type"] for one in first["alternatives"][1]["refused"]] == ["WrongStatus"]
    assert second["alternatives"] == []


@needs_data
def test_a_person_reads_what_each_alternative_is_worth(tmp_path: Path) -> None:
    done = redteam("bench", "tau2", "--data", few_tasks(tmp_path / "data", "1", alternatives=_ALTERNATIVES))
    assert done.returncode == 0
    assert "1 of 1 tasks match" in done.stdout
    _, _, told = done.stdout.partition("alternatives 3, accepted beside the gold end state 1\n")
    assert told.splitlines()[:3] == [
        "  task 1, alternative 1  accepted: another end state, 2 changed rows"
        "  (Without a fitting thermostat the caller may as well have the money back.)",
        "  task 1, alternative 2  not accepted: action 0 cancel_pending_order was refused,"
        f" WrongStatus: order {_ORDER} is delivered, not pending  (Meant well.)",
        "  task 1, alternative 3  not needed: it ends as the gold actions do  (The same with one look less.)",
    ]


@needs_data
@pytest.mark.parametrize(
    ("agent", "failing"),
    [
        ("reference:gold", {"task-1": set(), "task-2": set()}),
        ("other:returns", {"task-1": set(), "task-2": set()}),
        ("other:too_much", {"task-1": {"collateral", "task-1-values"}, "task-2": set()}),
        ("reference:clumsy", {"task-1": {"collateral", "task-1-values"}, "task-2": {"collateral"}}),
    ],
)  # fmt: skip
def test_who_keeps_to_a_right_way_passes_and_who_does_too_much_fails(
    benched: tuple[dict[str, Any], Path], tmp_path: Path, agent: str, failing: dict[str, set[str]]
) -> None:
    suite = tmp_path / "suite"
    shutil.copytree(benched[1], suite)
    text = (suite / "suite.yaml").read_text(encoding="utf-8")
    (suite / "suite.yaml").write_text(text.replace("reference:gold", agent), encoding="utf-8")
    done = redteam("launch", suite, "--offline", "--out", tmp_path / "runs", "--json")
    found = {
        one["case"]: {verdict["rule"] for verdict in one["verdicts"] if verdict["status"] != "pass"}
        for one in json.loads(done.stdout)["conversations"]
    }
    assert found == failing


@needs_data
def test_the_rules_of_several_ways_are_such_that_doing_nothing_does_not_satisfy_them(
    benched: tuple[dict[str, Any], Path],
) -> None:
    found = json.loads(redteam("check", benched[1], "--json").stdout)["findings"]
    assert [one for one in found if one["severity"] == "mistake"] == []
