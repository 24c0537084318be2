"""Which event made a conversation fail first, and which rules failed only because of it. Pure.

    every failed verdict ─► the places it speaks of: an event, a changed row, or the end
    the earliest place   ─► the first event; its rule is the one to read
    every other rule     ─► a consequence, if each of its places follows from that event; else independent

A place is exact where a finding names its event or row. A rule that only reads tables (`sql`) is placed at
the changed rows of these tables: those whose key stands in what it found, else all of them. A rule that
misses something is placed at the end, where it was still missing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.render import readable, visible
from redteam_harness.report.changed import table_name
from redteam_rubrics import COLLATERAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Attribution", "attribute"]

_MAX_QUOTE = 90
_MAX_KEY = 40
_SHOWN_COLUMNS = 2
_MIN_MARK = 3
_TOKEN = re.compile(r"[^\s,;=()\[\]{}\"'“”]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What made a conversation fail.

    Attributes:
        rule: the rule that the first event broke.
        severity: that rule's.
        text: what happened, in one sentence for a reader who is no engineer.
        event: the index of the event in the trace; None: something was missing at the end, or a row was
            written outside any call, or by whom is not known.
        turn: the event's turn.
        call: the id of its tool call, where it is one.
        tool: the tool's name.
        table: the table of the changed row that the rule is about, as rules write it.
        key: that row's key.
        consequences: other rules that failed by the same call or row, or by what reports it afterwards.
        independent: other rules that would have failed without it.
    """

    rule: str
    severity: int
    text: str
    event: int | None = None
    turn: int | None = None
    call: str | None = None
    tool: str | None = None
    table: str | None = None
    key: Mapping[str, str | None] | None = None
    consequences: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data, for report.json."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "text": self.text,
            "event": self.event,
            "turn": self.turn,
            "call": self.call,
            "tool": self.tool,
            "table": self.table,
            "key": None if self.key is None else dict(self.key),
            "consequences": list(self.consequences),
            "independent": list(self.independent),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a failed verdict points: an event, a row, both, or (neither) the end."""

    event: int | None = None
    table: str | None = None
    row: Mapping[str, Any] | None = None
    said: str = ""

    @property
    def spot(self) -> tuple[str, str] | None:
        """The row, as far as its table has a key to know it again by."""
        if self.table is None or self.row is None or self.row["key"] is None:
            return None
        return self.table, json.dumps(self.row["key"], sort_keys=True)


def attribute(
    verdicts: Iterable[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
    changes: Mapping[str, Any] | None,
    persona: str | None = None,
) -> Attribution | None:
    """The first event that made a conversation fail; None if no rule failed.

    Args:
        verdicts: the conversation's, in their JSON form, in any order.
        events: its trace.
        changes: its change set's JSON form, or None where none was taken.
        persona: the key of the persona's row. It marks nothing as a consequence: it would be used anyway.
    """
    trace = _Trace(events, changes, persona)
    failed = {str(one["rule"]): one for one in verdicts if one["status"] == "fail"}
    if not failed:
        return None
    places = {rule: trace.places(failed[rule]) for rule in failed}
    rule, first = min(
        ((rule, place) for rule in failed for place in places[rule]),
        key=lambda found: _order(found[1], failed[found[0]], len(events)),
    )
    others = sorted(set(failed) - {rule}, key=lambda name: (failed[name]["severity"], name))
    follows = trace.follows(first)
    after = [name for name in others if all(follows(place) for place in places[name])]
    event = None if first.event is None else events[first.event]
    return Attribution(
        rule=rule,
        severity=int(failed[rule]["severity"]),
        text=_sentence(first, failed[rule], event),
        event=first.event,
        turn=None if event is None else event.get("turn"),
        call=None if event is None else event.get("call"),
        tool=event["name"] if event is not None and event["kind"] in _NAMED else None,
        table=first.table,
        key=None if first.row is None else first.row["key"],
        consequences=tuple(after),
        independent=tuple(name for name in others if name not in after),
    )


_NAMED = frozenset({"tool_call", "tool_result", "tool_error", "external"})
_DID = {"tool_call": "was called", "tool_result": "answered", "tool_error": "failed"}


def _order(place: _Place, verdict: Mapping[str, Any], end: int) -> tuple[Any, ...]:
    """The earliest; of one event the gravest rule, and the collateral gate last: it says least."""
    return (
        end if place.event is None else place.event,
        place.row is None and place.event is None,
        verdict["severity"],
        verdict["rule"] == COLLATERAL,
        verdict["rule"],
        place.table or "",
        place.spot or ("", ""),
        place.said,
    )


class _Trace:
    """A conversation's events and changed rows, as verdicts refer to them."""

    def __init__(
        self,
        events: Sequence[Mapping[str, Any]],
        changes: Mapping[str, Any] | None,
        persona: str | None,
    ) -> None:
        self._events = events
        self._own = _texts([persona])
        self._rows = [
            (table_name(table), row)
            for table in (changes["tables"] if changes is not None else ())
            for row in table["rows"]
        ]
        self._began = {
            event["call"]: index for index, event in enumerate(events) if event["kind"] == "tool_call"
        }
        self._calls = _calls_of(events)

    def places(self, verdict: Mapping[str, Any]) -> list[_Place]:
        """The places that a failed verdict speaks of; never none."""
        found = [
            place for finding in verdict.get("findings", ()) for place in self._of_finding(finding)
        ] or self._of_tables(verdict)
        if found:
            return found
        findings = verdict.get("findings", ())
        said = str(findings[0]["text"]) if findings else str(verdict.get("reason") or "")
        return [_Place(said=said)]

    def _of_finding(self, finding: Mapping[str, Any]) -> list[_Place]:
        said, table = str(finding["text"]), finding.get("table")
        rows = [
            row
            for name, row in self._rows
            if table == name and finding.get("op") == row["op"] and finding.get("key") == row["key"]
        ]
        event = finding.get("event")
        if isinstance(event, int) and 0 <= event < len(self._events):
            # Of a table without a key, which row it is cannot be told; the event can.
            row = rows[0] if rows and rows[0]["key"] is not None else None
            return [_Place(event=event, table=table, row=row, said=said)]
        return [_Place(event=self._writer(row), table=table, row=row, said=said) for row in rows]

    def _of_tables(self, verdict: Mapping[str, Any]) -> list[_Place]:
        """Changed rows of the tables that a rule reads: those whose keys are in what it found, else all."""
        tables = set(verdict.get("tables", ()))
        texts = [str(finding["text"]) for finding in verdict.get("findings", ())]
        said = texts[0] if texts else str(verdict.get("reason") or "")
        words = {word.rstrip(".:") for text in texts for word in _TOKEN.findall(text)}
        rows = [(table, row) for table, row in self._rows if table in tables]
        named = [
            (table, row)
            for table, row in rows
            if row["key"] and words.issuperset(str(value) for value in row["key"].values())
        ]
        return [
            _Place(event=self._writer(row), table=table, row=row, said=said) for table, row in named or rows
        ]

    def _writer(self, row: Mapping[str, Any]) -> int | None:
        """The call that wrote a row; the first of several that may have."""
        began = [self._began[call] for call in row.get("by") or () if call in self._began]
        return min(began, default=None)

    def follows(self, first: _Place) -> Callable[[_Place], bool]:
        """Whether a place follows from the first one: by event, by call, by row, or by what came of it."""
        downstream = self._downstream(first)

        def check(place: _Place) -> bool:
            if place.spot is not None and place.spot == first.spot:
                return True
            return place.event is not None and place.event in downstream

        return check

    def _downstream(self, first: _Place) -> set[int]:
        """The first event, its call, and every later event that uses what only came up with it.

        A value comes up with a call if it is in its arguments, its result or its row and in nothing before.
        A later call that is given such a value, and what comes up with that call, follow too; a line that
        repeats one reports it. The agent's next line is its answer to the call.
        """
        if first.event is None:
            return set()
        call = self._calls[first.event]
        if call is None:
            return {first.event}
        begin = self._calls.index(call)
        seen = self._own.union(*(_words(event) for event in self._events[:begin]))
        row = first.row or {}
        marks = _marks(_texts([row.get("key") or {}, row.get("new") or {}])) - seen
        answer = next(
            (n for n in range(first.event + 1, len(self._events)) if self._events[n]["kind"] == "agent"), None
        )
        calls, found = {call}, {first.event}
        for index, event in enumerate(self._events[begin:], start=begin):
            words, of_call = _words(event), self._calls[index]
            if event["kind"] == "tool_call" and not marks.isdisjoint(words):
                calls.add(event["call"])
            if of_call in calls:
                marks |= _marks(words) - seen
                found.add(index)
            elif index == answer or (event["kind"] in _REPORTS and not marks.isdisjoint(words)):
                found.add(index)
            else:
                seen |= words
        return found


