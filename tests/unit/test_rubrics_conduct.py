"""`tools` rules about what comes before a call, and after one that failed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rubrics import evidence, judge


def said(speaker: str, text: str) -> dict[str, Any]:
    return {"kind": speaker, "turn": 1, "text": text}


def call(name: str, /, call: str = "c", **arguments: Any) -> dict[str, Any]:
    return {"kind": "tool_call", "turn": 1, "call": call, "name": name, "arguments": arguments, "xid": 1}


def result(name: str, value: Any = None, call: str = "c") -> dict[str, Any]:
    return {"kind": "tool_result", "call": call, "name": name, "value": value, "xid": 2}


def error(name: str, kind: str = "TimeoutError", call: str = "c") -> dict[str, Any]:
    return {"kind": "tool_error", "call": call, "name": name, "type": kind, "message": "no", "xid": 2}


def done(name: str, value: Any = None, /, **arguments: Any) -> tuple[dict[str, Any], ...]:
    return call(name, **arguments), result(name, value)


def failed(name: str, kind: str = "TimeoutError", /, **arguments: Any) -> tuple[dict[str, Any], ...]:
    return call(name, **arguments), error(name, kind)


FOUND = done("find", [{"id": 7, "note": "Visit 31 is on Thursday."}], name="Ada", born="1980-02-29")

READS = "tools: {preceded_by: {cancel: find}}"
SAME = "tools: {preceded_by: {cancel: {tools: find, same: {patient: name}}}}"
SEEN = "tools: {preceded_by: {cancel: {tools: [find, list], seen: id}}}"


@pytest.mark.parametrize(
    ("rule", "events", "complaint"),
    [
        (READS, (*FOUND, *done("cancel")), None),
        (READS, (*done("cancel"), *FOUND), "before find had returned anything"),
        (READS, (*failed("find"), *done("cancel")), "before find had returned anything"),
        # A read that was still running when the write began has shown nothing.
        (READS, (call("find", "a"), call("cancel", "b"), result("find", 1, "a")), "before find had returned"),
        (READS, (*done("cancel"), *FOUND, *done("cancel")), "before find had returned"),
        (SAME, (*FOUND, *done("cancel", patient="Ada")), None),
        (SAME, (*FOUND, *done("cancel", patient="Bo")), "with patient = Bo, before find had returned"),
        (SAME, (*FOUND, *done("cancel")), "with patient = nothing"),
        (SEEN, (*FOUND, *done("cancel", id=7)), None),
        (SEEN, (*FOUND, *done("cancel", id="31")), None),
        (SEEN, (*FOUND, *done("cancel", id=[7, 31])), None),
        (SEEN, (*FOUND, *done("cancel", id=3)), "with id = 3, which find or list had not shown"),
        (SEEN, (*FOUND, *done("cancel", id=[7, 8])), "which find or list had not shown"),
        (SEEN, (*FOUND, *done("cancel", id=None)), None),
    ],
)
async def test_a_call_needs_what_was_read_before_it(
    rule: str, events: tuple[dict[str, Any], ...], complaint: str | None
) -> None:
    verdict = await judge(rule, evidence(*events))
    assert (verdict.status, verdict.vacuous) == ("pass" if complaint is None else "fail", False)
    assert len(verdict.findings) == (complaint is not None)
    for finding in verdict.findings:
        assert complaint is not None
        assert complaint in finding.text
        assert finding.event is not None
        assert events[finding.event]["name"] == "cancel"


CONFIRMED = "tools: {confirmed: {cancel: {agreed: ['yes', go ahead], proposed: cancel}}}"
ASKED = said("agent", "Shall I cancel the visit on Thursday?")
YES = said("user", "Yes, please.")


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ((ASKED, YES, *done("cancel")), None),
        ((ASKED, YES, *done("cancel"), *done("cancel")), None),
        (done("cancel"), "before the user had said anything"),
        ((ASKED, *done("cancel")), "before the user had said anything"),
        ((YES, *done("cancel")), "which answers nothing that the agent said"),
        ((said("user", "Cancel it."), *done("cancel")), "without the user's agreement"),
        # Substrings agree with nothing: "yes" is in "yesterday".
        ((ASKED, said("user", "I was ill yesterday"), *done("cancel")), "without the user's agreement"),
        # An agreement is to what was proposed just before it, and it is gone once the user says more.
        ((said("agent", "Is that all?"), YES, *done("cancel")), 'had not proposed "cancel"'),
        ((ASKED, YES, said("agent", "Done?"), said("user", "Wait"), *done("cancel")), "without the user's"),
        ((ASKED, said("user", "No."), *done("cancel"), YES), "without the user's agreement"),
    ],
)
async def test_a_call_needs_the_agreement_of_the_user_to_what_was_proposed(
    events: tuple[dict[str, Any], ...], complaint: str | None
) -> None:
    verdict = await judge(CONFIRMED, evidence(*events))
    assert verdict.status == ("pass" if complaint is None else "fail")
    assert [complaint in finding.text for finding in verdict.findings if complaint] == [True] * (
        complaint is not None
    )


async def test_in_short_a_confirmation_is_its_phrases() -> None:
    rule = "tools: {confirmed: {cancel: {matches: '^(yes|sure)'}}}"
    assert (await judge(rule, evidence(ASKED, YES, *done("cancel")))).status == "pass"
    assert (await judge(rule, evidence(ASKED, said("user", "no"), *done("cancel")))).status == "fail"


CLAIMS = "tools: {after_error: {book: {never_says: you are booked, agent_says: could not}}}"
BOOKED = said("agent", "Good news, you are booked!")
TOLD = said("agent", "I could not book it.")


@pytest.mark.parametrize(
    ("events", "complaints"),
    [
        ((*failed("book"), TOLD), []),
        ((*failed("book"), BOOKED), ["you are booked", "did not say"]),
        ((*failed("book"), TOLD, BOOKED), ["you are booked"]),
        (failed("book"), ["did not say"]),
        ((BOOKED, *failed("book"), TOLD), []),
        # A second try that returned puts it right; what was said before it does not become true.
        ((*failed("book"), *done("book"), BOOKED), []),
        ((*failed("book"), BOOKED, *done("book")), ["you are booked", "did not say"]),
        ((*failed("book"), *failed("book"), TOLD), []),
        ((*done("book"), BOOKED, *failed("book"), TOLD), []),
        ((*failed("book"), *done("move"), BOOKED), ["you are booked", "did not say"]),
    ],
)
async def test_what_failed_is_told_and_not_claimed(
    events: tuple[dict[str, Any], ...], complaints: list[str]
) -> None:
    verdict = await judge(CLAIMS, evidence(*events))
    assert verdict.status == ("fail" if complaints else "pass")
    assert [part in finding.text for part, finding in zip(complaints, verdict.findings, strict=True)] == [
        True
    ] * len(complaints)


async def test_errors_of_any_tool_are_meant_by_a_star_and_none_excuses_another() -> None:
    rule = "tools: {after_error: {'*': {never_says: done}}}"
    verdict = await judge(rule, evidence(*failed("a"), *done("b"), said("agent", "All done.")))
    assert [finding.text for finding in verdict.findings] == [
        'The agent said "done" after a had failed: “All done.”.'
    ]


RETRY = "tools: {retry_after: {charge: list_charges}}"
RETRY_SAME = "tools: {retry_after: {charge: {tools: list_charges, same: amount}}}"


@pytest.mark.parametrize(
    ("rule", "events", "status"),
    [
        (RETRY, (*failed("charge", amount=5), *done("charge", amount=5)), "fail"),
        (RETRY, (*failed("charge", amount=5), *done("list_charges"), *done("charge", amount=5)), "pass"),
        (RETRY, (*done("list_charges"), *failed("charge", amount=5), *done("charge", amount=5)), "fail"),
        (RETRY, (*failed("charge", amount=5), *failed("list_charges"), *done("charge", amount=5)), "fail"),
        (
            RETRY,
            (*failed("charge", amount=5), *done("list_charges")) + failed("charge", amount=5) * 2,
            "fail",
        ),
        # Cut off: it may have been done as well.
        (RETRY, (call("charge", "a", amount=5), *done("charge", amount=5)), "fail"),
        # A new key makes it another call, unless the rule says what makes calls the same.
        (RETRY, (*failed("charge", amount=5, key=1), *done("charge", amount=5, key=2)), "vacuous"),
        (RETRY_SAME, (*failed("charge", amount=5, key=1), *done("charge", amount=5, key=2)), "fail"),
        (RETRY_SAME, (*failed("charge", amount=5), *done("charge", amount=6)), "vacuous"),
        # Nothing can have been done by a call that no code ran for.
        (RETRY_SAME, (*failed("charge", "InvalidArguments", amount=5), *done("charge", amount=5)), "vacuous"),
        (RETRY, done("charge", amount=5) * 2, "vacuous"),
    ],
)
async def test_a_call_that_failed_is_repeated_only_after_a_look_at_what_it_did(
    rule: str, events: tuple[dict[str, Any], ...], status: str
) -> None:
    verdict = await judge(rule, evidence(*events))
    assert ("vacuous" if verdict.vacuous else verdict.status) == status


async def test_a_tool_that_there_is_not_may_not_be_called() -> None:
    rule = "tools: {all_exist: true}"
    assert (await judge(rule, evidence(*failed("book")))).status == "pass"
    verdict = await judge(rule, evidence(*failed("bok", "UnknownTool")))
    assert [finding.text for finding in verdict.findings] == ["bok was called, and there is no such tool."]
    assert (await judge(rule, evidence())).vacuous


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (READS, "cancel was never called"),
        (CONFIRMED, "cancel was never called"),
        (CLAIMS, "no call of book failed"),
        (RETRY, "no call of charge failed and was repeated"),
        (
            "tools: {preceded_by: {cancel: find}, after_error: {'*': {never_says: x}}}",
            "cancel was never called and no call of any tool failed",
        ),
    ],
)
async def test_what_never_came_up_passes_as_vacuous(rule: str, reason: str) -> None:
    verdict = await judge(rule, evidence(*done("find")))
    assert (verdict.status, verdict.vacuous) == ("pass", True)
    assert verdict.reason == f"{reason}, so the rule does not apply"


async def test_a_part_that_came_up_makes_a_pass_that_supports_something() -> None:
    rule = "tools: {preceded_by: {cancel: find}, called: find}"
    assert not (await judge(rule, evidence(*FOUND))).vacuous
    assert (await judge(rule, evidence())).status == "fail"


EVENTS = st.lists(
    st.one_of(
        st.builds(done, st.sampled_from(["find", "cancel", "book", "charge"])),
        st.builds(failed, st.sampled_from(["cancel", "book", "charge"])),
        st.sampled_from([(ASKED,), (YES,), (BOOKED,), (TOLD,)]),
    ),
    max_size=8,
).map(lambda parts: [event for part in parts for event in part])
PARTS = {
    "preceded_by": "{cancel: find}",
    "confirmed": "{cancel: 'yes'}",
    "after_error": "{book: {never_says: booked}}",
    "retry_after": "{charge: find}",
    "all_exist": "true",
    "called": "find",
}


@given(EVENTS, st.sets(st.sampled_from(sorted(PARTS)), min_size=2))
async def test_a_rule_of_several_parts_fails_as_soon_as_one_of_them_does(
    events: list[dict[str, Any]], names: set[str]
) -> None:
    alone = [await judge(f"tools: {{{name}: {PARTS[name]}}}", evidence(*events)) for name in sorted(names)]
    body = ", ".join(f"{name}: {PARTS[name]}" for name in sorted(names))
    together = await judge(f"tools: {{{body}}}", evidence(*events))
    assert (together.status == "fail") == any(verdict.status == "fail" for verdict in alone)
    assert together.vacuous == all(verdict.vacuous for verdict in alone)
