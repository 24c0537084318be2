"""OpenTelemetry's GenAI spans as recordings. Pure.

Spans come in any order and from many threads. What is said stands in the outermost `invoke_agent` of a turn,
what was done in the `execute_tool` below it, and their times say in which order. Where they do not, or where
a span says that something of it was dropped, there is no recording.
https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from redteam_harness.exchange.dialects import unpacked
from redteam_harness.exchange.recording import Degraded, recorded
from redteam_harness.exchange.span_tree import Span, parse_spans
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redteam_harness.evidence.trace import Event
    from redteam_harness.exchange.recording import Recorded

__all__ = ["OTHER_SIGNALS", "from_spans"]

OTHER_SIGNALS = ("resourceMetrics", "resourceLogs")
"""What stands beside `resourceSpans` in files of collectors, and tells nothing that could be replayed."""

_MODEL_CALLS = frozenset({"chat", "generate_content", "text_completion"})
_EXTERNAL = "extension"  # in the conventions: executed on the agent's side to call an API outside
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_spans(requests: Sequence[Mapping[str, Any]]) -> Iterator[Recorded | Degraded]:
    """The conversations in some export requests, each whole or with why it is not, by their beginnings.

    Args:
        requests: OTLP's JSON, each an object with `resourceSpans`.

    Raises:
        UsageError: a request is none.
    """
    spans: dict[tuple[str, str], Span] = {}
    for request in requests:
        for span in parse_spans(request):
            before = spans.setdefault((span.trace, span.id), span)
            if before is not span and before.attributes != span.attributes:
                raise UsageError(f"two spans have the id {span.id} in trace {span.trace}, and differ")
    for span in spans.values():
        span.parent = spans.get((span.trace, span.parent_id))
        if span.parent is not None:
            span.parent.children.append(span)
    _check_tree(spans.values())
    groups = _conversations(spans.values())
    for name, members in sorted(groups.items(), key=lambda one: (min(span.start for span in one[1]), one[0])):
        try:
            yield _recording(name, members)
        except Degraded as error:
            yield Degraded(error.missing, conversation=name)


def _check_tree(spans: Iterable[Span]) -> None:
    """A span that is its own ancestor would be walked for ever."""
    known: set[int] = set()
    for span in spans:
        path: list[Span] = []
        one: Span | None = span
        while one is not None and id(one) not in known:
            if any(one is before for before in path):
                raise UsageError(f"span {one.id} of trace {one.trace} is its own ancestor")
            path.append(one)
            one = one.parent
        known.update(map(id, path))


def _conversations(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """The spans of each conversation: by its id, or by trace where no span of the trace has one."""
    found: defaultdict[str, list[Span]] = defaultdict(list)
    traces: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace].append(span)
    for trace, members in traces.items():
        if not any(span.tells for span in members):
            continue  # telemetry of something else
        ids = {str(one) for span in members if (one := span.attributes.get("gen_ai.conversation.id"))}
        if len(ids) <= 1:
            found[next(iter(ids), f"trace {trace}")] += members
            continue
        for span in members:  # several conversations within one trace: each span is told by the nearest id
            near = (one.attributes.get("gen_ai.conversation.id") for one in (span, *span.above()))
            found[str(next((one for one in near if one), f"trace {trace}"))].append(span)
    return {name: members for name, members in found.items() if any(span.tells for span in members)}


def _recording(name: str, members: Sequence[Span]) -> Recorded:
    for span in members:
        _check_whole(span)
    _check_count(members)
    told = [span for span in members if span.operation == "invoke_agent"]
    turns = [span for span in told if not any(one.operation == "invoke_agent" for one in span.above())]
    homes = {id(span): [span, *span.below()] for span in turns}
    at_home = {id(one) for home in homes.values() for one in home}
    for span in members:
        if span.operation == "execute_tool" and id(span) not in at_home:
            raise Degraded(f"{span.name} ({span.id}) is below no invoke_agent, so its turn is not known")
    if not turns:
        raise Degraded("no invoke_agent span says what was said")
    events: list[Event] = []
    lines: list[tuple[str, str]] = []
    for number, span in enumerate(_in_turn(turns), start=1):
        asked, replied = _lines(span, number, lines)
        lines += [("user", asked), ("assistant", replied)]
        events.append({"kind": "user", "text": asked, "at": _time(span.start)})
        events += _steps([one for one in homes[id(span)] if one.operation == "execute_tool"], number)
        events.append({"kind": "agent", "text": replied, "at": _time(span.end)})
    left_out = Counter(
        "chat" if span.operation in _MODEL_CALLS else "span" for span in members if not span.tells
    )
    return recorded(
        name,
        events,
        left_out=left_out,
        persona=_said(members, "redteam.persona"),
        case=_said(members, "redteam.case"),
    )


def _said(members: Sequence[Span], attribute: str) -> str | None:
    """What the spans say of the conversation, as those of `redteam export` do."""
    found = {str(span.attributes[attribute]) for span in members if attribute in span.attributes}
    return found.pop() if len(found) == 1 else None


def _check_whole(span: Span) -> None:
    if span.tells and span.dropped:
        raise Degraded(f"span {span.name} ({span.id}) has lost {span.dropped} of its attributes or events")
    orphan = bool(span.parent_id) and span.parent is None and not span.remote_parent
    if orphan:
        raise Degraded(f"the parent {span.parent_id} of span {span.name} ({span.id}) is missing")
    if span.tells and span.end < span.start:
        raise Degraded(f"span {span.name} ({span.id}) ends before it begins")


def _check_count(members: Sequence[Span]) -> None:
    """`redteam.spans`, where an exporter sets it: how many spans the trace has."""
    for span in members:
        said = span.attributes.get("redteam.spans")
        there = sum(one.trace == span.trace for one in members)
        if said is not None and said != there:
            raise Degraded(f"span {span.name} says that its trace has {said} spans, and {there} are here")


def _in_turn(turns: Sequence[Span]) -> list[Span]:
    """The turns one after the other, by their times."""
    ordered = sorted(turns, key=lambda one: (one.start, one.end, one.attributes.get("redteam.turn") or 0))
    for one, after in pairwise(ordered):
        if after.start < one.end:
            raise Degraded(f"turns {one.id} and {after.id} overlap, so they cannot be ordered")
        if (one.start, one.end) == (after.start, after.end) and not _numbered(one, after):
            raise Degraded(f"turns {one.id} and {after.id} are of the same moment, so they cannot be ordered")
    said = [one.attributes["redteam.turn"] for one in ordered if "redteam.turn" in one.attributes]
    if said and said != list(range(1, len(ordered) + 1)):
        raise Degraded(f"the turns in it are {', '.join(map(str, said))}: some are missing")
    return ordered


def _numbered(*spans: Span) -> bool:
    return all("redteam.turn" in span.attributes for span in spans)


def _lines(span: Span, number: int, before: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The user's line and the agent's, from the turn's span."""
    asked = _messages(span, "gen_ai.input.messages", number)
    replied = _messages(span, "gen_ai.output.messages", number)
    last = max((at for at, (role, _) in enumerate(asked) if role == "assistant"), default=-1)
    history, new = asked[: last + 1], [text for role, text in asked[last + 1 :] if role == "user"]
    if history and history != list(before):
        # An agent's input often has the whole conversation: then it says which turns there were.
        raise Degraded(f"turn {number}: its input tells of other lines than the turns before it: a gap")
    texts = [text for role, text in replied if role == "assistant" and text.strip()]
    if not new or not texts:
        which = "input" if not new else "output"
        raise Degraded(
            f"turn {number}: gen_ai.{which}.messages does not say what was said; record message contents"
        )
    return "\n\n".join(new), "\n\n".join(texts)


