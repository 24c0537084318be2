from __future__ import annotations

from typing import Any

import pytest
from support.rubrics import evidence, judge


def sent(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "external", "name": name, "arguments": arguments, "result": None}


def failed(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "external", "name": name, "arguments": arguments, "error": "ValueError: no"}


SMS = sent("send_sms", to="+1 555 0100", body="You are booked for Thursday")


@pytest.mark.parametrize(
    ("body", "events", "status"),
    [
        ("sent: {tool: send_sms}", (SMS,), "pass"),
        ("sent: {tool: send_sms}", (), "fail"),
        ("sent: {tool: send_sms}", (failed("send_sms"),), "fail"),
        ("sent: {tool: charge}", (SMS,), "fail"),
        ("sent: {tool: send_sms, where: {to: ':persona.phone', body: {matches: thursday}}}", (SMS,), "pass"),
        ("sent: {tool: send_sms, where: {to: '+1 555 0101'}}", (SMS,), "fail"),
        ("sent: [{tool: send_sms}, {tool: charge}]", (SMS,), "fail"),
        ("nothing_sent: true", (), "pass"),
        ("nothing_sent: true", (SMS,), "fail"),
        ("nothing_sent: true", (failed("charge"),), "fail"),
        ("at_most: 1", (SMS,), "pass"),
        ("at_most: 1", (SMS, sent("charge")), "fail"),
        ("at_most: {send_sms: 1}", (SMS, sent("charge")), "pass"),
        ("at_most: {send_sms: 1}", (SMS, SMS), "fail"),
    ],
)
async def test_external_calls_are_judged(body: str, events: tuple[dict[str, Any], ...], status: str) -> None:
    assert (await judge(f"outbox: {{{body}}}", evidence(*events))).status == status


async def test_the_nearest_call_is_named_when_none_is_as_expected() -> None:
    events = (sent("send_sms", to="+1", body="hello"), SMS)
    body = "outbox: {sent: {tool: send_sms, where: {to: ':persona.phone', body: hello}}}"
    (finding,) = (await judge(body, evidence(*events))).findings
    assert finding.event == 0
    assert finding.text.startswith("send_sms was used, but not as expected: to was")
