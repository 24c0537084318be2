"""What a judge is asked, what is made of its answers, and that no answer of it takes a failure back."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.judges import SaidJudge, answered
from support.rubrics import NoWorld, evidence, rules

from redteam_rubrics import Answer, Judge, Reply, Verdict, grade, outcome_of, parse_rules, prompt_digest
from redteam_rubrics.judge.prompt import INSTRUCTIONS
from redteam_rubrics.judge.votes import combined
from redteam_rubrics.verdict import Asked, Ruling
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable

GIVEN = evidence(
    {"kind": "user", "text": "Thursday at nine, please."},
    {"kind": "tool_call", "call": "t1", "name": "book", "arguments": {"day": "thursday"}},
    {"kind": "tool_result", "call": "t1", "name": "book", "value": {"id": 5}},
    {"kind": "agent", "text": "You are booked for Thursday at nine."},
    tables=[
        {
            "schema": "public",
            "table": "visits",
            "columns": {"id": "int", "kind": "text"},
            "rows": [
                {
                    "op": "insert",
                    "key": {"id": "5"},
                    "old": None,
                    "new": {"id": "5", "kind": "follow_up"},
                    "changed": [],
                    "by": ["t1"],
                }
            ],
            "omitted": 0,
        }
    ],
)
YES = answered("yes", quote="booked for Thursday at nine", where="e3", reason="It says so.")
NO = answered("no", quote='"kind": "follow_up"', where="r1", reason="It is no first visit.")
UNCLEAR = answered("unclear", reason="Nothing shows it.")
CUT = Reply(text='{"reason": "It says', stop="end_turn")

BOOKED = "a: {severity: 2, judge: {question: 'Was it booked?'}}"


async def judged(text: str, say: Callable[[str], Any] | SaidJudge | None) -> tuple[Verdict, ...]:
    model = say if isinstance(say, SaidJudge) or say is None else SaidJudge(say)
    return await grade(rules(text), GIVEN, NoWorld(), gate="off", judge=model)


def in_turn(*replies: Any) -> SaidJudge:
    left = iter(replies)
    return SaidJudge(lambda message: next(left))


async def test_an_answer_becomes_a_verdict_with_its_quote_event_and_judge() -> None:
    (verdict,) = await judged(BOOKED, lambda message: YES)
    (finding,) = verdict.findings
    assert (verdict.status, verdict.source, verdict.fault) == ("pass", "judge", None)
    assert verdict.reason == "the judge says yes: It says so."
    assert (finding.quote, finding.event, finding.text) == ("booked for Thursday at nine", 3, "It says so.")
    (spec,) = [rule.judge for rule in rules(BOOKED).values()]
    assert spec is not None
    assert verdict.asked == Asked(model="said-judge", prompt=prompt_digest(spec), votes={"yes": 1})
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


async def test_a_quoted_row_is_named_with_the_call_that_wrote_it() -> None:
    (verdict,) = await judged(BOOKED, lambda message: NO)
    (finding,) = verdict.findings
    assert verdict.status == "fail"
    assert (finding.table, finding.op, finding.key, finding.event) == ("visits", "insert", {"id": "5"}, 1)


async def test_unclear_is_an_answer_and_needs_no_quote() -> None:
    (verdict,) = await judged(BOOKED, lambda message: UNCLEAR)
    assert (verdict.status, verdict.fault) == ("unclear", None)
    assert verdict.reason == "the judge says unclear: Nothing shows it."


UNUSABLE = [
    pytest.param(CUT, "not JSON of the shape", id="truncated-json"),
    pytest.param(replace(YES, stop="max_tokens"), "cut off before its end", id="cut-by-its-limit"),
    pytest.param(replace(YES, stop="refusal"), "refused to answer", id="refusal"),
    pytest.param(answered("yes"), "gave no quote", id="no-quote"),
    pytest.param(answered("yes", quote="booked for Friday", where="e3"), "not in the passage", id="invented"),
    pytest.param(
        answered("yes", quote="booked for Thursday at nine", where="e0"), "not in the passage", id="elsewhere"
    ),
    pytest.param(answered("yes", quote="booked for Thursday", where="e9"), "does not have", id="no-passage"),
    pytest.param(answered("yes", quote="at", where="e3"), "not in the passage", id="a-word"),
    pytest.param(Reply(text='{"answer": "maybe"}'), "not JSON of the shape", id="another-answer"),
]


@pytest.mark.parametrize(("reply", "why"), UNUSABLE)
async def test_an_answer_that_cannot_be_used_is_asked_for_once_more(reply: Reply, why: str) -> None:
    judge = in_turn(reply, YES)
    (verdict,) = await judged(BOOKED, judge)
    assert verdict.status == "pass"
    assert [why in message for message in judge.messages] == [False, True]
    assert [record["raw"] for record in judge.records] == [reply.text, YES.text]


@pytest.mark.parametrize(("reply", "why"), UNUSABLE)
async def test_twice_unusable_is_a_judges_fault_with_both_answers_kept_and_no_other_rule_hurt(
    reply: Reply, why: str
) -> None:
    judge = in_turn(reply, reply)
    fault, other = await judged(f"{BOOKED}\nb: {{severity: 1, tools: {{called: book}}}}", judge)
    assert (fault.status, fault.fault, fault.source) == ("unclear", "judge", "judge")
    assert fault.reason.startswith("judge fault: its answer could not be used, asked twice: ")
    assert why in fault.reason
    assert [(record["try"], record["raw"]) for record in judge.records] == [(1, reply.text), (2, reply.text)]
    assert all(why in record["unusable"] for record in judge.records)
    assert (other.status, outcome_of([fault, other])) == ("pass", "judge-fault")


async def test_nothing_that_a_model_said_is_in_the_second_question() -> None:
    judge = in_turn(answered("yes", quote="SAID-BY-THE-MODEL", where="e3", reason="SAID-BY-THE-MODEL"), YES)
    await judged(BOOKED, judge)
    assert len(judge.messages) == 2
    assert "SAID-BY-THE-MODEL" not in "".join(judge.messages)
    assert judge.systems == {INSTRUCTIONS}


async def test_an_api_that_cannot_be_had_is_a_judges_fault_with_its_cause() -> None:
    judge = SaidJudge(lambda message: EnvironmentFault("model said-judge: no answer within 600 s"))
    (verdict,) = await judged(BOOKED, judge)
    assert (verdict.status, verdict.fault) == ("unclear", "judge")
    assert verdict.reason == "judge fault: model said-judge: no answer within 600 s"
    assert [record["unusable"] for record in judge.records] == ["model said-judge: no answer within 600 s"]


async def test_an_answer_that_cannot_be_kept_ends_the_judging() -> None:
    class Full(SaidJudge):
        def keep(self, record: Any) -> None:
            raise EnvironmentFault("the disk is full")

    with pytest.raises(EnvironmentFault, match="the disk is full"):
        await judged(BOOKED, Full(lambda message: YES))


FAULT = EnvironmentFault("no answer")
Y, N, U, X = YES, NO, UNCLEAR, FAULT


@pytest.mark.parametrize(
    ("said", "status", "fault", "votes"),
    [
        pytest.param((Y, Y, Y), "pass", None, {"yes": 3}, id="all"),
        pytest.param((Y, Y, N), "pass", None, {"no": 1, "yes": 2}, id="most"),
        pytest.param((N, Y, N), "fail", None, {"no": 2, "yes": 1}, id="most-against"),
        pytest.param((Y, Y, U), "pass", None, {"unclear": 1, "yes": 2}, id="one-unclear"),
        pytest.param((Y, U, U), "unclear", None, {"unclear": 2, "yes": 1}, id="most-unclear"),
        pytest.param((Y, N, U), "unclear", None, {"no": 1, "unclear": 1, "yes": 1}, id="divided"),
        pytest.param((Y, Y, X), "pass", None, {"unheard": 1, "yes": 2}, id="one-unheard-decides-nothing"),
        pytest.param(
            (Y, U, X), "unclear", "judge", {"unclear": 1, "unheard": 1, "yes": 1}, id="unheard-could"
        ),
        pytest.param((X, X, X), "unclear", "judge", {"unheard": 3}, id="none"),
    ],
)
async def test_more_than_half_of_the_votes_decide(
    said: tuple[Any, ...], status: str, fault: str | None, votes: dict[str, int]
) -> None:
    (verdict,) = await judged("a: {severity: 2, judge: {question: 'Was it?', votes: 3}}", in_turn(*said))
    assert (verdict.status, verdict.fault) == (status, fault)
    assert verdict.asked is not None
    assert verdict.asked.votes == votes


async def test_a_divided_judge_says_how() -> None:
    (verdict,) = await judged("a: {severity: 2, judge: {question: 'Was it?', votes: 3}}", in_turn(Y, N, U))
    assert verdict.reason == "the judge's votes are divided: 1 no, 1 unclear, 1 yes"
    assert len(verdict.findings) == 2


@pytest.mark.parametrize(("answer", "status"), [("yes", "fail"), ("no", "pass"), ("unclear", "unclear")])
async def test_pass_if_no_turns_yes_into_a_failure(answer: str, status: str) -> None:
    reply = answered(answer, quote="booked for Thursday", where="e3")
    text = "a: {severity: 3, judge: {question: 'Was it rude?', pass_if: no}}"
    assert [verdict.status for verdict in await judged(text, lambda message: reply)] == [status]


async def test_a_failed_assertion_is_final_and_nobody_is_asked() -> None:
    judge = in_turn()
    (verdict,) = await judged("a: {severity: 1, tools: {never_called: book}, judge: 'Was it?'}", judge)
    assert (verdict.status, verdict.source, judge.messages) == ("fail", "assertion", [])


async def test_a_judge_can_fail_what_an_assertion_passed() -> None:
    (verdict,) = await judged("a: {severity: 1, tools: {called: book}, judge: 'Was it?'}", lambda message: NO)
    assert (verdict.status, verdict.source) == ("fail", "judge")


async def test_an_assertion_and_a_judge_pass_together() -> None:
    (verdict,) = await judged(
        "a: {severity: 1, tools: {called: book}, judge: 'Was it?'}", lambda message: YES
    )
    assert verdict.status == "pass"
    assert verdict.reason == "the tool calls are as the rule demands; the judge says yes: It says so."


@pytest.mark.parametrize("body", ["", "tools: {arguments: {never: {a: 1}}}, "], ids=["alone", "vacuous"])
async def test_severity_1_is_never_passed_by_a_judge_alone(body: str) -> None:
    text = f"a: {{severity: 1, {body}judge: 'Was it?'}}"
    passed, failed = await judged(text, lambda message: YES), await judged(text, lambda message: NO)
    assert [(verdict.status, verdict.fault) for verdict in passed] == [("unclear", None)]
    assert "no assertion stands behind it" in passed[0].reason
    assert [verdict.status for verdict in failed] == ["fail"]


RULINGS = [
    Ruling(status=status, reason="r", vacuous=vacuous)
    for status in ("pass", "fail", "unclear")
    for vacuous in (False, True)
    if status == "pass" or not vacuous
]


@given(st.sampled_from([None, *(one for one in RULINGS if one.status == "pass")]), st.sampled_from(RULINGS),
       st.sampled_from([1, 2, 3]))  # fmt: skip
def test_what_stands_behind_a_judge_never_makes_its_answer_better(
    assertion: Ruling | None, heard: Ruling, severity: int
) -> None:
    order = ["fail", "unclear", "pass"]
    both = combined(assertion, heard, severity)
    assert order.index(both.status) <= order.index(heard.status)
    if severity == 1 and both.status == "pass":
        assert assertion is not None
        assert not assertion.vacuous


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(["yes", "no", "unclear"]), min_size=2, max_size=4), st.integers(0, 1000))
async def test_the_order_of_rules_changes_no_verdict(answers: list[str], seed: int) -> None:
    names = [f"r{number}" for number in range(len(answers))]
    say = dict(zip(names, answers, strict=True))

    def judge() -> SaidJudge:
        return SaidJudge(
            lambda message: answered(
                next(say[name] for name in names if f"Was {name}?" in message),
                quote="booked for Thursday",
                where="e3",
            )
        )

    async def statuses(order: list[str]) -> dict[str, str]:
        data = {name: {"severity": 2, "judge": f"Was {name}?"} for name in order}
        verdicts = await grade(parse_rules(data), GIVEN, NoWorld(), gate="off", judge=judge())
        return {verdict.rule: verdict.status for verdict in verdicts}

    shuffled = list(names)
    Random(seed).shuffle(shuffled)  # not one of hypothesis': what that draws here would end the tests' loop
    assert await statuses(names) == await statuses(shuffled)


async def test_the_judges_of_a_conversation_are_asked_at_once() -> None:
    asked, all_asked = 0, anyio.Event()

    class Waiting(SaidJudge):
        async def ask(self, *, system: str, message: str, shape: type[Answer]) -> Reply:
            nonlocal asked
            asked += 1
            if asked == 4:
                all_asked.set()
            await all_asked.wait()  # the last question has to be out before the first is answered
            return YES

    text = f"{BOOKED}\nb: {{severity: 2, judge: {{question: 'Was it?', votes: 3}}}}"
    with anyio.fail_after(10):
        verdicts = await judged(text, Waiting(lambda message: YES))
    assert [verdict.status for verdict in verdicts] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("offline", "status"), [("yes", "pass"), ("no", "fail"), ("unclear", "unclear"), (None, "unclear")]
)
async def test_without_a_model_the_rules_own_answer_stands_and_says_so(
    offline: str | None, status: str
) -> None:
    body = {"question": "Was it?"} | ({"offline": offline} if offline else {})
    (verdict,) = await judged(yaml.safe_dump({"a": {"severity": 2, "judge": body}}), None)
    assert (verdict.status, verdict.source, verdict.fault) == (status, "judge", None)
    assert verdict.reason.startswith("not asked: ")
    assert verdict.asked is not None
    assert verdict.asked.model == "scripted"


async def test_an_offline_answer_stands_behind_severity_1_no_better_than_a_judge() -> None:
    (verdict,) = await judged("a: {severity: 1, judge: {question: 'Was it?', offline: yes}}", None)
    assert verdict.status == "unclear"


async def test_evidence_that_is_too_long_is_a_judges_fault_and_not_asked_about() -> None:
    judge = in_turn()
    said = [{"kind": "agent", "text": "x" * 6_000}] * 30
    (verdict,) = await grade(rules(BOOKED), evidence(*said), NoWorld(), gate="off", judge=judge)
    assert (verdict.status, verdict.fault, judge.messages) == ("unclear", "judge", [])
    assert "too long" in verdict.reason


async def test_a_verdict_on_shortened_evidence_says_so() -> None:
    said = {"kind": "agent", "text": "Booked for Thursday. " + "x" * 9_000}
    reply = answered("yes", quote="Booked for Thursday.", where="e0")
    judge = SaidJudge(lambda message: reply)
    (verdict,) = await grade(rules(BOOKED), evidence(said), NoWorld(), gate="off", judge=judge)
    assert verdict.status == "pass"
    assert "what it saw was shortened" in verdict.reason


def spec(**parts: Any) -> Judge:
    return Judge.model_validate({"question": "Was it booked?", **parts})


def test_the_digest_is_of_all_that_is_asked_and_of_nothing_else() -> None:
    asked = [
        spec(),
        spec(question="Was it cancelled?"),
        spec(pass_if="no"),
        spec(votes=3),
        spec(sees="transcript"),
    ]
    digests = [prompt_digest(one) for one in asked]
    assert all(a != b for a, b in itertools.combinations(digests, 2))
    assert prompt_digest(spec(offline="yes", sees=["changes", "calls", "transcript"])) == digests[0]


@pytest.mark.parametrize(
    ("body", "loc", "message"),
    [
        ("judge: The agent was polite", ("judge",), "question mark"),
        ("judge: {question: 'Was it?', votes: 2}", ("judge", "votes"), "odd number from 1 to 9"),
        ("judge: {question: 'Was it?', votes: true}", ("judge", "votes"), "odd number from 1 to 9"),
        ("judge: {question: 'Was it?', sees: []}", ("judge", "sees"), "at least one"),
        (
            "judge: {question: 'Was it?', sees: script}",
            ("judge", "sees"),
            "'transcript', 'calls' or 'changes'",
        ),
        ("judge: {votes: 3}", ("judge",), "`question` is missing"),
        ("judge: {question: 'Was it?', fail_if: no}", ("judge", "fail_if"), "unknown key"),
        ("judge: {question: 'Was it?', pass_if: maybe}", ("judge", "pass_if"), "'yes' or 'no'"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_at_its_place(
    body: str, loc: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        rules(f"a:\n  severity: 2\n  {body}")
    (error,) = caught.value.errors()
    assert error["loc"] == ("a", *loc)
    assert message in error["msg"]


def test_yamls_bare_yes_and_no_are_words() -> None:
    (rule,) = rules("a: {severity: 2, judge: {question: 'Was it?', pass_if: no, offline: yes}}").values()
    assert rule.judge is not None
    assert (rule.judge.pass_if, rule.judge.offline) == ("no", "yes")