def _messages(span: Span, attribute: str, number: int) -> list[tuple[str, str]]:
    """Role and text of the messages in an attribute; instructions and tool traffic have no text of theirs."""
    given = span.attributes.get(attribute)
    if given is None:
        raise Degraded(f"turn {number}: {attribute} is missing; have the service record message contents")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise Degraded(f"turn {number}: {attribute} is no JSON: it was cut") from None
    found = []
    messages: list[Any] = given if isinstance(given, list) else [{}]
    for message in messages:
        parts = message.get("parts") if isinstance(message, dict) else None
        if not isinstance(parts, list) or not isinstance(message.get("role"), str):
            raise Degraded(f"turn {number}: {attribute} is not of the conventions' form")
        if message["role"] == "system":
            continue
        texts = []
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text" and isinstance(part.get("content"), str):
                texts.append(part["content"])
            elif kind not in ("tool_call", "tool_call_response", "reasoning"):
                raise Degraded(f"turn {number}: a part of type {kind!r} cannot be replayed")
        if texts:
            found.append((message["role"], "\n\n".join(texts)))
    return found


def _steps(spans: Sequence[Span], number: int) -> list[Event]:
    """The tool calls of a turn and their answers in the order of their times; inner calls stand within."""
    inner: defaultdict[int, list[Span]] = defaultdict(list)
    outer: list[Span] = []
    for span in spans:
        above = next((one for one in span.above() if one.operation == "execute_tool"), None)
        (outer if above is None else inner[id(above)]).append(span)
    if inner:
        return _nested(outer, inner, number)
    found: list[tuple[int, int, Event]] = []
    for rank, span in enumerate(_ordered(spans, number)):
        *before, last = _call(span, number)
        found += [(span.start, 2 * rank, event) for event in before]
        found.append((span.end, 2 * rank + 1, last))
    ends = Counter(span.end for span in spans if span.end > span.start)
    if any(count > 1 for count in ends.values()):
        raise Degraded(f"turn {number}: two calls ended at the same time, so they cannot be ordered")
    return [event for _, _, event in sorted(found, key=lambda one: one[:2])]


