"""Spans become events in the order of their times, each call once, whichever encoding they came in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from redteam_harness.agents.inbox import Inbox, Refused
from redteam_harness.agents.spans import Span, SpanReader, Unreadable, parse_json, parse_protobuf

SECOND = 1_000_000_000
START = 1_796_000_000 * SECOND


def span(operation: str, at: float, until: float, *, error: str | None = None, **given: Any) -> Span:
    """A span from `at` to `until` seconds; `gen_ai.` goes before the names of its attributes."""
    attributes = {f"gen_ai.{name.replace('__', '.')}": value for name, value in given.items()}
    return Span(
        trace="ab" * 16,
        id=f"{int(at * 1000):016x}",
        parent="",
        name=f"{operation} x",
        start_ns=START + int(at * SECOND),
        end_ns=START + int(until * SECOND),
        error=error,
        attributes={"gen_ai.operation.name": operation, **attributes},
    )


def told(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(event["kind"], event.get("name") or event.get("to") or event.get("model")) for event in events]


def test_events_come_in_the_order_of_their_times_however_spans_arrive() -> None:
    spans = [
        span("execute_tool", 2, 3, tool__name="outer"),
        span("execute_tool", 2.2, 2.5, tool__name="inner"),
        span("chat", 1, 1.5, request__model="m"),
        span("invoke_agent", 0, 4, agent__name="triage"),
        span("invoke_agent", 2.7, 2.9, agent__name="billing"),
        span("embeddings", 0, 9),
    ]
    expected = [
        ("model_call", "m"),
        ("tool_call", "outer"),
        ("tool_call", "inner"),
        ("tool_result", "inner"),
        ("swap", "billing"),
        ("tool_result", "outer"),
    ]
    assert told(SpanReader().read(spans)) == told(SpanReader().read(reversed(spans))) == expected


def test_an_agent_that_stays_is_no_handoff_over_turns_and_one_that_comes_back_is() -> None:
    reader = SpanReader()
    assert reader.read([span("invoke_agent", 0, 1, agent__name="triage")]) == []
    assert reader.read([span("invoke_agent", 2, 3, agent__name="triage")]) == []
    swaps = reader.read(
        [
            span("invoke_agent", 4, 5, agent__name="billing"),
            span("invoke_agent", 6, 7, agent__name="triage"),
            span("invoke_agent", 8, 9),
        ]
    )
    assert [(event["from"], event["to"]) for event in swaps] == [("triage", "billing"), ("billing", "triage")]


@pytest.mark.parametrize(
    ("given", "arguments"),
    [('{"day": 4}', {"day": 4}), ({"day": 4}, {"day": 4}), ("no JSON", {}), (None, {}), ("[1]", {})],
)
def test_arguments_are_read_in_both_spellings(given: Any, arguments: dict[str, Any]) -> None:
    (call, _) = SpanReader().read([span("execute_tool", 0, 1, tool__name="t", tool__call__arguments=given)])
    assert call["arguments"] == arguments


def sdk_call(call: str, name: str, after_s: float) -> dict[str, Any]:
    at = datetime.fromtimestamp(START / SECOND + after_s, UTC).isoformat(timespec="milliseconds")
    return {"kind": "tool_call", "call": call, "name": name, "at": at, "arguments": {}}


def test_a_call_that_the_sdk_reported_is_not_told_again() -> None:
    reader = SpanReader()
    reader.note(sdk_call("toolu_1", "book", 0.5))
    reader.note(sdk_call("call-1", "find", 2.5))
    spans = [
        span("execute_tool", 0, 1, tool__name="book", tool__call__id="toolu_1"),  # the same id
        span("execute_tool", 2, 3, tool__name="find", tool__call__id="toolu_2"),  # within its time
        span("execute_tool", 2, 3, tool__name="find", tool__call__id="toolu_3"),  # at the same time, another
        span("execute_tool", 4, 5, tool__name="book"),
    ]
    calls = [event for event in reader.read(spans) if event["kind"] == "tool_call"]
    assert [event["name"] for event in calls] == ["find", "book"]
    assert calls[0]["call"] == "toolu_3"


def test_what_a_tool_raised_is_its_error() -> None:
    event = {
        "name": "exception",
        "attributes": [
            {"key": "exception.type", "value": {"stringValue": "SlotTaken"}},
            {"key": "exception.message", "value": {"stringValue": "taken"}},
        ],
    }
    (one,) = parse_json(exported(status={"code": 2, "message": "SlotTaken: taken"}, events=[event]))
    assert (one.error, one.attributes["error.message"]) == ("SlotTaken", "taken")
    (one,) = parse_json(exported(status={"code": 2, "message": "why"}))
    assert (one.error, one.attributes["error.message"]) == ("error", "why")


def exported(**more: Any) -> bytes:
    one = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": "b7ad6b7169203331",
        "name": "execute_tool find",
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + SECOND),
        "attributes": [
            {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
            {"key": "n", "value": {"intValue": "7"}},
            {"key": "l", "value": {"arrayValue": {"values": [{"boolValue": True}]}}},
            {"key": "m", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"doubleValue": 0.5}}]}}},
        ],
        **more,
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [one], "future": 1}]}]}).encode()


def test_json_and_protobuf_say_the_same() -> None:
    (from_json,) = parse_json(exported())
    request = ExportTraceServiceRequest()
    sent = request.resource_spans.add().scope_spans.add().spans.add()
    sent.trace_id, sent.span_id = bytes.fromhex(from_json.trace), bytes.fromhex(from_json.id)
    sent.name, sent.start_time_unix_nano, sent.end_time_unix_nano = from_json.name, START, START + SECOND
    for name, field, value in (
        ("gen_ai.operation.name", "string_value", "execute_tool"),
        ("n", "int_value", 7),
    ):
        pair = sent.attributes.add(key=name)
        setattr(pair.value, field, value)
    sent.attributes.add(key="l").value.array_value.values.add().bool_value = True
    sent.attributes.add(key="m").value.kvlist_value.values.add(key="k").value.double_value = 0.5
    assert MessageToDict(request)
    assert parse_protobuf(request.SerializeToString()) == [from_json]
    assert from_json.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "n": 7,
        "l": [True],
        "m": {"k": 0.5},
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"resourceSpans": 7}', exported(traceId="zz"), b"[" * 100_000, b"\xff\xfe"],
    ids=["empty", "list", "cut", "type", "id", "deep", "bytes"],
)
def test_what_is_no_export_is_refused(body: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_json(body)


def test_garbage_is_no_protobuf() -> None:
    with pytest.raises(Unreadable):
        parse_protobuf(b"\x0a\xff\xff\xff\xff\x01 no protobuf")


AT = "2026-11-30T10:00:00.000Z"


def event(number: int) -> dict[str, Any]:
    return {"kind": "external", "at": AT, "name": f"e{number}", "arguments": {}}


def report(request: str, first: int, *numbers: int, replied: bool = False) -> dict[str, Any]:
    return {"request": request, "first": first, "events": [event(n) for n in numbers], "replied": replied}


def test_reports_are_taken_in_order_each_event_once_and_a_gap_is_refused() -> None:
    seen: list[dict[str, Any]] = []
    inbox = Inbox("c001", seen.append)
    inbox.begin(1)
    inbox.report(report("r", 0, 0, 1))
    inbox.report(report("r", 0, 0, 1))  # said again, as after an answer that was lost
    inbox.report(report("r", 1, 1, 2))
    with pytest.raises(Refused, match="2 events before these are missing") as refused:
        inbox.report(report("r", 5, 5, replied=True))
    assert refused.value.status == 409
    assert not inbox.has_replied("r")
    inbox.begin(2)
    inbox.report(report("r", 3, 3, replied=True))
    inbox.report(report("other", 0, 4, replied=True))
    assert inbox.has_replied("r")
    assert [(event["name"], event["turn"]) for event in seen] == [
        ("e0", 1),
        ("e1", 1),
        ("e2", 1),
        ("e3", 1),  # of a request that began in the turn before
        ("e4", 2),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "agent", "at": AT, "text": "forged"},
        {"kind": "end", "at": AT},
        {"kind": ["tool_call"], "at": AT},
        {"kind": "tool_call", "at": AT, "name": "n", "call": "c", "arguments": []},
        {"kind": "external", "name": "n", "arguments": {}},
        "text",
    ],
)
def test_a_service_can_report_no_event_that_is_not_a_tools(odd: Any) -> None:
    seen: list[dict[str, Any]] = []
    inbox = Inbox("c001", seen.append)
    with pytest.raises(Refused):
        inbox.report({"request": "r", "first": 0, "events": [event(1), odd], "replied": False})
    assert seen == []
