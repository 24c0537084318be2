"""Real conversations come in as they were, or not at all.

Long because each format is refused in each way in which it can be cut short or out of order.
"""

from __future__ import annotations

import contextlib
import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.histories_of import (
    anthropic_messages,
    conversations,
    openai_messages,
    otlp_request,
    spans_of,
    timed,
)

from redteam_harness.exchange.dialects import from_anthropic, from_openai
from redteam_harness.exchange.history import read_history
from redteam_harness.exchange.recording import Degraded, Recorded, parse_lines, recorded, to_lines
from redteam_harness.exchange.spans_in import from_spans
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PLAIN = settings(max_examples=30, deadline=None)

SPOKEN = timed(
    [
        {"kind": "user", "text": "Please book Thursday.", "turn": 1},
        {"kind": "tool_call", "call": "a", "name": "find", "arguments": {"day": "Thu"}, "turn": 1},
        {"kind": "tool_result", "call": "a", "name": "find", "value": [9, 10], "turn": 1},
        {"kind": "agent", "text": "Nine or ten?", "turn": 1},
        {"kind": "user", "text": "Ten.", "turn": 2},
        {"kind": "tool_call", "call": "b", "name": "book", "arguments": {"at": 10}, "turn": 2},
        {"kind": "tool_error", "call": "b", "name": "book", "type": "Taken", "message": "gone", "turn": 2},
        {"kind": "agent", "text": "That one is gone.", "turn": 2},
    ]
)


def steps_of(events: Sequence[dict[str, Any]]) -> Any:
    return recorded("c", events).steps


def one_of(*requests: dict[str, Any]) -> Recorded:
    (found,) = from_spans(requests)
    if isinstance(found, Degraded):
        raise found
    return found


def refusal(*requests: dict[str, Any]) -> str:
    with pytest.raises(Degraded) as caught:
        one_of(*requests)
    return caught.value.missing


# Round trips ---------------------------------------------------------------------------------------------


@PLAIN
@given(conversations())
def test_a_recording_is_read_back_as_it_was_written(events: list[dict[str, Any]]) -> None:
    recording = recorded("refund-1", timed(events))
    again = parse_lines("other", to_lines(recording))
    assert (again.name, again.events) == ("refund-1", recording.events)


@PLAIN
@given(conversations(errors=False))
def test_openai_messages_have_the_steps_of_the_conversation(events: list[dict[str, Any]]) -> None:
    assert from_openai("c", openai_messages(events)).steps == steps_of(events)


@PLAIN
@given(conversations())
def test_anthropic_messages_have_the_steps_of_the_conversation(events: list[dict[str, Any]]) -> None:
    assert from_anthropic("c", anthropic_messages(events)).steps == steps_of(events)


@PLAIN
@given(conversations(), st.randoms(use_true_random=False))
def test_exported_spans_in_any_order_have_the_steps_of_the_conversation(
    events: list[dict[str, Any]], random: Any
) -> None:
    request = otlp_request(timed(events))
    random.shuffle(spans_of(request))
    assert one_of(request).steps == steps_of(events)


# What is cut is refused -----------------------------------------------------------------------------------


@PLAIN
@given(conversations(), st.data())
def test_a_recording_that_is_cut_or_shuffled_is_refused_or_the_same(
    events: list[dict[str, Any]], data: st.DataObject
) -> None:
    text = to_lines(recorded("c", timed(events)))
    cut = text[: data.draw(st.integers(0, len(text) - 2))]
    with pytest.raises(Degraded):
        parse_lines("c", cut)
    lines = data.draw(st.permutations(text.split("\n")[:-1]))
    with contextlib.suppress(Degraded):
        assert parse_lines("c", "\n".join(lines)).steps == steps_of(events)


@PLAIN
@given(conversations(errors=False), st.data(), st.sampled_from(["openai", "anthropic"]))
def test_a_message_list_that_is_cut_is_refused_or_ends_with_a_whole_turn(
    events: list[dict[str, Any]], data: st.DataObject, dialect: str
) -> None:
    read = from_openai if dialect == "openai" else from_anthropic
    messages = openai_messages(events) if dialect == "openai" else anthropic_messages(events)
    cut = messages[: data.draw(st.integers(0, len(messages) - 1))]
    try:
        found = read("c", cut).steps
    except Degraded:
        return
    assert found == steps_of(events)[: len(found)]
    assert events[len(found) - 1]["kind"] == "agent"


