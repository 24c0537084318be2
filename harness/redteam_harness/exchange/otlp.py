"""A stored conversation as OpenTelemetry spans, by the GenAI semantic conventions. Pure.

    conversation ─┬─ invoke_agent (turn 1) ─┬─ chat
                  │                         ├─ execute_tool
                  │                         └─ ...
                  └─ invoke_agent (turn 2) ...

Each turn is one invocation of the agent, with the user's line and the agent's as its messages. Ids come from
what the spans are of, so that the same evidence gives the same bytes, and a second export is no second trace.
https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from redteam_sdk import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redteam_harness.evidence.run import StoredConversation

__all__ = ["export_request", "otlp_json"]

_SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
_PROVIDERS = {"claude": "anthropic", "openai": "openai"}


@dataclass(slots=True)
class _Draft:
    """A span that is being made."""

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    kind: Span.SpanKind.ValueType = Span.SPAN_KIND_INTERNAL
    error: str = ""
    parent: _Draft | None = None
    children: list[_Draft] = field(default_factory=list)

    def under(self, parent: _Draft) -> _Draft:
        """This span as a child of another, which lasts at least as long."""
        self.parent = parent
        parent.children.append(self)
        parent.start_ns, parent.end_ns = min(parent.start_ns, self.start_ns), max(parent.end_ns, self.end_ns)
        return self

    def walk(self) -> Iterator[_Draft]:
        """This span and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def export_request(
    run: str, facts: Mapping[str, Any], stored: StoredConversation, *, outcome: str
) -> ExportTraceServiceRequest:
    """One conversation as an export request with one trace.

    Args:
        run: the run's id.
        facts: its run.json.
        stored: the conversation's evidence.
        outcome: how it came out.
    """
    conversation = str(stored.about["id"])
    root = _conversation(facts, stored, outcome)
    # So that a reader notices where one was lost on the way.
    root.attributes["redteam.spans"] = sum(1 for _ in root.walk())
    trace = _digest(run, conversation)[:16]
    spans = [
        _span(draft, trace, _digest(run, conversation, str(number))[:8])
        for number, draft in enumerate(root.walk())
    ]
    ids = {id(draft): span.span_id for draft, span in zip(root.walk(), spans, strict=True)}
    for draft, span in zip(root.walk(), spans, strict=True):
        if draft.parent is not None:
            span.parent_span_id = ids[id(draft.parent)]
    resource = Resource(attributes=_pairs({"service.name": str(facts["agent"]["name"]), "redteam.run": run}))
    scope = InstrumentationScope(name="redteam", version=__version__)
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=resource,
                scope_spans=[ScopeSpans(scope=scope, spans=spans, schema_url=_SCHEMA)],
            )
        ]
    )


def otlp_json(request: ExportTraceServiceRequest) -> str:
    """The request in OTLP's own JSON, on one line: ids are hexadecimal, enumerations are numbers.

    https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
    """
    data = MessageToDict(request, use_integers_for_enums=True)
    for span in data["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = _hexadecimal(span[name])
    # In ASCII: what some readers take for the end of a line may be part of what was said.
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _hexadecimal(base64_text: str) -> str:
    return base64.b64decode(base64_text).hex()


def _conversation(facts: Mapping[str, Any], stored: StoredConversation, outcome: str) -> _Draft:
    about = stored.about
    # Evidence has milliseconds, in which several things happen: the digits below them keep the order.
    events = [{**event, "ns": _nanoseconds(event["at"]) + n} for n, event in enumerate(stored.events)]
    times = [event["ns"] for event in events] or [0]
    root = _Draft(
        name=f"conversation {about['id']}",
        start_ns=min(times),
        end_ns=max(times),
        attributes={
            "gen_ai.conversation.id": about["id"],
            "redteam.case": about["case"],
            "redteam.persona": about["persona"],
            "redteam.disposition": about["disposition"],
            "redteam.outcome": outcome,
            "redteam.notice": facts["notice"],
            **{f"redteam.verdict.{verdict['rule']}": verdict["status"] for verdict in stored.verdicts},
        },
    )
    agent = str(facts["agent"]["name"])
    for turn in sorted({int(event["turn"]) for event in events if event["kind"] in ("user", "agent")}):
        _turn(turn, [event for event in events if event["turn"] == turn], agent, about["id"]).under(root)
    return root


def _turn(turn: int, events: Sequence[Mapping[str, Any]], agent: str, conversation: str) -> _Draft:
    asked = [event for event in events if event["kind"] == "user"]
    said = [event for event in events if event["kind"] == "agent"]
    start = (asked or events)[0]["ns"]
    end = (said or events)[-1]["ns"]
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": conversation,
        "redteam.turn": turn,
    }
    if asked:
        attributes["gen_ai.input.messages"] = _messages("user", asked)
    if said:
        attributes["gen_ai.output.messages"] = _messages("assistant", said, finish="stop")
    fault = next((event for event in events if event["kind"] in ("agent_fault", "fault")), None)
    invocation = _Draft(
        name=f"invoke_agent {agent}",
        start_ns=start,
        end_ns=max(start, end),
        attributes=attributes,
        error=str(fault["cause"]) if fault is not None and not said else "",
    )
    for draft in (*_tools(events), *_externals(events), *_chats(events)):
        draft.under(invocation)
    invocation.children.sort(key=lambda draft: draft.start_ns)
    return invocation


