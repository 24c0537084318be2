"""The judge as a caller of models: over real HTTP, waited out, budgeted and booked as every call is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.judges import answered
from support.messages_api import Answer, messages_api, text
from support.rubrics import NoWorld, evidence, rules

from redteam_harness.evidence.run import RunDirectory
from redteam_harness.models.budget import Budget, Limits
from redteam_harness.models.calls import ModelCalls
from redteam_harness.models.chat import Usage
from redteam_harness.models.claude import Claude
from redteam_harness.models.judge import ConversationJudge, JudgeEndpoint
from redteam_harness.models.prices import load_prices
from redteam_rubrics import grade

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redteam_rubrics import Verdict

YES = text(answered("yes", quote="You are booked.", where="e0").text)
BUSY = Answer(status=529, error="overloaded_error", headers={"retry-after-ms": "1"})
REFUSED = Answer(status=400, error="invalid_request_error")
THREE = "a: {severity: 2, judge: {question: 'Was it booked?', votes: 3}}"
ONE = "a: {severity: 2, judge: 'Was it booked?'}"
OTHER = "b: {severity: 2, transcript: {agent_says: booked}}"


class Desk:
    """One conversation with a judge behind a local server; what is told of it."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDirectory(id="r", path=folder)
        self.run.conversation("c001").mkdir(parents=True)
        self.events: list[dict[str, Any]] = []
        self.waits: list[str] = []
        self.asked = 0
        self.calls: ModelCalls | None = None

    async def judged(
        self, written: str, answer: Callable[[dict[str, Any]], Answer], budget: Budget | None = None
    ) -> tuple[Verdict, ...]:
        def asking() -> None:
            self.asked += 1

        with messages_api(answer) as api:
            async with Claude.client("test-key", api.base_url, stall_s=5) as client:
                self.calls = ModelCalls(prices=load_prices(), parallel=4, deadline_s=30, budget=budget)
                endpoint = JudgeEndpoint(self.calls, Claude("claude-sonnet-5", client))
                judge = ConversationJudge(endpoint=endpoint, run=self.run, conversation="c001", asking=asking)
                with self.calls.conversation(
                    "c001", sink=self.events.append, waiting=lambda what, _: self.waits.append(what)
                ):
                    given = evidence({"kind": "agent", "text": "You are booked."})
                    return await grade(rules(written), given, NoWorld(), gate="off", judge=judge)

    def kept(self) -> list[dict[str, Any]]:
        path = self.run.conversation("c001") / "judge.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def in_turn(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


async def test_votes_are_asked_together_booked_by_role_and_told_in_the_trace(desk: Desk) -> None:
    (verdict,) = await desk.judged(THREE, lambda request: YES)
    assert verdict.status == "pass"
    assert desk.calls is not None
    (spent,) = desk.calls.ledger.of("c001")
    assert (spent.role, spent.model, spent.calls) == ("judge", "claude-sonnet-5", 3)
    assert spent.usage == Usage(input=33, cache_read=9, output=21)
    assert spent.usd > 0
    assert [(event["kind"], event["role"]) for event in desk.events] == [("model_call", "judge")] * 3
    assert desk.asked == 3
    assert {(one["kind"], one["vote"], one["try"], one["request"]) for one in desk.kept()} == {
        ("answer", vote, 1, "req_local") for vote in (1, 2, 3)
    }


async def test_the_api_is_asked_for_json_of_the_answers_shape_and_for_nothing_else(desk: Desk) -> None:
    requests: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> Answer:
        requests.append(request)
        return YES

    await desk.judged(ONE, answer)
    (request,) = requests
    shape = request["output_config"]["format"]["schema"]
    assert list(shape["properties"]) == ["reason", "quote", "where", "answer"]
    assert shape["properties"]["answer"]["enum"] == ["yes", "no", "unclear"]
    assert [message["role"] for message in request["messages"]] == ["user"]


async def test_an_api_that_is_busy_is_waited_out_and_the_wait_is_shown(desk: Desk) -> None:
    (verdict,) = await desk.judged(ONE, in_turn(BUSY, YES))
    assert verdict.status == "pass"
    assert "529, 2nd try" in desk.waits
    assert [one["unusable"] for one in desk.kept()] == [None]


async def test_an_api_that_refuses_is_a_judges_fault_with_its_cause_and_stops_no_other_rule(
    desk: Desk,
) -> None:
    fault, other = await desk.judged(f"{ONE}\n{OTHER}", lambda request: REFUSED)
    assert (fault.status, fault.fault, other.status) == ("unclear", "judge", "pass")
    assert fault.reason.startswith("judge fault: model claude-sonnet-5: the API answered 400")
    assert [one["raw"] for one in desk.kept()] == [None]


async def test_a_budget_that_is_spent_ends_the_asking_and_is_the_cause(desk: Desk) -> None:
    cut = text('{"reason": "It')
    budget = Budget(conversation=Limits(tokens=20))
    (verdict,) = await desk.judged(ONE, in_turn(cut, YES), budget)
    assert (verdict.status, verdict.fault) == ("unclear", "judge")
    assert verdict.reason == "judge fault: conversation c001: its budget of 20 tokens is spent (21)"
    assert [one["raw"] for one in desk.kept()] == ['{"reason": "It', None]