@PLAIN
@given(conversations(), st.data())
def test_spans_of_a_trace_that_says_how_many_it_has_are_refused_when_one_is_lost(
    events: list[dict[str, Any]], data: st.DataObject
) -> None:
    request = otlp_request(timed(events))
    spans = spans_of(request)
    counted = [one for one in spans[0]["attributes"] if one["key"] != "redteam.spans"]
    spans[0]["attributes"] = [*counted, {"key": "redteam.spans", "value": {"intValue": str(len(spans))}}]
    assert one_of(request).steps == steps_of(events)
    spans.pop(data.draw(st.integers(0, len(spans) - 1)))
    for found in from_spans([request]):
        assert isinstance(found, Degraded)


@PLAIN
@given(conversations(), st.data())
def test_a_file_that_is_cut_anywhere_is_never_half_a_conversation(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.json"
    events = timed(_plain(events))
    whole = json.dumps(openai_messages(events) if data.draw(st.booleans()) else otlp_request(events))
    path.write_text(whole[: data.draw(st.integers(1, len(whole) - 1))], encoding="utf-8")
    with pytest.raises(UsageError):
        read_history(path)


def _plain(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**event, "kind": "tool_result", "value": None} if event["kind"] == "tool_error" else event
        for event in events
    ]


# Spans ---------------------------------------------------------------------------------------------------


def spoken_spans() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    request = otlp_request(SPOKEN)
    return request, {span["name"]: span for span in spans_of(request)}


def attribute(span: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in span["attributes"] if one["key"] == key)
    return found


def without(span: dict[str, Any], key: str) -> None:
    span["attributes"] = [one for one in span["attributes"] if one["key"] != key]


def test_our_own_export_says_case_and_row() -> None:
    found = one_of(otlp_request(SPOKEN))
    assert (found.persona, found.case, found.turns) == ("1", "only", 2)


def test_a_missing_parent_is_a_gap() -> None:
    request, _ = spoken_spans()
    spans_of(request).pop(0)
    assert "parent" in refusal(request)


def test_a_parent_in_another_service_is_no_gap() -> None:
    request, _ = spoken_spans()
    spans = spans_of(request)
    root = spans.pop(0)
    for span in spans:
        if span.get("parentSpanId") == root["spanId"]:
            span["flags"] = 0x300
    assert one_of(request).steps == steps_of(SPOKEN)


def test_spans_that_are_their_own_ancestors_are_no_export() -> None:
    for length in (1, 2):
        request, by_name = spoken_spans()
        span = by_name["execute_tool find"]
        spans = spans_of(request)
        span["parentSpanId"] = span["spanId"]
        if length == 2:
            span["parentSpanId"] = spans[0]["spanId"]
            spans[0]["parentSpanId"] = span["spanId"]
        with pytest.raises(UsageError, match="own ancestor"):
            list(from_spans([request]))


def test_a_turn_that_is_missing_is_a_gap() -> None:
    request, _ = spoken_spans()
    spans = spans_of(request)
    first = next(span for span in spans if span["name"].startswith("invoke_agent"))
    spans[:] = [one for one in spans if first["spanId"] not in (one["spanId"], one.get("parentSpanId"))]
    assert "some are missing" in refusal(request)


def test_what_was_dropped_of_a_span_is_missing() -> None:
    for field in ("droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"):
        request, by_name = spoken_spans()
        by_name["execute_tool find"][field] = 1
        assert "has lost 1" in refusal(request)


@pytest.mark.parametrize(
    ("span", "key", "says"),
    [
        ("execute_tool find", "gen_ai.tool.call.result", "result of find is missing"),
        ("execute_tool find", "gen_ai.tool.call.arguments", "arguments of find"),
        ("execute_tool find", "gen_ai.tool.name", "which tool"),
        ("invoke_agent desk", "gen_ai.input.messages", "gen_ai.input.messages is missing"),
        ("invoke_agent desk", "gen_ai.output.messages", "gen_ai.output.messages is missing"),
    ],
)
def test_what_a_span_does_not_say_is_not_made_up(span: str, key: str, says: str) -> None:
    request, by_name = spoken_spans()
    without(by_name[span], key)
    assert says in refusal(request)


