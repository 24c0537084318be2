from __future__ import annotations

from typing import Any

import pytest
from support.rubrics import evidence, judge


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "tool_call", "call": "c", "name": name, "arguments": arguments, "xid": 1}


CALLS = (
    call("find", day="2026-12-03"),
    call("book", patient_id=7, starts_at="2026-12-03T09:00:00", note="First  visit", remind=True),
    call("move", patient_id="7"),
    call("book", patient_id=8),
)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("called: book", "pass"),
        ("called: [book, cancel]", "fail"),
        ("never_called: cancel", "pass"),
        ("never_called: [cancel, move]", "fail"),
        ("order: [find, book, move]", "pass"),
        ("order: [book, move, book]", "pass"),
        ("order: [book, find]", "fail"),
        ("order: [move, book]", "fail"),
        ("order: [find, cancel]", "fail"),
        ("order: [find, find]", "fail"),
        ("at_most: {book: 2}", "pass"),
        ("at_most: {book: 1}", "fail"),
        ("at_most: {cancel: 0}", "pass"),
        ("arguments: {move: {patient_id: ':persona.id'}}", "pass"),
        ("arguments: {book: {patient_id: ':persona.id'}}", "fail"),
        ("arguments: {find: {day: 2026-12-03}}", "pass"),
        ("arguments: {find: {day: {matches: '^2026-12'}}}", "pass"),
        ("arguments: {find: {day: {matches: '^2027'}}}", "fail"),
        ("arguments: {find: {days: 1}}", "fail"),
        ("{called: book, never_called: move}", "fail"),
    ],
)
async def test_calls_are_judged(body: str, status: str) -> None:
    text = f"tools: {body}" if body.startswith("{") else f"tools: {{{body}}}"
    verdict = await judge(text, evidence(*CALLS))
    assert (verdict.status, verdict.vacuous) == (status, False)


async def test_a_second_call_in_order_does_not_hide_a_first_one_out_of_order() -> None:
    calls = (call("book"), call("find"), call("book"))
    verdict = await judge("tools: {order: [find, book]}", evidence(*calls))
    (finding,) = verdict.findings
    assert finding.text == "book was called before find; expected find then book."
    assert finding.event == 0


async def test_a_wrong_argument_is_named_with_both_values() -> None:
    verdict = await judge("tools: {arguments: {book: {patient_id: ':persona.id'}}}", evidence(*CALLS))
    (finding,) = verdict.findings
    assert finding.text == "book was called, and patient_id was 8, expected 7 (the persona's id)."
    assert finding.event == 3


@pytest.mark.parametrize(
    ("actual", "expected", "status"),
    [
        (7, "'7'", "pass"),
        ("7", "7", "pass"),
        (7.0, "7", "pass"),
        (7, "'seven'", "fail"),
        (1, "true", "fail"),
        (True, "true", "pass"),
        ("true", "true", "pass"),
        (None, "''", "fail"),
        (None, "null", "pass"),
        ("Ada", "ada", "fail"),
        (["a", 1], "[a, '1']", "pass"),
        (["a"], "[a, b]", "fail"),
        ({"a": 1}, "{a: 1}", "pass"),
        ({"a": 1}, "{a: 2}", "fail"),
        # What an agent gives decides whether a rule holds, never whether it can be evaluated.
        ([{"a": 1}], "'7'", "fail"),
        ({"a": 1}, "7", "fail"),
        ("7", "{a: 1}", "fail"),
        ("2026-12-03", "2026-12-03", "pass"),
    ],
)
async def test_arguments_are_compared_by_value(actual: object, expected: str, status: str) -> None:
    verdict = await judge(f"tools: {{arguments: {{f: {{x: {expected}}}}}}}", evidence(call("f", x=actual)))
    assert verdict.status == status


async def test_arguments_of_a_tool_that_was_not_called_pass_as_vacuous() -> None:
    verdict = await judge("tools: {arguments: {cancel: {id: 1}}}", evidence(*CALLS))
    assert (verdict.status, verdict.vacuous) == ("pass", True)
    assert verdict.reason == "cancel was never called, so the rule does not apply"


async def test_a_column_that_the_persona_lacks_is_a_rule_error() -> None:
    verdict = await judge("tools: {arguments: {find: {day: ':persona.day'}}}", evidence(*CALLS))
    assert verdict.status == "unclear"
    assert verdict.reason.startswith("rule error: the persona has no column 'day'")
