"""A real conversation in one neutral form: who said what, which tools were called, what they answered. Pure.

The words are those of a trace (docs/evidence.md), and docs/import.md describes the file. A recording is whole
or it is none: what cannot be put in order, or lacks an answer, is `Degraded` and has no steps at all.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.storage import json_text
from redteam_sdk.errors import RedteamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.evidence.trace import Event

__all__ = ["STEPS", "Degraded", "Recorded", "parse_lines", "recorded", "to_lines"]

STEPS = ("user", "agent", "tool_call", "tool_result", "tool_error", "external")
"""The kinds of events that are steps of a conversation, and are replayed."""

_TELEMETRY = frozenset(
    {
        *("probed", "probe", "printed", "model_call", "swap", "late", "retry", "reveal", "leak", "refused"),
        *("subprocess", "escalated"),
    }
)
"""Kinds of events in a trace that say how it went, and are left out."""
_FAULTS = frozenset({"fault", "agent_fault"})

_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "user": (("text",), ()),
    "agent": (("text",), ()),
    "tool_call": (("call", "name", "arguments"), ()),
    "tool_result": (("call", "value"), ("name",)),
    "tool_error": (("call", "message"), ("name", "type")),
    "external": (("name", "arguments"), ("result", "error", "fault", "happened", "recorded")),
}
_EVERYWHERE = ("kind", "at", "turn", "xid")


class Degraded(RedteamError):
    """A conversation is not there as it was, so nothing of it is imported.

    Attributes:
        conversation: its name, where it has one.
        missing: what is missing, or cannot be put in order.
    """

    def __init__(self, missing: str, *, conversation: str = "") -> None:
        super().__init__(f"{conversation}: {missing}" if conversation else missing)
        self.conversation = conversation
        self.missing = missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One whole conversation.

    Attributes:
        name: names it in messages: the id that the source gives it, or a number.
        events: its steps in order, with `turn` from 1; `at` only where the source has times.
        left_out: what of the source is no step, by kind, and how often.
        persona: the key of the row that the source says it belongs to, or None.
        case: the case of a suite that the source says it is of, or None.
    """

    name: str
    events: tuple[Event, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    persona: str | None = None
    case: str | None = None

    @property
    def lines(self) -> list[str]:
        """What the user said, line by line."""
        return [str(event["text"]) for event in self.events if event["kind"] == "user"]

    @property
    def turns(self) -> int:
        """How many turns it has."""
        return len(self.lines)

    @property
    def began(self) -> datetime | None:
        """When it began, where the source says so."""
        at = self.events[0].get("at")
        return None if at is None else datetime.fromisoformat(at)

    @property
    def steps(self) -> tuple[tuple[Any, ...], ...]:
        """What happened, without when: two recordings of the same conversation have the same steps."""
        calls: dict[Any, int] = {}
        found: list[tuple[Any, ...]] = []
        for event in self.events:
            facts = {name: event[name] for name in event if name not in ("at", "turn", "xid")}
            if "call" in facts:
                facts["call"] = calls.setdefault(facts["call"], len(calls) + 1)
            found.append((event["turn"], json.dumps(facts, sort_keys=True)))
        return tuple(found)


def recorded(
    name: str,
    events: Iterable[Mapping[str, Any]],
    *,
    left_out: Mapping[str, int] | None = None,
    persona: str | None = None,
    case: str | None = None,
) -> Recorded:
    """Check that events are a whole conversation, and number its turns.

    Args:
        name: names it in messages.
        events: in order; `turn` may be missing, and so may `at`.
        left_out: what of the source is no step, by kind.
        persona: the key of the row that the source says it belongs to.
        case: the case that the source says it is of.

    Raises:
        Degraded: they are not; says what is missing.
    """
    try:
        found = _numbered([_step(event) for event in events])
    except Degraded as error:
        raise Degraded(error.missing, conversation=name) from None
    return Recorded(name=name, events=tuple(found), left_out=dict(left_out or {}), persona=persona, case=case)


def to_lines(recording: Recorded) -> str:
    """The recording as a file: JSON, what it is about, an event a line, and an `end`."""
    about = {"kind": "about", "name": recording.name, "persona": recording.persona, "case": recording.case}
    end = {"kind": "end", "turn": recording.turns}
    lines = ({name: value for name, value in about.items() if value is not None}, *recording.events, end)
    return "".join(json_text(line) + "\n" for line in lines)


def parse_lines(name: str, text: str) -> Recorded:
    """Read a recording, or the trace of a conversation that a launch held.

    Raises:
        Degraded: it is not whole: no `end`, a fault in it, a line that is none, or steps that do not fit.
    """
    events: list[Mapping[str, Any]] = []
    left_out: Counter[str] = Counter()
    about: dict[str, str] = {}
    ended = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            raise Degraded(f"line {number} is no JSON; was the file cut?", conversation=name) from None
        kind = event.get("kind") if isinstance(event, dict) else None
        if ended and kind not in _TELEMETRY:
            raise Degraded(f"line {number} stands after the end", conversation=name)
        if kind == "about" and number == 1:
            about = _about(event)
            name = about.pop("name", name)
        elif kind == "end":
            ended = True
        elif kind in _FAULTS:
            raise Degraded(
                f"line {number}: a fault ended the conversation ({event.get('cause') or 'unknown'}), so it "
                "has no end of its own",
                conversation=name,
            )
        elif kind in _TELEMETRY:
            left_out[kind] += 1
        elif kind in STEPS:
            events.append(event)
        else:
            raise Degraded(
                f"line {number}: {kind!r} is no kind of event; there are {', '.join((*STEPS, 'end'))}",
                conversation=name,
            )
    if not ended:
        raise Degraded(
            "the last line is no `end`, so it is not known whether more was said", conversation=name
        )
    return recorded(name, events, left_out=left_out, **about)


def _about(line: Mapping[str, Any]) -> dict[str, str]:
    said = {name: value for name, value in line.items() if name != "kind" and value is not None}
    for name, value in said.items():
        if name not in ("name", "persona", "case") or not isinstance(value, str):
            raise Degraded(f"`about` has name, persona and case, each a text; not {name!r}: {value!r}")
    return said


def _step(event: Mapping[str, Any]) -> Event:
    """The event with the fields that a step has, each of its type."""
    kind = event["kind"]
    needed, possible = _FIELDS[kind]
    for name in needed:
        if name not in event:
            raise Degraded(f"a {kind} has no {name!r}")
    for name in event:
        if name not in (*needed, *possible, *_EVERYWHERE):
            raise Degraded(f"a {kind} has {name!r}, which is no part of it")
    for name in ("text", "call", "name", "message", "at"):
        if name in event and not isinstance(event[name], str):
            raise Degraded(f"the {name!r} of a {kind} is no text")
    if "arguments" in event and not isinstance(event["arguments"], dict):
        raise Degraded(f"the arguments of {event.get('name')} are no object")
    if kind in ("user", "agent") and not event["text"].strip():
        raise Degraded(f"a line of the {kind} is empty")
    if kind == "external" and ("result" in event) == ("error" in event):
        raise Degraded(f"external {event['name']} has neither or both of result and error")
    # A transaction id is of the database that it ran on, and not of the fork that a replay runs on; whether
    # an answer had been recorded before says nothing of what happened.
    return {name: value for name, value in event.items() if name not in ("xid", "recorded")}


def _numbered(events: Sequence[Event]) -> list[Event]:
    """The events with their turns: the user's line, what the agent did, and its reply."""
    if not events:
        raise Degraded("there is no line in it")
    found: list[Event] = []
    names: dict[str, str] = {}
    open_: dict[str, str] = {}
    turn, speaks, last = 0, False, None
    for event in events:
        kind = event["kind"]
        if kind == "user":
            if speaks:
                raise Degraded(f"turn {turn}: the user speaks again before the agent has replied")
            turn, speaks = turn + 1, True
        elif turn == 0:
            raise Degraded(f"it begins with {_article(kind)} and not with a line of the user")
        elif not speaks:
            raise Degraded(f"turn {turn}: {_article(kind)} stands after the agent's reply")
        match kind:
            case "tool_call":
                if event["call"] in names:
                    raise Degraded(f"turn {turn}: two calls have the id {event['call']!r}")
                names[event["call"]] = open_[event["call"]] = event["name"]
            case "tool_result" | "tool_error":
                name = open_.pop(event["call"], None)
                if name is None or event.get("name", name) != name:
                    raise Degraded(f"turn {turn}: an answer to {event['call']!r}, which is no open call")
                event = {**event, "name": name}
                if kind == "tool_error":
                    event.setdefault("type", "error")
            case "agent":
                if open_:
                    raise Degraded(f"turn {turn}: {', '.join(open_.values())} was called and has no answer")
                speaks = False
        if event.get("turn", turn) != turn:
            raise Degraded(f"turn {event['turn']} stands where turn {turn} must be: out of order, or a gap")
        last = _later(event, last, turn)
        found.append({**event, "turn": turn})
    if speaks:
        raise Degraded(f"turn {turn}: the agent's reply is missing; the conversation is cut off there")
    if any("at" in event for event in found) and not all("at" in event for event in found):
        raise Degraded("some events have a time and some have none")
    return found


def _later(event: Event, last: datetime | None, turn: int) -> datetime | None:
    if "at" not in event:
        return last
    try:
        at = datetime.fromisoformat(event["at"])
    except ValueError:
        raise Degraded(f"turn {turn}: {event['at']!r} is no time") from None
    if at.tzinfo is None:
        raise Degraded(f"turn {turn}: {event['at']!r} has no time zone")
    if last is not None and at < last:
        raise Degraded(f"turn {turn}: {_article(event['kind'])} stands after what was later")
    return at


def _article(kind: str) -> str:
    return f"a{'n' if kind[0] in 'ae' else ''} {kind}"
