"""OpenTelemetry's spans from OTLP's JSON, with what was dropped of them and who is below whom. Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import Parse, ParseError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from redteam_harness.agents.spans import attributes_of
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


__all__ = ["Span", "parse_spans"]

_STATUS_ERROR = 2
_REMOTE_KNOWN, _REMOTE = 0x100, 0x200


@dataclass(slots=True, kw_only=True, eq=False)
class Span:
    """One span, with what hangs on it."""

    trace: str
    id: str
    parent_id: str
    name: str
    start: int
    end: int
    failed: bool
    message: str
    dropped: int
    remote_parent: bool
    attributes: Mapping[str, Any]
    raised: Mapping[str, Any]
    parent: Span | None = None
    children: list[Span] = field(default_factory=list)

    @property
    def operation(self) -> str:
        """What the GenAI conventions call it; empty for any other span."""
        return str(self.attributes.get("gen_ai.operation.name") or "")

    @property
    def tells(self) -> bool:
        """Whether it is a turn or a tool call."""
        return self.operation in ("invoke_agent", "execute_tool")

    def above(self) -> Iterator[Span]:
        """Its parent, and so on."""
        span = self.parent
        while span is not None:
            yield span
            span = span.parent

    def below(self) -> Iterator[Span]:
        """All spans that hang on it, at any depth."""
        for child in self.children:
            yield child
            yield from child.below()


def parse_spans(data: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of one export request; nothing hangs on them yet.

    Raises:
        UsageError: it is none.
    """
    try:
        # OTLP's JSON has hexadecimal ids where protobuf's has base64.
        request = Parse(
            json.dumps(_with_base64_ids(data)), ExportTraceServiceRequest(), ignore_unknown_fields=True
        )
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"an export request in it is not of OTLP's JSON: {error}") from None
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                attributes = attributes_of(span.attributes)
                raised = next(
                    (attributes_of(one.attributes) for one in span.events if one.name == "exception"), {}
                )
                yield Span(
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    name=span.name,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    failed=span.status.code == _STATUS_ERROR or "error.type" in attributes,
                    message=span.status.message,
                    dropped=span.dropped_attributes_count
                    + span.dropped_events_count
                    + span.dropped_links_count,
                    remote_parent=span.flags & (_REMOTE_KNOWN | _REMOTE) == _REMOTE_KNOWN | _REMOTE,
                    attributes=attributes,
                    raised=raised,
                )


def _with_base64_ids(data: Any) -> Any:
    if isinstance(data, list):
        return [_with_base64_ids(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {
        name: base64.b64encode(bytes.fromhex(value)).decode("ascii")
        if name in ("traceId", "spanId", "parentSpanId") and isinstance(value, str)
        else _with_base64_ids(value)
        for name, value in data.items()
    }