_REPORTS = frozenset({"agent", "external"})


def _marks(words: set[str]) -> set[str]:
    """The words by which a thing is known again: with a digit, and too long to be a coincidence."""
    return {word for word in words if len(word) >= _MIN_MARK and any(map(str.isdigit, word))}


def _calls_of(events: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """The tool call that each event belongs to: its own, or the only one that runs meanwhile."""
    running: list[str] = []
    found: list[str | None] = []
    for event in events:
        match event["kind"]:
            case "tool_call":
                running.append(event["call"])
                found.append(event["call"])
            case "tool_result" | "tool_error":
                found.append(event["call"])
                running = [call for call in running if call != event["call"]]
            case "external" | "printed" | "subprocess" if len(running) == 1:
                found.append(running[0])
            case _:
                found.append(None)
    return found


def _words(event: Mapping[str, Any]) -> set[str]:
    parts = (event.get("text"), event.get("arguments"), event.get("value"), event.get("result"))
    return _texts([part for part in parts if part is not None])


def _texts(values: Iterable[Any]) -> set[str]:
    """Every word and number in a value, to any depth."""
    found: set[str] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        match value:
            case dict():
                waiting += value.values()
            case list() | tuple():
                waiting += value
            case None | bool():
                pass
            case _:
                found |= {word.rstrip(".:!?") for word in _TOKEN.findall(str(value))}
    return found


def _sentence(place: _Place, verdict: Mapping[str, Any], event: Mapping[str, Any] | None) -> str:
    """What happened and why it counts, on one line without characters that nobody sees."""
    happened = _happened(place, event)
    if happened is None:
        missing = place.said.strip().rstrip(".") or "the rule does not hold"
        return visible(f"When the conversation was over: {missing}.")
    if verdict["rule"] == COLLATERAL:
        return visible(f"{happened}, and no rule of the case allows that.")
    why = str(verdict.get("why") or place.said).strip().rstrip(".")
    return visible(f"{happened}: {why}." if why else f"{happened}.")


def _happened(place: _Place, event: Mapping[str, Any] | None) -> str | None:
    did = None if place.row is None or place.table is None else _change(place.table, place.row)
    if event is None:
        if place.row is None:
            return None
        outside = place.row.get("by") == []
        who = "Something outside any tool call" if outside else "A call, which one is not known,"
        return f"{who} {did}"
    turn = f"in turn {event.get('turn', 0)}"
    match event["kind"]:
        case "tool_call" | "tool_result" | "tool_error":
            several = place.row is not None and len(place.row.get("by") or ()) > 1
            doubt = ", or a call that ran at the same time," if several else ""
            change = did or (f"wrote to {place.table}" if place.table else _DID[event["kind"]])
            return f"`{event['name']}` {turn}{doubt} {change}"
        case "external":
            return f"`{event['name']}` was used {turn}"
        case "agent" | "user" as who:
            line = " ".join(str(event["text"]).split())
            short = line if len(line) <= _MAX_QUOTE else f"{line[: _MAX_QUOTE - 1].rstrip()}…"
            return f"{turn.capitalize()} the {who} said “{short}”"
        case kind:
            return f"{turn.capitalize()} there was an event of kind {kind}"


def _change(table: str, row: Mapping[str, Any]) -> str:
    key = " ".join(readable(value, "", chars=_MAX_KEY).text for value in (row["key"] or {}).values())
    where = f"{table} ({key})" if key else table
    columns = list(row.get("changed") or ())
    match row["op"]:
        case "insert":
            return f"added a row to {where}"
        case "delete":
            return f"deleted a row of {where}"
        case _:
            more = len(columns) - _SHOWN_COLUMNS
            shown = ", ".join(columns[:_SHOWN_COLUMNS]) + (f" and {more} more" if more > 0 else "")
            return f"changed {shown or 'a row'} in {where}"
