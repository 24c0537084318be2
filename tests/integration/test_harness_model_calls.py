"""The one place that calls a model: what is tried again, for how long, and what is booked of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from pydantic import BaseModel
from support.messages_api import Answer, MessagesApi, messages_api, text

from redteam_harness.models.budget import Budget, Limits
from redteam_harness.models.calls import ModelCalls
from redteam_harness.models.chat import ModelFault, Usage
from redteam_harness.models.claude import Claude
from redteam_harness.models.prices import load_prices
from redteam_harness.models.replay import CallCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from redteam_harness.models.calls import CalledModel

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
BUSY = Answer(status=529, error="overloaded_error", headers={"retry-after-ms": "1"})
DOWN = Answer(status=500)
ONE = Usage(input=11, cache_read=3, output=7)


class Shape(BaseModel):
    words: str


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same waits, a thousand times as short."""
    monkeypatch.setattr("redteam_harness.models.waits._FIRST_S", 0.0005)
    monkeypatch.setattr("redteam_harness.models.breaker._FIRST_S", 0.002)


@dataclass
class Desk:
    """A model of a local server, as one conversation holds it."""

    model: CalledModel
    calls: ModelCalls
    api: MessagesApi
    events: list[dict[str, Any]] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    async def reply(self, conversation: str = "c001") -> str:
        with self.calls.conversation(
            conversation, sink=self.events.append, waiting=lambda what, _: self.waits.append(what)
        ):
            return (await self.model.reply(system="", messages=HELLO, tools=[])).text

    async def parsed(self) -> Shape:
        with self.calls.conversation("c001", sink=self.events.append, waiting=lambda *_: None):
            return await self.model.parsed(system="", messages=HELLO, shape=Shape)


@asynccontextmanager
async def _desk(
    answer: Callable[[dict[str, Any]], Answer], *, base_url: str | None = None, **options: Any
) -> AsyncIterator[Desk]:
    with messages_api(answer) as api:
        async with Claude.client("test-key", base_url or api.base_url, stall_s=0.5) as client:
            calls = ModelCalls(prices=load_prices(), **{"parallel": 4, "deadline_s": 30, **options})
            yield Desk(calls.model(Claude("claude-test", client), "agent"), calls, api)


def _in_turn(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    left = list(answers)
    return lambda _: left.pop(0)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(BUSY, id="529"),
        pytest.param(Answer(status=429, error="rate_limit_error"), id="429-without-retry-after"),
        pytest.param(DOWN, id="500"),
        pytest.param(text("x").but("error-midway"), id="500-midway"),
        pytest.param(text("x").but("cut"), id="cut"),
        pytest.param(text("x").but("cut-midway"), id="cut-midway"),
        pytest.param(text("x").but("hang"), id="hang"),
        pytest.param(text("x").but("malformed"), id="malformed"),
        pytest.param(text("x").but("not-json"), id="not-json"),
    ],
)
async def test_what_passes_is_waited_out_and_booked(trouble: Answer) -> None:
    async with _desk(_in_turn(trouble, trouble, text("back"))) as desk:
        assert await desk.reply() == "back"
        (row,) = desk.calls.ledger.of("c001")
        (event,) = desk.events
        told = desk.api.tokens("claude-test")
    assert (row.calls, row.faults, len(event["faults"])) == (1, 2, 2)
    assert (row.usage.input, row.usage.output) == (told["input_tokens"], told["output_tokens"])
    assert (event["usage"]["input"], event["stop"]) == (row.usage.input, "end_turn")


async def test_what_is_waited_for_is_told_while_it_is() -> None:
    async with _desk(_in_turn(BUSY, BUSY, text("back"))) as desk:
        await desk.reply()
    assert [wait for wait in desk.waits if "try" in wait] == ["529, 2nd try", "529, 3rd try"]
    assert desk.waits[-1] == ""


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (413, "request_too_large")],
)
async def test_what_does_not_pass_is_asked_once(status: int, error: str) -> None:
    async with _desk(_in_turn(Answer(status=status, error=error))) as desk:
        with pytest.raises(ModelFault, match=error):
            await desk.reply()
    assert [event["fault"] for event in desk.events] == [event["faults"][0]["kind"] for event in desk.events]


