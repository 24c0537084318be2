from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from support.messages_api import Answer, messages_api, text

from redteam_harness.models.chat import ModelFault
from redteam_harness.models.claude import Claude

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = [{"role": "user", "content": "hello"}]


class Shape(BaseModel):
    words: str


async def _ask(answer: Callable[[dict[str, Any]], Answer], **kwargs: Any) -> Any:
    with messages_api(answer) as api:
        async with Claude.client("test-key", api.base_url) as client:
            model = Claude("claude-test", client)
            if "shape" in kwargs:
                return await model.parsed(system="be brief", messages=MESSAGES, shape=kwargs["shape"])
            return await model.reply(system="be brief", messages=MESSAGES, tools=[])


async def test_a_reply_holds_text_usage_and_the_requests_id() -> None:
    reply = await _ask(lambda request: text("hi there"))
    assert (reply.text, reply.stop, reply.request) == ("hi there", "end_turn", "req_local")
    assert (reply.usage.input, reply.usage.output, reply.usage.cached) == (11, 7, 3)


async def test_a_shaped_answer_is_validated() -> None:
    assert await _ask(lambda request: text('{"words": "yes"}'), shape=Shape) == Shape(words="yes")


@pytest.mark.parametrize(
    ("answer", "says", "retryable"),
    [
        pytest.param(
            Answer(status=400, error="invalid_request_error"), "invalid_request_error", False, id="400"
        ),
        pytest.param(
            Answer(status=401, error="authentication_error"), "authentication_error", False, id="401"
        ),
    ],
)
async def test_a_deterministic_refusal_is_a_fault_at_once(answer: Answer, says: str, retryable: bool) -> None:
    answers = [answer]
    with pytest.raises(ModelFault, match=says) as caught:
        await _ask(lambda request: answers.pop())
    assert caught.value.retryable is retryable
    assert answers == []  # asked once: a second question would have found nothing to answer with


async def test_an_overload_is_waited_out() -> None:
    answers = [Answer(status=529, error="overloaded_error", headers={"retry-after-ms": "1"}), text("back")]
    reply = await _ask(lambda request: answers.pop(0))
    assert reply.text == "back"


@pytest.mark.parametrize("words", ["not json", '{"other": 1}'], ids=["no-json", "other-shape"])
async def test_an_answer_of_another_shape_is_a_fault_and_never_half_a_value(words: str) -> None:
    with pytest.raises(ModelFault, match="claude-test"):
        await _ask(lambda request: text(words), shape=Shape)


async def test_an_unreachable_api_is_a_fault_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redteam_harness.models.claude._RETRIES", 0)
    async with Claude.client("test-key", "http://127.0.0.1:9") as client:
        with pytest.raises(ModelFault, match="could not be reached") as caught:
            await Claude("claude-test", client).reply(system="", messages=MESSAGES, tools=[])
    assert caught.value.retryable
