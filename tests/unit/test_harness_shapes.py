"""A line becomes the request that a service of its shape expects, and its response the reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.pointers import NoSuchPlace, lookup, replaced
from redteam_harness.agents.shapes import Exchange, Line, expand_headers
from redteam_sdk.errors import UsageError

LINE = Line(
    text="Thursday, please.",
    conversation="c003",
    turn=2,
    history=[("user", "A visit."), ("agent", "Which day?")],
)
SPOKEN = [
    {"role": "user", "content": "A visit."},
    {"role": "assistant", "content": "Which day?"},
    {"role": "user", "content": "Thursday, please."},
]


def test_presets_ask_as_their_shapes_do() -> None:
    assert Exchange().body(LINE) == {"message": "Thursday, please.", "conversation": "c003"}
    assert Exchange(preset="openai").body(LINE) == {"model": "agent", "user": "c003", "messages": SPOKEN}
    anthropic = Exchange(preset="anthropic").body(LINE)
    assert anthropic.pop("max_tokens") > 0
    assert anthropic == {"model": "agent", "metadata": {"user_id": "c003"}, "messages": SPOKEN}


@pytest.mark.parametrize(
    ("preset", "response", "reply"),
    [
        ("chat", {"reply": "Done."}, "Done."),
        ("openai", {"choices": [{"message": {"content": "Done."}}]}, "Done."),
        ("openai", {"choices": [{"message": {"content": [{"type": "text", "text": "Done."}]}}]}, "Done."),
        (
            "anthropic",
            {
                "content": [
                    {"type": "thinking", "thinking": "..."},
                    {"type": "text", "text": "Do"},
                    {"type": "tool_use", "id": "t", "name": "book", "input": {}},
                    {"type": "text", "text": "ne."},
                ]
            },
            "Done.",
        ),
    ],
)
def test_presets_read_as_their_shapes_answer(preset: Any, response: Any, reply: str) -> None:
    assert Exchange(preset=preset).read(json.dumps(response).encode()) == reply


def test_pointers_change_the_request_and_name_the_reply() -> None:
    exchange = Exchange(
        request={
            "": {},
            "/input/text": "{text}",
            "/input/thread": "desk-{conversation}-{turn}",
            "/input/before": "{history}",
            "/input/tags": ["{turn}", 7, None],
            "/input/tags/-": "last",
            "/a~1b~0c": True,
        },
        reply="/output/0/said",
    )
    assert exchange.body(LINE) == {
        "input": {
            "text": "Thursday, please.",
            "thread": "desk-c003-2",
            "before": SPOKEN[:2],
            "tags": ["2", 7, None, "last"],
        },
        "a/b~c": True,
    }
    assert exchange.read(b'{"output": [{"said": "Done."}]}') == "Done."


def test_what_a_user_says_is_not_taken_for_a_placeholder() -> None:
    line = Line(text="{conversation} {history}", conversation="c001", turn=1)
    assert Exchange(request={"/message": "{text}"}).body(line)["message"] == "{conversation} {history}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"[" * 200_000, "no JSON"),
        (b"\xff", "no JSON"),
        (b"{}", "the document is an object without 'reply'"),
        (b"[]", "a list of 0 without 'reply'"),
        (b'{"reply": null}', "no text"),
        (b'{"reply": []}', "no text"),
        (b'{"reply": [{"type": "text"}]}', "no text"),
        (b'{"reply": " \\n"}', "is empty"),
    ],
    ids=["empty", "html", "deep", "bytes", "object", "list", "null", "no-block", "no-text", "blank"],
)
def test_a_response_without_a_reply_is_a_fault_and_is_not_quoted(content: bytes, says: str) -> None:
    with pytest.raises(AgentFault, match=says) as found:
        Exchange().read(content)
    assert found.value.cause == "reply"


def test_a_pointer_that_cannot_be_set_is_found_before_the_launch() -> None:
    with pytest.raises(UsageError, match=r"'/message/x' cannot be set: /message is a text without 'x'"):
        Exchange(request={"/message/x": 1}).check()


def test_pointers_are_those_of_rfc_6901() -> None:
    document = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, "k": {"01": 2}}
    assert [lookup(document, pointer) for pointer in ("", "/foo/0", "/", "/a~1b", "/m~0n", "/k/01")] == [
        document,
        "bar",
        0,
        1,
        8,
        2,
    ]
    for pointer in ("/foo/2", "/foo/-", "/foo/x", "/nope", "/foo/0/1", "/foo/\u0663"):
        with pytest.raises(NoSuchPlace):
            lookup(document, pointer)
    assert replaced(document, "/foo/1", "new")["foo"] == ["bar", "new"]
    assert document["foo"] == ["bar", "baz"]


def test_headers_take_secrets_from_the_environment_and_nothing_else() -> None:
    given = {"Authorization": "Bearer ${DESK_KEY}", "X-Plain": "$5 ${"}
    assert expand_headers(given, {"DESK_KEY": "s3"}) == {
        "Authorization": "Bearer s3",
        "X-Plain": "$5 ${",
    }
    with pytest.raises(UsageError, match="DESK_KEY, which is not set"):
        expand_headers(given, {})
    with pytest.raises(UsageError, match="one line") as found:
        expand_headers(given, {"DESK_KEY": "s3\r\nX-More: 1"})
    assert "s3" not in str(found.value)
    for name in ("redteam-context", "Host", "TRACEPARENT"):
        with pytest.raises(UsageError, match="set by the harness"):
            expand_headers({name: "x"}, {})
