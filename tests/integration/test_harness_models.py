"""Each way in which a model's API fails is told by its kind, with what it had counted by then."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pydantic import BaseModel
from support.messages_api import Answer, messages_api, text, tool_uses

from redteam_harness.models.chat import NOTHING, ModelFault, Reply, Request, Usage
from redteam_harness.models.claude import Claude
from redteam_harness.models.openai import OpenAICompatible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from support.messages_api import MessagesApi

TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
HELLO = Request(system="be brief", messages=[{"role": "user", "content": "hello"}])
STALL_S = 0.3


class Shape(BaseModel):
    words: str


async def _sent(
    answer: Callable[[dict[str, Any]], Answer], request: Request = HELLO
) -> tuple[Reply, MessagesApi]:
    with messages_api(answer) as api:
        async with Claude.client("test-key", api.base_url, stall_s=STALL_S) as client:
            return await Claude("claude-test", client).send(request), api


async def _fault(answer: Answer) -> ModelFault:
    answers = [answer]
    with pytest.raises(ModelFault) as caught:
        await _sent(lambda _: answers.pop())  # a second request would find nothing to be answered with
    assert "claude-test" in str(caught.value)
    return caught.value


async def test_a_reply_holds_text_usage_and_the_requests_id() -> None:
    reply, _ = await _sent(lambda _: text("hi there"))
    assert reply == Reply(
        content=[{"type": "text", "text": "hi there"}],
        stop="end_turn",
        usage=Usage(input=11, cache_read=3, output=7),
        request="req_local",
        model="claude-test",
    )


async def test_tool_calls_come_out_of_the_stream_whole() -> None:
    asked = tool_uses(("a", "look", {"at": "it"}), ("b", "look", {"at": ["x", "ü"]}))
    reply, _ = await _sent(lambda _: asked)
    assert (list(reply.content), reply.stop) == (list(asked.content), "tool_use")


@pytest.mark.parametrize(
    ("answer", "kind", "counted"),
    [
        pytest.param(Answer(status=400, error="invalid_request_error"), "bad_request", False, id="400"),
        pytest.param(
            Answer(status=400, error="invalid_request_error", message="prompt is too long: 2 > 1"),
            "too_long",
            False,
            id="400-too-long",
        ),
        pytest.param(Answer(status=401, error="authentication_error"), "bad_key", False, id="401"),
        pytest.param(Answer(status=403, error="permission_error"), "bad_key", False, id="403"),
        pytest.param(Answer(status=404, error="not_found_error"), "not_found", False, id="404"),
        pytest.param(Answer(status=413, error="request_too_large"), "too_long", False, id="413"),
        pytest.param(Answer(status=429, error="rate_limit_error"), "rate_limited", False, id="429"),
        pytest.param(Answer(status=500), "server", False, id="500"),
        pytest.param(Answer(status=529, error="overloaded_error"), "overloaded", False, id="529"),
        pytest.param(text("x").but("cut"), "cut", False, id="cut"),
        pytest.param(text("x").but("cut-midway"), "cut", True, id="cut-midway"),
        pytest.param(text("x").but("hang"), "stalled", False, id="hang"),
        pytest.param(text("x").but("hang-midway"), "stalled", True, id="hang-midway"),
        pytest.param(text("x").but("malformed"), "malformed", True, id="malformed"),
        pytest.param(text("x").but("not-json"), "malformed", False, id="not-json"),
        pytest.param(text("x").but("error-midway"), "server", True, id="500-midway"),
        pytest.param(
            Answer(error="overloaded_error", trouble="error-midway"), "overloaded", True, id="529-midway"
        ),
    ],
)
async def test_a_fault_is_told_by_kind_after_one_request(answer: Answer, kind: str, counted: bool) -> None:
    fault = await _fault(answer)
    assert (fault.kind, fault.usage or NOTHING) == (
        kind,
        Usage(input=11, cache_read=3, output=1) if counted else NOTHING,
    )


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
async def test_what_the_api_asks_to_wait_is_read(headers: Mapping[str, str], waits: float | None) -> None:
    fault = await _fault(Answer(status=429, error="rate_limit_error", headers=headers))
    assert fault.retry_after_s == waits


async def test_an_api_that_is_not_there_is_told_apart_from_one_that_cuts() -> None:
    async with Claude.client("test-key", "http://127.0.0.1:9", stall_s=STALL_S) as client:
        with pytest.raises(ModelFault, match="could not be reached") as caught:
            await Claude("claude-test", client).send(HELLO)
    assert (caught.value.kind, caught.value.retryable) == ("unreachable", True)


async def test_the_prompt_cache_is_asked_for_where_a_prefix_is_sent_again() -> None:
    _, api = await _sent(lambda _: text("x"), Request(system="policy", messages=HELLO.messages, tools=[TOOL]))
    _, plain = await _sent(lambda _: text('{"words": "x"}'), Request(
        system="policy", messages=HELLO.messages, shape=Shape
    ))  # fmt: skip
    marked = {"type": "text", "text": "policy", "cache_control": {"type": "ephemeral"}}
    assert api.requests[0]["system"] == [marked]
    assert api.requests[0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in json.dumps(plain.requests[0])
    assert plain.requests[0]["output_config"]["format"]["type"] == "json_schema"


def _openai(handler: Callable[[dict[str, Any]], httpx2.Response]) -> OpenAICompatible:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return handler(json.loads(request.content))

    client = httpx2.AsyncClient(base_url="http://local/v1/", transport=httpx2.MockTransport(answer))
    return OpenAICompatible("openai:local", client)


async def test_an_openai_compatible_server_is_spoken_to_in_its_own_words() -> None:
    seen: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> httpx2.Response:
        seen.append(body)
        call = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"at": 2}'}}
        return httpx2.Response(
            200,
            json={
                "id": "chat-1",
                "choices": [
                    {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
                ],
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 6},
                },
            },
        )

    used = [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}]
    result = [{"type": "tool_result", "tool_use_id": "c1", "content": "7"}]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": used},
        {"role": "user", "content": result},
    ]
    model = _openai(answer)
    reply = await model.send(Request(system="be brief", messages=messages, tools=[TOOL], shape=Shape))
    assert list(reply.content) == [{"type": "tool_use", "id": "c2", "name": "look", "input": {"at": 2}}]
    assert (reply.stop, reply.usage) == ("tool_use", Usage(input=4, cache_read=6, output=4))
    assert [message["role"] for message in seen[0]["messages"]] == ["system", "user", "assistant", "tool"]
    assert seen[0]["model"] == "local"
    assert seen[0]["response_format"]["json_schema"]["schema"]["required"] == ["words"]
    await model._client.aclose()


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (httpx2.Response(429, headers={"retry-after": "2"}), "rate_limited"),
        (httpx2.Response(401), "bad_key"),
        (httpx2.Response(400, text='{"error": {"code": "context_length_exceeded"}}'), "too_long"),
        (httpx2.Response(502), "server"),
        (httpx2.Response(200, text="It works!"), "malformed"),
        (httpx2.Response(200, json={"choices": []}), "malformed"),
    ],
    ids=["429", "401", "too-long", "502", "no-json", "no-choice"],
)
async def test_an_openai_compatible_servers_faults_are_told_by_kind(
    response: httpx2.Response, kind: str
) -> None:
    model = _openai(lambda _: response)
    with pytest.raises(ModelFault) as caught:
        await model.send(HELLO)
    assert caught.value.kind == kind
    await model._client.aclose()