@pytest.mark.parametrize(
    "text", ['{"times": [9, 1', "nine, ten, elev...", "nine, ten \u2026", "nine [truncated]"]
)
def test_a_result_that_was_cut_is_refused(text: str) -> None:
    request, by_name = spoken_spans()
    attribute(by_name["execute_tool find"], "gen_ai.tool.call.result")["value"] = {"stringValue": text}
    assert "it was cut" in refusal(request)


def test_messages_that_were_cut_are_refused() -> None:
    request, by_name = spoken_spans()
    value = attribute(by_name["invoke_agent desk"], "gen_ai.input.messages")["value"]
    value["stringValue"] = value["stringValue"][:-5]
    assert "it was cut" in refusal(request)


def test_calls_that_began_or_ended_at_the_same_time_have_no_order() -> None:
    for same, other in (("startTimeUnixNano", "endTimeUnixNano"), ("endTimeUnixNano", "startTimeUnixNano")):
        request, by_name = spoken_spans()
        first = by_name["execute_tool find"]
        first["endTimeUnixNano"] = str(int(first["startTimeUnixNano"]) + 1000)
        second = copy.deepcopy(first) | {"spanId": "ab" * 8}
        attribute(second, "gen_ai.tool.call.id")["value"] = {"stringValue": "c"}
        second[other] = str(int(first[other]) + 500)
        assert first[same] == second[same]
        spans_of(request).append(second)
        assert "at the same time" in refusal(request)


def test_a_call_within_a_call_stands_within_it_also_where_their_times_are_the_same() -> None:
    request, by_name = spoken_spans()
    outer = by_name["execute_tool find"]
    inner = copy.deepcopy(outer) | {"spanId": "cd" * 8, "parentSpanId": outer["spanId"]}
    spans_of(request).insert(0, inner)
    for key, value in {"gen_ai.tool.name": "sms", "gen_ai.tool.type": "extension"}.items():
        attribute(inner, key)["value"] = {"stringValue": value}
    found = [(one["kind"], one["name"]) for one in one_of(request).events if "name" in one]
    assert found[:3] == [("tool_call", "find"), ("external", "sms"), ("tool_result", "find")]
    inner["attributes"] += [
        {"key": key, "value": {"stringValue": value}}
        for key, value in {"error.type": "TimeoutError", "redteam.fault": "timeout"}.items()
    ]
    inner["status"] = {"code": 2, "message": "no answer"}
    (failed,) = [one for one in one_of(request).events if one["kind"] == "external"]
    assert (failed["error"], failed["fault"]) == ("TimeoutError: no answer", "timeout")
    spans_of(request).append(copy.deepcopy(inner) | {"spanId": "ef" * 8})
    assert "began at the same time" in refusal(request)


def test_turns_that_overlap_have_no_order() -> None:
    request, _ = spoken_spans()
    first = next(span for span in spans_of(request) if span["name"].startswith("invoke_agent"))
    first["endTimeUnixNano"] = str(int(first["endTimeUnixNano"]) + 5_000_000_000)
    assert "overlap" in refusal(request)


def test_a_call_below_no_turn_is_refused() -> None:
    request, by_name = spoken_spans()
    by_name["execute_tool find"]["parentSpanId"] = spans_of(request)[0]["spanId"]
    assert "turn is not known" in refusal(request)


def test_an_input_with_the_whole_history_must_agree_with_the_turns() -> None:
    request, _ = spoken_spans()
    last = [span for span in spans_of(request) if span["name"].startswith("invoke_agent")][-1]

    def say(*lines: tuple[str, str]) -> None:
        messages = [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in lines]
        attribute(last, "gen_ai.input.messages")["value"] = {"stringValue": json.dumps(messages)}

    say(("user", "Please book Thursday."), ("assistant", "Nine or ten?"), ("user", "Ten."))
    assert one_of(request).steps == steps_of(SPOKEN)
    say(("user", "Hello."), ("assistant", "Hello."), ("user", "Ten."))
    assert "a gap" in refusal(request)