def _nested(spans: Sequence[Span], inner: Mapping[int, list[Span]], number: int) -> list[Event]:
    """The same where calls make calls; then those of one level may not overlap."""
    events: list[Event] = []
    ordered = _ordered(spans, number)
    for one, after in pairwise(ordered):
        if after.start < one.end:
            raise Degraded(f"turn {number}: {one.name} and {after.name} overlap: they cannot be ordered")
    for span in ordered:
        *before, last = _call(span, number)
        events += [*before, *_nested(inner.get(id(span), []), inner, number), last]
    return events


def _ordered(spans: Sequence[Span], number: int) -> list[Span]:
    ordered = sorted(spans, key=lambda one: (one.start, one.end))
    for one, after in pairwise(ordered):
        if one.start == after.start:
            raise Degraded(
                f"turn {number}: {one.name} and {after.name} began at the same time: they have no order"
            )
    return ordered


def _call(span: Span, number: int) -> list[Event]:
    """The call and its answer; one event where the agent's code itself called something outside."""
    given = span.attributes
    name = given.get("gen_ai.tool.name")
    if not isinstance(name, str) or not name:
        raise Degraded(f"turn {number}: span {span.name} ({span.id}) does not say which tool was called")
    call = str(given.get("gen_ai.tool.call.id") or f"span-{span.id}")
    arguments = _argument(given.get("gen_ai.tool.call.arguments"))
    if not isinstance(arguments, dict):
        raise Degraded(f"turn {number}: the arguments of {name} are missing or cut; record them")
    asked: Event = {"kind": "tool_call", "call": call, "name": name, "arguments": arguments}
    answered: Event = {"call": call, "name": name}
    if span.failed:
        kind = str(given.get("error.type") or span.raised.get("exception.type") or "error")
        if kind == "unanswered":
            raise Degraded(f"turn {number}: {name} was called and has no answer")
        message = str(span.raised.get("exception.message") or span.message)
        answered = {"kind": "tool_error", **answered, "type": kind, "message": message}
    elif "gen_ai.tool.call.result" not in given:
        raise Degraded(f"turn {number}: the result of {name} is missing; record it, or the call was cut off")
    else:
        answered = {"kind": "tool_result", **answered, "value": _result(given["gen_ai.tool.call.result"])}
    if given.get("gen_ai.tool.type") == _EXTERNAL:
        called = {"kind": "external", "name": name, "arguments": arguments, **_came(span, answered)}
        return [{**called, "at": _time(span.end)}]
    return [{**asked, "at": _time(span.start)}, {**answered, "at": _time(span.end)}]


def _came(span: Span, answered: Event) -> Event:
    """What a call outside came to, as a trace has it; with the fault that was played, where one was."""
    played = {name: span.attributes.get(f"redteam.{name}") for name in ("fault", "happened")}
    came = {name: value for name, value in played.items() if value is not None}
    if not span.failed:
        return {"result": answered["value"], **came}
    kind, message = answered["type"], answered["message"]
    return {"error": kind if message in ("", kind) else f"{kind}: {message}", **came}


def _argument(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _result(value: Any) -> Any:
    return unpacked(value) if isinstance(value, str) else value


def _time(nanoseconds: int) -> str:
    moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