def _tools(events: Sequence[Mapping[str, Any]]) -> Iterator[_Draft]:
    answers = {event["call"]: event for event in events if event["kind"] in ("tool_result", "tool_error")}
    for event in events:
        if event["kind"] != "tool_call":
            continue
        answer = answers.get(event["call"])
        start = event["ns"]
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event["name"],
            "gen_ai.tool.call.id": event["call"],
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.arguments": _json(event["arguments"]),
        }
        draft = _Draft(
            name=f"execute_tool {event['name']}",
            start_ns=start,
            end_ns=start if answer is None else max(start, answer["ns"]),
            attributes=attributes,
        )
        if answer is None:
            draft.error = "no answer was recorded"
            attributes["error.type"] = "unanswered"
        elif answer["kind"] == "tool_error":
            draft.error = str(answer["message"])
            attributes["error.type"] = str(answer["type"])
        else:
            attributes["gen_ai.tool.call.result"] = _json(answer.get("value"))
        yield draft


def _externals(events: Sequence[Mapping[str, Any]]) -> Iterator[_Draft]:
    """Calls that tools made to what is outside: in the conventions' words, extensions."""
    for event in events:
        if event["kind"] != "external":
            continue
        kind, _, message = str(event.get("error") or "").partition(": ")
        yield _Draft(
            name=f"execute_tool {event['name']}",
            start_ns=event["ns"],
            end_ns=event["ns"],
            error=message or kind,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event["name"],
                "gen_ai.tool.type": "extension",
                "gen_ai.tool.call.arguments": _json(event["arguments"]),
                "gen_ai.tool.call.result": None if kind else _json(event.get("result")),
                "error.type": kind or None,
                "redteam.fault": event.get("fault"),
                "redteam.happened": event.get("happened"),
            },
        )


def _chats(events: Sequence[Mapping[str, Any]]) -> Iterator[_Draft]:
    for event in events:
        if event["kind"] != "model_call" or event.get("role", "agent") != "agent":
            continue  # what the actor's and the judge's models did is no doing of the agent's
        end = event["ns"]
        model, usage = str(event.get("model") or "unknown"), event.get("usage") or {}
        provider = _PROVIDERS.get(model.partition("-")[0].partition(":")[0])
        counted = {
            "gen_ai.usage.input_tokens": sum(
                usage.get(name, 0) for name in ("input", "cache_write", "cache_read", "cached")
            ),
            "gen_ai.usage.output_tokens": usage.get("output", 0),
            "gen_ai.usage.cache_read.input_tokens": usage.get("cache_read"),
            "gen_ai.usage.cache_creation.input_tokens": usage.get("cache_write"),
        }
        fault = event.get("fault") or event.get("error")
        yield _Draft(
            name=f"chat {model}",
            start_ns=end - int(float(event.get("latency_s") or 0) * 1e9),
            end_ns=end,
            kind=Span.SPAN_KIND_CLIENT,
            error=str(fault or ""),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model,
                "gen_ai.response.model": event.get("answered_by") or model,
                "gen_ai.response.id": event.get("request"),
                "gen_ai.response.finish_reasons": [event["stop"]] if event.get("stop") else None,
                **(counted if usage else {}),
                **({"error.type": str(fault)} if fault else {}),
            },
        )


def _messages(role: str, lines: Sequence[Mapping[str, Any]], *, finish: str | None = None) -> str:
    """Lines in the form of the conventions' messages, as JSON in a text."""
    return _json(
        [
            {
                "role": role,
                "parts": [{"type": "text", "content": line["text"]}],
                **({"finish_reason": finish} if finish else {}),
            }
            for line in lines
        ]
    )


def _span(draft: _Draft, trace: bytes, span: bytes) -> Span:
    status = Status(code=Status.STATUS_CODE_ERROR, message=draft.error) if draft.error else Status()
    return Span(
        trace_id=trace,
        span_id=span,
        name=draft.name,
        kind=draft.kind,
        start_time_unix_nano=draft.start_ns,
        end_time_unix_nano=draft.end_ns,
        attributes=_pairs(draft.attributes),
        status=status,
    )


def _pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=name, value=_any(value)) for name, value in attributes.items() if value is not None]


def _any(value: object) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=[_any(item) for item in value]))
        case _:
            return AnyValue(string_value=str(value))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _nanoseconds(at: str) -> int:
    moment = datetime.fromisoformat(at)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000
