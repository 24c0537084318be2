"""From OpenTelemetry's GenAI spans to events of a trace. Pure.

Reads what the semantic conventions call `invoke_agent`, `chat` (and its older siblings) and `execute_tool`;
every other span says only that it has come.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

__all__ = ["Span", "SpanReader", "Unreadable", "attributes_of", "parse_json", "parse_protobuf"]

_CHATS = {"chat", "generate_content", "text_completion"}
_TELLING = {"invoke_agent", "execute_tool", *_CHATS}
_STATUS_ERROR = 2
# Both times are of the service, one in milliseconds.
_SLACK_NS = 2_000_000


class Unreadable(ValueError):
    """A body is no export request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One finished span.

    Attributes:
        trace: its trace id, 32 hexadecimal digits.
        id: its own id, 16 of them.
        parent: its parent's, or empty.
        name: its name.
        start_ns, end_ns: its times, in nanoseconds since 1970.
        error: what it failed with, or None.
        attributes: as JSON-like data.
    """

    trace: str
    id: str
    parent: str
    name: str
    start_ns: int
    end_ns: int
    error: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def is_genai(self) -> bool:
        """Whether it says what an agent, its model or a tool did."""
        return self.attributes.get("gen_ai.operation.name") in _TELLING


def parse_protobuf(body: bytes) -> list[Span]:
    """The spans of an OTLP export request.

    Raises:
        Unreadable: it is none.
    """
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise Unreadable("the body is no ExportTraceServiceRequest") from None
    return _spans(request)


def parse_json(body: bytes) -> list[Span]:
    """The spans of an OTLP export request in its JSON form, in which ids are hexadecimal.

    Raises:
        Unreadable: it is none.
    """
    try:
        # The JSON form of protobuf wants base64 for bytes, that of OTLP hexadecimal digits: we translate.
        data = json.loads(body, object_hook=_with_base64_ids)
        if not isinstance(data, dict):
            raise TypeError("an export request is an object")
        request = Parse(json.dumps(data), ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, RecursionError):
        raise Unreadable("the body is no ExportTraceServiceRequest in JSON") from None
    return _spans(request)


def _with_base64_ids(data: dict[str, Any]) -> dict[str, Any]:
    for name in ("traceId", "spanId", "parentSpanId"):
        if isinstance(data.get(name), str):
            data[name] = base64.b64encode(bytes.fromhex(data[name])).decode("ascii")
    return data


def _spans(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        _span(span)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _span(span: ProtoSpan) -> Span:
    attributes = attributes_of(span.attributes)
    error = None
    if span.status.code == _STATUS_ERROR or "error.type" in attributes:
        # What was raised is in an event of the span, unless the instrumentation says it in an attribute.
        raised = next(
            (attributes_of(event.attributes) for event in span.events if event.name == "exception"), {}
        )
        error = str(attributes.get("error.type") or raised.get("exception.type") or "error")
        attributes["error.message"] = str(raised.get("exception.message") or span.status.message)
    return Span(
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        error=error,
        attributes=attributes,
    )


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as JSON-like data."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case "bytes_value":
            return value.bytes_value.hex()
        case kind:
            return getattr(value, kind)


class _Known(NamedTuple):
    """A call that the SDK reported."""

    call: str
    name: str
    at_ns: int


class SpanReader:
    """Turns one conversation's spans into events; remembers who the agent is, and which calls are known.

    A tool call that the SDK reported too, under the same id or with the same name within the span's time, is
    told once: the SDK's event has transaction ids.
    """

    def __init__(self) -> None:
        self._agent: str | None = None
        self._known: list[_Known] = []
        self._ids: set[str] = set()

    def note(self, event: dict[str, Any]) -> None:
        """Remember a call that the SDK reported."""
        if event.get("kind") == "tool_call":
            call = str(event.get("call"))
            self._known.append(_Known(call, str(event.get("name")), _nanoseconds(str(event.get("at")))))
            self._ids.add(call)

    def read(self, spans: Iterable[Span]) -> list[dict[str, Any]]:
        """The events of some spans, in the order of their times."""
        timed: list[tuple[int, int, dict[str, Any]]] = []
        for span in sorted(spans, key=lambda one: one.start_ns):
            for at_ns, event in self._events(span):
                timed.append((at_ns, len(timed), {**event, "at": _time(at_ns)}))
        return [event for _, _, event in sorted(timed, key=lambda one: one[:2])]

    def _events(self, span: Span) -> Sequence[tuple[int, dict[str, Any]]]:
        operation = span.attributes.get("gen_ai.operation.name")
        if operation == "execute_tool":
            return self._tool(span)
        if operation in _CHATS:
            return [(span.end_ns, _model_call(span))]
        if operation == "invoke_agent":
            return self._swap(span)
        return ()

    def _tool(self, span: Span) -> Sequence[tuple[int, dict[str, Any]]]:
        given = span.attributes
        name = str(given.get("gen_ai.tool.name") or span.name.removeprefix("execute_tool "))
        call = str(given.get("gen_ai.tool.call.id") or f"span-{span.id}")
        if call in self._ids:
            self._known = [known for known in self._known if known.call != call]
            return ()
        if self._is_known(name, span):
            return ()
        self._ids.add(call)
        arguments = _unpacked(given.get("gen_ai.tool.call.arguments"))
        asked = {
            "kind": "tool_call",
            "call": call,
            "name": name,
            "arguments": arguments if isinstance(arguments, dict) else {},
            "xid": None,
        }
        answered: dict[str, Any] = {"call": call, "name": name, "xid": None}
        if span.error is not None:
            message = str(given.get("error.message") or "")
            answered = {"kind": "tool_error", **answered, "type": span.error, "message": message}
        else:
            answered = {
                "kind": "tool_result",
                **answered,
                "value": _unpacked(given.get("gen_ai.tool.call.result")),
            }
        return [(span.start_ns, asked), (span.end_ns, answered)]

    def _is_known(self, name: str, span: Span) -> bool:
        for known in self._known:
            within = span.start_ns - _SLACK_NS <= known.at_ns <= span.end_ns + _SLACK_NS
            if known.name == name and within:
                self._known.remove(known)  # a second span of the same name is another call
                return True
        return False

    def _swap(self, span: Span) -> Sequence[tuple[int, dict[str, Any]]]:
        name = span.attributes.get("gen_ai.agent.name")
        if not isinstance(name, str) or name == self._agent:
            return ()
        before, self._agent = self._agent, name
        return [(span.start_ns, {"kind": "swap", "from": before, "to": name})] if before else ()


def _model_call(span: Span) -> dict[str, Any]:
    given = span.attributes
    reasons = given.get("gen_ai.response.finish_reasons")
    usage = {
        "input": given.get("gen_ai.usage.input_tokens"),
        "output": given.get("gen_ai.usage.output_tokens"),
        "cached": given.get("gen_ai.usage.cache_read.input_tokens"),
    }
    return {
        "kind": "model_call",
        "model": given.get("gen_ai.response.model") or given.get("gen_ai.request.model"),
        "stop": reasons[0] if isinstance(reasons, list) and reasons else None,
        "usage": {name: int(count) for name, count in usage.items() if count is not None},
        **({"error": span.error} if span.error is not None else {}),
    }


def _unpacked(value: Any) -> Any:
    """Arguments and results are often JSON within a text, because attributes were once texts only."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _time(at_ns: int) -> str:
    moment = datetime.fromtimestamp(at_ns / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _nanoseconds(at: str) -> int:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1e9)
    except ValueError:
        return 0