def test_telemetry_is_told_and_never_a_step(tmp_path: Path) -> None:
    request, _ = spoken_spans()
    spans_of(request).append(
        {
            "traceId": spans_of(request)[0]["traceId"],
            "spanId": "ab" * 8,
            "parentSpanId": spans_of(request)[0]["spanId"],
            "name": "SELECT",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
        }
    )
    path = tmp_path / "all.jsonl"
    lines = [{"resourceMetrics": []}, request, {"resourceLogs": []}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    history = read_history(path)
    assert history.format == "otlp"
    assert history.other == {"resourceMetrics": 1, "resourceLogs": 1}
    assert history.whole[0].steps == steps_of(SPOKEN)
    assert history.whole[0].left_out == {"span": 2}


def test_turns_in_traces_of_their_own_are_one_conversation_by_its_id() -> None:
    request, _ = spoken_spans()
    spans = spans_of(request)
    root = spans.pop(0)
    for number, turn in enumerate([one for one in spans if one["name"].startswith("invoke_agent")]):
        for span in spans:
            if turn["spanId"] in (span["spanId"], span.get("parentSpanId")):
                span["traceId"] = f"{number + 1:032x}"
        del turn["parentSpanId"]
    assert root["name"] == "conversation c001"
    assert one_of(request).steps == steps_of(SPOKEN)


# Message lists -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "'image_url'"),
        ([{"role": "assistant", "content": "Hello, how can I help?"}], "begins with an agent"),
        ([{"role": "user", "content": "Hi"}], "reply is missing"),
        ([{"role": "robot", "content": "Hi"}], "'robot'"),
        ([{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "x", "content": "1"}], "'x'"),
        (
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "function_call": {"a": 1}},
            ],
            "fun",
        ),
        (
            [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": "One moment.",
                    "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{"}}],
                },
            ],
            "no JSON object",
        ),
    ],
)
def test_a_list_that_cannot_be_replayed_says_why(messages: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(Degraded, match=says) as caught:
        from_openai("chat-1", messages)
    assert caught.value.conversation == "chat-1"


def test_a_user_who_goes_on_before_the_reply_to_a_call_is_refused() -> None:
    messages = openai_messages(_plain(SPOKEN))
    answers = [number for number, message in enumerate(messages) if message["role"] == "tool"]
    del messages[answers[0] + 1]
    with pytest.raises(Degraded, match="before the agent has replied"):
        from_openai("c", messages)


def test_what_an_agent_says_between_its_calls_is_part_of_its_reply() -> None:
    messages = openai_messages(_plain(SPOKEN))
    next(one for one in messages if one.get("tool_calls"))["content"] = "One moment."
    found = from_openai("c", messages)
    replies = [event["text"] for event in found.events if event["kind"] == "agent"]
    assert replies == ["One moment.\n\nNine or ten?", "That one is gone."]
    assert found.left_out == {"system": 1}


@pytest.mark.parametrize("block", ["image", "document", "server_tool_use"])
def test_blocks_that_are_no_text_are_refused_by_name(block: str) -> None:
    with pytest.raises(Degraded, match=block):
        from_anthropic("c", [{"role": "user", "content": [{"type": block}]}])


def test_formats_are_told_by_their_content(tmp_path: Path) -> None:
    plain = _plain(SPOKEN)
    files = {
        "openai": json.dumps({"messages": openai_messages(plain)}),
        "anthropic": "\n".join(json.dumps({"messages": anthropic_messages(plain)}) for _ in range(2)),
        "otlp": json.dumps(otlp_request(SPOKEN), indent=1),
        "jsonl": to_lines(recorded("c", SPOKEN)),
    }
    for name, text in files.items():
        path = tmp_path / "history"
        path.write_text(text, encoding="utf-8")
        history = read_history(path)
        assert history.format == name
        assert not history.degraded
        assert len(history.whole) == (2 if name == "anthropic" else 1)


def test_a_trace_of_a_launch_is_a_recording_unless_a_fault_ended_it() -> None:
    trace = [
        {"kind": "probed", "turn": 0, "at": SPOKEN[0]["at"], "database": "x"},
        *SPOKEN,
        {"kind": "model_call", "turn": 2, "at": SPOKEN[-1]["at"]},
        {"kind": "end", "turn": 2, "at": SPOKEN[-1]["at"], "ending": "ended", "reason": "done"},
    ]
    text = "".join(json.dumps(event) + "\n" for event in trace)
    found = parse_lines("c001", text)
    assert found.steps == steps_of(SPOKEN)
    assert found.left_out == {"probed": 1, "model_call": 1}
    fault = json.dumps({"kind": "agent_fault", "turn": 2, "cause": "crash"})
    with pytest.raises(Degraded, match="crash"):
        parse_lines("c001", text.replace('{"kind": "end"', fault + '\n{"kind": "end"'))