@pytest.mark.parametrize("words", ["not json", '{"other": 1}'], ids=["no-json", "other-shape"])
async def test_an_answer_of_another_shape_is_asked_for_anew_and_paid_for(words: str) -> None:
    async with _desk(_in_turn(text(words), text('{"words": "yes"}'))) as desk:
        assert await desk.parsed() == Shape(words="yes")
    (row,) = desk.calls.ledger.all
    assert (row.calls, row.faults, row.usage) == (2, 1, ONE + ONE)
    assert desk.events[0]["answers"] == 2


async def test_a_model_that_never_gives_the_shape_is_a_fault_and_never_half_a_value() -> None:
    async with _desk(lambda _: text('{"other": 1}')) as desk:
        with pytest.raises(ModelFault, match="another shape"):
            await desk.parsed()
    assert len(desk.api.requests) == 3


async def test_a_call_ends_at_its_deadline_and_says_what_the_last_try_met() -> None:
    async with _desk(lambda _: BUSY, deadline_s=2) as desk:
        with pytest.raises(ModelFault, match=r"529.*overloaded_error") as caught:
            await desk.reply()
    assert caught.value.kind == desk.events[0]["fault"] == "deadline"
    assert len(desk.api.requests) > 1
    assert desk.calls.stopped is None  # it is there, and only busy


async def test_an_api_that_stays_down_stops_the_launch() -> None:
    async with _desk(lambda _: DOWN, deadline_s=2) as desk:
        with pytest.raises(ModelFault, match="no answer within"):
            await desk.reply()
    assert desk.calls.stopped is not None
    assert desk.calls.stopped.startswith("model claude-test: its API has been failing for")


async def test_an_api_that_was_never_there_stops_the_launch_long_before_the_deadline() -> None:
    async with _desk(lambda _: DOWN, base_url="http://127.0.0.1:9") as desk:
        with pytest.raises(ModelFault, match="could not be reached"):
            await desk.reply()
    assert desk.calls.stopped is not None
    assert "never answered" in desk.calls.stopped


async def test_after_faults_in_a_row_all_calls_wait_for_one_probe() -> None:
    asked = 0

    def answer(_: dict[str, Any]) -> Answer:
        nonlocal asked
        asked += 1
        return DOWN if asked <= 12 else text("back")

    async with _desk(answer) as desk, anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(desk.reply, f"c{number:03}")
    assert len(desk.events) == 8
    # The four that were out when the breaker opened may fail beside it; the rest are probes, one by one.
    assert len(desk.api.requests) == 12 + 8
    assert any("failed" in wait for wait in desk.waits)


async def test_no_more_calls_are_out_than_may_be_and_each_is_booked_to_its_conversation() -> None:
    async with _desk(lambda _: text("x"), parallel=3) as desk:
        async with anyio.create_task_group() as tasks:
            for number in range(24):
                tasks.start_soon(desk.reply, f"c{number % 4}")
        assert desk.api.out <= 3
    for number in range(4):
        (row,) = desk.calls.ledger.of(f"c{number}")
        assert (row.calls, row.usage) == (6, Usage(input=66, cache_read=18, output=42))


async def test_a_conversations_budget_is_seen_before_its_next_call_and_not_by_others() -> None:
    budget = Budget(conversation=Limits(tokens=20))
    async with _desk(lambda _: text("x"), budget=budget) as desk:
        await desk.reply()
        with pytest.raises(ModelFault, match="budget of 20 tokens is spent"):
            await desk.reply()
        assert await desk.reply("c002") == "x"
        assert desk.calls.stopped is None


async def test_a_runs_budget_lets_calls_finish_and_stops_what_would_begin() -> None:
    async with _desk(lambda _: text("x"), budget=Budget(run=Limits(tokens=20))) as desk:
        await desk.reply()
        assert desk.calls.stopped == "the run: its budget of 20 tokens is spent (21)"
        assert await desk.reply() == "x"


async def test_a_kept_answer_is_used_again_for_the_same_attempt_only(tmp_path: Path) -> None:
    said = iter(range(99))

    def answer(_: dict[str, Any]) -> Answer:
        return text(f"answer {next(said)}")

    async def ask(conversations: list[str]) -> list[str]:
        async with _desk(answer, cache=CallCache(tmp_path)) as desk:
            with desk.calls.conversation("c001", sink=desk.events.append, waiting=lambda *_: None):
                twice = [(await desk.model.reply(system="", messages=HELLO, tools=[])).text for _ in range(2)]
            return [*twice, *[await desk.reply(name) for name in conversations]]

    assert await ask(["c002"]) == ["answer 0", "answer 1", "answer 2"]
    assert await ask(["c002", "c003"]) == ["answer 0", "answer 1", "answer 2", "answer 3"]
