"""Whether a conversation still is the one that was recorded. Pure; docs/replay.md states the rules for users.

The recorded lines are only worth something while the agent does and says what they were said to. Two of the
three ways to leave the track are seen here: a tool call that the recording does not know, and a reply after
which the next recorded line is out of place. The third, a call of a mock without an answer, the SDK sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redteam_personas.leaks import says_value
from redteam_personas.questions import (
    asks_confirmation,
    asks_for,
    asks_question,
    offers_choice,
    offers_more,
    sentences,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.replaying.recording import Recording
    from redteam_personas import Script

__all__ = ["CAUSES", "Derail", "derail_of", "waits_for"]

Cause = Literal["tool-call", "mock-miss", "line", "not-recorded"]

CAUSES: Mapping[str, str] = {
    "tool-call": "a tool was called as the recording does not know it",
    "mock-miss": "a mock was asked for an answer that was not recorded",
    "line": "the next recorded line was out of place after what the agent said",
    "not-recorded": "the recorded conversation did not come to its end, so nothing could be followed",
}
"""Every reason why a conversation has no verdict in a replay; the last is no derail of the agent's."""

_YES, _CHOICE, _ANSWER = "a yes or no", "a choice", "an answer"


class Derail(NamedTuple):
    """Why a conversation is not the recorded one any more."""

    cause: Cause
    message: str


def derail_of(recording: Recording, script: Script, events: Sequence[Mapping[str, Any]]) -> Derail | None:
    """Why a conversation with these events has left its recording; None while it follows.

    Args:
        recording: what was recorded.
        script: what the persona plays by; says how facts are asked for.
        events: what happened so far; the last line in it is the agent's.
    """
    unknown = _unknown_call(recording.events, events)
    if unknown is not None:
        return Derail("tool-call", unknown)
    replies = [str(event["text"]) for event in events if event["kind"] == "agent"]
    turn = len(replies)
    if not 0 < turn <= len(recording.replies):
        return None
    following = recording.lines[turn].text if turn < len(recording.lines) else None
    why = _out_of_place(recording.replies[turn - 1], replies[-1], following, script)
    return None if why is None else Derail("line", why)


def waits_for(reply: str, asked_by: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """What a reply waits for: facts by name, a yes or no, a choice; or an answer of another kind.

    An offer of more help waits for nothing.

    Args:
        reply: the agent's line.
        asked_by: how each fact is asked for.
    """
    found = {name for name, phrases in asked_by.items() if asks_for(reply, phrases)}
    if asks_confirmation(reply):
        found.add(_YES)
    if offers_choice(reply):
        found.add(_CHOICE)
    if not found and any(asks_question(one) and not offers_more(one) for one in sentences(reply)):
        found.add(_ANSWER)
    return frozenset(found)


def _out_of_place(then: str, now: str, following: str | None, script: Script) -> str | None:
    """Why the next recorded line does not follow on a reply; or why its end does not, where there is none."""
    asked_by = {fact.name: fact.asked_by for fact in script.facts} | dict(script.missing)
    before, after = waits_for(then, asked_by), waits_for(now, asked_by)
    values = {fact.name: fact.value for fact in script.facts}
    told = {name for name in after & set(values) if following and says_value(following, values[name])}
    fresh = after - before - told
    what = "the recording ends here" if following is None else "the next recorded line does not give it"
    if facts := sorted(fresh & set(asked_by)):
        return f"the agent asks for {', '.join(facts)}, and {what}"
    if fresh and not before:
        return f"the agent waits for {', '.join(sorted(fresh))}, and {what}"
    if following is not None and before and not before & after and not told:
        return f"the next recorded line answers who asks for {', '.join(sorted(before))}; the agent does not"
    return None


def _unknown_call(recorded: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> str | None:
    """The first tool call that the recording does not know: name, and how its arguments differ."""
    known: dict[str, list[tuple[Any, frozenset[Any]]]] = {}
    for event, given in _calls(recorded):
        known.setdefault(str(event["name"]), []).append((event["arguments"], given))
    for event, given in _calls(events):
        name, arguments = str(event["name"]), event["arguments"]
        calls = known.get(name)
        if calls is None:
            return f"tool {name} was not called when it was recorded"
        if not any(_alike(arguments, then, given, given_then) for then, given_then in calls):
            differ = min((_differing(arguments, then) for then, _ in calls), key=len)
            return f"tool {name} was called with other arguments than were recorded: {', '.join(differ)}"
    return None


def _calls(events: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Mapping[str, Any], frozenset[Any]]]:
    """Each tool call, with the values that answers gave before it."""
    given: set[Any] = set()
    for event in events:
        if event["kind"] == "tool_call":
            yield event, frozenset(given)
        elif event["kind"] in ("tool_result", "external"):
            given.update(_leaves(event.get("value", event.get("result"))))


def _alike(now: Any, then: Any, given: frozenset[Any], given_then: frozenset[Any]) -> bool:
    """Whether two arguments are equal but for values that earlier answers gave, each in its own time."""
    if isinstance(now, dict) and isinstance(then, dict):
        return now.keys() == then.keys() and all(
            _alike(now[name], then[name], given, given_then) for name in now
        )
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(
            _alike(one, other, given, given_then) for one, other in zip(now, then, strict=True)
        )
    if _leaf(now) == _leaf(then):
        return True
    return _leaf(now) in given and _leaf(then) in given_then


def _differing(now: Any, then: Any) -> list[str]:
    if not isinstance(now, dict) or not isinstance(then, dict):
        return ["all of them"]
    return sorted(name for name in {*now, *then} if now.get(name) != then.get(name))


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield _leaf(value)


def _leaf(value: Any) -> Any:
    """A value that can be compared and kept in a set: 1 is not True, and an object is no leaf."""
    if isinstance(value, dict | list):
        return (type(value).__name__, id(value))
    return (isinstance(value, str), isinstance(value, bool), value)
