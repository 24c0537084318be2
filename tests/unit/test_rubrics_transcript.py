from __future__ import annotations

from typing import Any

import pytest
from support.rubrics import evidence, judge


def user(text: str) -> dict[str, Any]:
    return {"kind": "user", "text": text}


def agent(text: str) -> dict[str, Any]:
    return {"kind": "agent", "text": text}


def call(name: str) -> dict[str, Any]:
    return {"kind": "tool_call", "call": f"c-{name}", "name": name, "arguments": {}, "xid": 1}


TALK = (
    user("I need a visit"),
    agent("Which  INSURANCE do\nyou have? You\u2019re new here."),
    user("Blue Shield"),
    call("book"),
    agent("You are booked for Thursday."),
)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("agent_says: insurance do you", "pass"),
        ("agent_says: you're new", "pass"),
        ("agent_says: [insurance, thursday]", "pass"),
        ("agent_says: [insurance, friday]", "fail"),
        ("agent_says: blue shield", "fail"),
        ("user_says: blue shield", "pass"),
        ("user_says: insurance", "fail"),
        ("agent_says: {matches: 'booked for \\w+day'}", "pass"),
        ("agent_says: {matches: '^booked'}", "fail"),
        ("never_says: friday", "pass"),
        ("never_says: thursday", "fail"),
        ("never_says: [friday, {matches: 'thu.sday'}]", "fail"),
        ("{agent_says: insurance, before_tool: book}", "pass"),
        ("{agent_says: thursday, before_tool: book}", "fail"),
        ("{agent_says: thursday, after_tool: book}", "pass"),
        ("{agent_says: insurance, after_tool: book}", "fail"),
        ("{agent_says: insurance, before_tool: [move, book]}", "pass"),
        ("{never_says: thursday, before_tool: book}", "pass"),
        ("{never_says: thursday, after_tool: book}", "fail"),
    ],
)
async def test_lines_are_judged_by_speaker_words_and_place(body: str, status: str) -> None:
    verdict = await judge(
        f"transcript: {body}" if body.startswith("{") else f"transcript: {{{body}}}", evidence(*TALK)
    )
    assert (verdict.status, verdict.vacuous) == (status, False)


async def test_a_finding_quotes_the_line_and_points_at_it() -> None:
    verdict = await judge("transcript: {never_says: thursday}", evidence(*TALK))
    (finding,) = verdict.findings
    assert (finding.text, finding.event) == ('The agent said "thursday": “You are booked for Thursday.”.', 4)


async def test_a_missing_line_points_at_the_call_it_should_precede() -> None:
    verdict = await judge("transcript: {agent_says: birthday, before_tool: book}", evidence(*TALK))
    (finding,) = verdict.findings
    assert finding.text == 'The agent did not say "birthday" before book was called.'
    assert finding.event == 3


@pytest.mark.parametrize("place", ["before_tool", "after_tool"])
async def test_a_demand_around_a_tool_that_was_not_called_passes_as_vacuous(place: str) -> None:
    verdict = await judge(f"transcript: {{agent_says: insurance, {place}: cancel}}", evidence(*TALK))
    assert (verdict.status, verdict.vacuous) == ("pass", True)
    assert "cancel was never called" in verdict.reason


async def test_claiming_a_booking_is_not_excused_by_never_making_it() -> None:
    talk = (user("book me"), agent("You are booked."))
    verdict = await judge("transcript: {never_says: booked, before_tool: book}", evidence(*talk))
    assert verdict.status == "fail"


async def test_a_conversation_without_lines_does_not_satisfy_a_demand() -> None:
    assert (await judge("transcript: {agent_says: insurance}", evidence())).status == "fail"


async def test_before_counts_from_the_first_call_after_the_other_tool() -> None:
    talk = (call("book"), agent("hello"), call("find"), agent("shall I?"), call("book"))
    body = "transcript: {agent_says: shall, after_tool: find, before_tool: book}"
    assert (await judge(body, evidence(*talk))).status == "pass"
