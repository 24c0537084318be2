"""What a deployed service reports of one conversation: the SDK's events, and OpenTelemetry's spans."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.spans import SpanReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.agents.agent import EventSink
    from redteam_harness.agents.spans import Span

__all__ = ["Inbox", "Refused"]

# What each kind of event must have; a service may report no other kind.
_EVENTS: Mapping[str, Mapping[str, type]] = {
    "tool_call": {"call": str, "name": str, "arguments": dict},
    "tool_result": {"call": str, "name": str},
    "tool_error": {"call": str, "name": str, "type": str, "message": str},
    "external": {"name": str, "arguments": dict},
    "swap": {"to": str},
    "subprocess": {"program": str},
    "fault": {"cause": str, "message": str},
}
_MAX_REQUESTS = 10_000
_MAX_SPANS = 100_000


class Refused(ValueError):
    """A report is not taken. The reason names no content.

    Attributes:
        status: the HTTP status that says so.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class _Request:
    """A request that the service serves: in which turn it began, and how many events have come of it."""

    turn: int
    events: int = 0
    replied: bool = False


@dataclass(slots=True)
class _Trace:
    """A turn as the service's spans know it."""

    turn: int
    root: str
    has_root: bool = False
    is_told: bool = False
    complete: anyio.Event = field(default_factory=anyio.Event)


class Inbox:
    """Takes one conversation's reports and hands its events on, in the order in which they happened.

    Args:
        conversation: its id.
        sink: takes the events.
        merge: whether events wait for the spans of their turn, so that both are told in the order of their
            times; else the SDK's are told as they come.

    Attributes:
        fault: a fault of ours that a tool met, also where the agent swallowed it.
    """

    def __init__(self, conversation: str, sink: EventSink, *, merge: bool = False) -> None:
        self.conversation = conversation
        self.fault: AgentFault | None = None
        self.traces: dict[str, _Trace] = {}
        self._sink = sink
        self._merge = merge
        self._held: list[dict[str, Any]] = []
        self._turn = 0
        self._requests: dict[str, _Request] = {}
        self._reader = SpanReader()
        self._spans: list[Span] = []
        self._seen: set[str] = set()

    def begin(self, turn: int) -> tuple[str, str]:
        """A turn begins; returns the id of its trace and the `traceparent` header that says it."""
        self._turn = turn
        trace, root = secrets.token_hex(16), secrets.token_hex(8)
        self.traces[trace] = _Trace(turn, root)
        return trace, f"00-{trace}-{root}-01"

    def report(self, report: Mapping[str, Any]) -> None:
        """Take a report of the SDK: some events of one request, the first of which has a number.

        Raises:
            Refused: it is none, or events before it are missing. Nothing of it was taken.
        """
        name, first, events = report.get("request"), report.get("first"), report.get("events")
        if not isinstance(name, str) or type(first) is not int or first < 0 or not isinstance(events, list):
            raise Refused(400, "a report has a request, a first and events")
        for event in events:
            _check(event)
        if name not in self._requests and len(self._requests) >= _MAX_REQUESTS:
            raise Refused(429, f"more than {_MAX_REQUESTS} requests in one conversation")
        request = self._requests.setdefault(name, _Request(self._turn))
        if first > request.events:
            raise Refused(409, f"{first - request.events} events before these are missing")
        for event in events[request.events - first :]:  # those before were reported already
            request.events += 1
            self._take({**event, "turn": request.turn})
        request.replied = request.replied or report.get("replied") is True

    def has_replied(self, request: str) -> bool:
        """Whether all events of a request up to its reply have come."""
        return request in self._requests and self._requests[request].replied

    def add(self, span: Span) -> None:
        """Take a span of one of the conversation's traces; its events come with the next `tell`."""
        if span.id in self._seen or len(self._seen) >= _MAX_SPANS:
            return  # exporters send again what they do not know to have arrived
        self._seen.add(span.id)
        self._spans.append(span)
        trace = self.traces[span.trace]
        trace.has_root = trace.has_root or span.parent == trace.root
        trace.is_told = trace.is_told or span.is_genai
        if trace.has_root and trace.is_told:
            trace.complete.set()

    async def complete(self, trace: str, deadline_s: float) -> bool:
        """Wait for the spans of a turn; False if they do not come.

        They are there when the service's outermost one is, which ends last, and at least one of them says
        what the agent did: a web framework's own span says nothing of an agent whose spans went elsewhere.
        """
        with anyio.move_on_after(deadline_s):
            await self.traces[trace].complete.wait()
        return self.traces[trace].complete.is_set()

    def tell(self) -> None:
        """Hand on what is held and the events of the spans that have come, in the order of their times."""
        spans, self._spans = self._spans, []
        held, self._held = self._held, []
        events: list[dict[str, Any]] = []
        for turn in sorted({self.traces[span.trace].turn for span in spans}):
            mine = [span for span in spans if self.traces[span.trace].turn == turn]
            events += [{**event, "turn": turn} for event in self._reader.read(mine)]
        # Within a millisecond spans come first: a model's answer, and then the call that it led to.
        for event in sorted([*events, *held], key=lambda event: (event["turn"], event["at"])):
            self._sink(event)

    def _take(self, event: dict[str, Any]) -> None:
        self._reader.note(event)
        told = event if event["kind"] != "fault" else {**event, "kind": "agent_fault"}
        if self._merge:
            self._held.append(told)
        else:
            self._sink(told)
        if told is not event and self.fault is None:
            self.fault = AgentFault(str(event["cause"]), str(event["message"]))


def _check(event: object) -> None:
    if not isinstance(event, dict) or not isinstance(event.get("at"), str):
        raise Refused(400, "an event is an object with the time `at`")
    kind = event.get("kind")
    needed = _EVENTS.get(kind) if isinstance(kind, str) else None
    if needed is None:
        raise Refused(400, f"a service reports {', '.join(_EVENTS)}, and nothing else")
    for name, kept in needed.items():
        if not isinstance(event.get(name), kept):
            raise Refused(400, f"an event {kind} has {', '.join(needed)}")
