"""Real conversations for tests of their import: made up whole, and written as other tools write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from redteam_harness.evidence.run import StoredConversation
from redteam_harness.exchange.otlp import export_request, otlp_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["anthropic_messages", "conversations", "openai_messages", "otlp_request", "spans_of", "timed"]

Event = dict[str, Any]
_BEGAN = datetime(2026, 10, 12, 9, 30, tzinfo=UTC)

_lines = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30).filter(str.strip)
_leaves = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=12)
_json = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)
_arguments = st.dictionaries(st.text(min_size=1, max_size=6), _json, max_size=3)
_names = st.sampled_from(["find_patient", "book", "refund", "send"])


@st.composite
def conversations(draw: st.DrawFn, *, errors: bool = True, nested: bool = True) -> list[Event]:
    """The steps of a whole conversation, calls one after the other or several at once.

    Args:
        draw: hypothesis's.
        errors: whether tools fail, too.
        nested: whether calls that are open at once are answered in any order.
    """
    events: list[Event] = []
    calls = 0
    for turn in range(1, draw(st.integers(1, 3)) + 1):
        events.append({"kind": "user", "text": draw(_lines), "turn": turn})
        for _ in range(draw(st.integers(0, 2))):
            open_ = []
            for _ in range(draw(st.integers(1, 3))):
                calls += 1
                call: Event = {"call": f"call-{calls}", "name": draw(_names)}
                events.append({"kind": "tool_call", **call, "arguments": draw(_arguments), "turn": turn})
                open_.append(call)
            if nested:
                open_ = draw(st.permutations(open_))
            for call in open_:
                if errors and draw(st.booleans()):
                    answer = {"kind": "tool_error", **call, "type": "error", "message": draw(_lines)}
                else:
                    answer = {"kind": "tool_result", **call, "value": draw(_json)}
                events.append({**answer, "turn": turn})
        events.append({"kind": "agent", "text": draw(_lines), "turn": turn})
    return events


def timed(events: Sequence[Event]) -> list[Event]:
    """The events with times, one millisecond after the other."""
    return [
        {
            **event,
            "at": (_BEGAN + timedelta(milliseconds=number))
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
        }
        for number, event in enumerate(events)
    ]


def otlp_request(events: Sequence[Event], *, name: str = "c001") -> dict[str, Any]:
    """The conversation as `redteam export` writes it, without how many spans it has, so that one can go."""
    about = {"id": name, "case": "only", "persona": "1", "disposition": "cooperative"}
    facts = {"agent": {"name": "desk"}, "notice": "offline"}
    stored = StoredConversation(about=about, events=tuple(events), changes=None, verdicts=())
    request: dict[str, Any] = json.loads(otlp_json(export_request("run234", facts, stored, outcome="pass")))
    for span in spans_of(request):
        span["attributes"] = [one for one in span["attributes"] if one["key"] != "redteam.spans"]
    return request


def spans_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The spans in a request, to be changed in place."""
    spans: list[dict[str, Any]] = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


def openai_messages(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The conversation as chat completions have it."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are a front desk."}]
    for group in _groups(events):
        match group[0]["kind"]:
            case "user":
                messages.append({"role": "user", "content": group[0]["text"]})
            case "agent":
                messages.append({"role": "assistant", "content": group[0]["text"]})
            case "tool_call":
                calls = [
                    {
                        "id": one["call"],
                        "type": "function",
                        "function": {"name": one["name"], "arguments": json.dumps(one["arguments"])},
                    }
                    for one in group
                ]
                messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            case _:
                messages += [
                    {"role": "tool", "tool_call_id": one["call"], "content": json.dumps(one["value"])}
                    for one in group
                ]
    return messages


def anthropic_messages(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The conversation as the Messages API has it."""
    messages: list[dict[str, Any]] = []
    for group in _groups(events):
        match group[0]["kind"]:
            case "user":
                messages.append({"role": "user", "content": group[0]["text"]})
            case "agent":
                content = [{"type": "text", "text": group[0]["text"]}]
                messages.append({"role": "assistant", "content": content})
            case "tool_call":
                blocks = [
                    {"type": "tool_use", "id": one["call"], "name": one["name"], "input": one["arguments"]}
                    for one in group
                ]
                messages.append(
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": "..."}, *blocks]}
                )
            case _:
                messages.append({"role": "user", "content": [_result(one) for one in group]})
    return messages


def _result(event: Event) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": event["call"]}
    if event["kind"] == "tool_error":
        return {**block, "is_error": True, "content": event["message"]}
    return {**block, "content": [{"type": "text", "text": json.dumps(event["value"])}]}


def _groups(events: Sequence[Event]) -> list[list[Event]]:
    """Neighbours that one message holds: calls, and answers."""
    groups: list[list[Event]] = []
    for event in events:
        kind = "answer" if event["kind"] in ("tool_result", "tool_error") else event["kind"]
        before = groups[-1][0]["kind"] if groups else ""
        before = "answer" if before in ("tool_result", "tool_error") else before
        if kind == before and kind in ("answer", "tool_call"):
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups
