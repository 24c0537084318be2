"""What of the evidence a judge sees: numbered passages, each on one line. Pure.

What is shown is listed here by kind and key, so that what is not listed cannot be shown: not the persona's
row, demand, held-back facts or disposition, nor what the actor was refused, nor why it ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_rubrics.judge.fencing import shorten, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redteam_rubrics.evidence import ChangedRow, Evidence, TableChanges
    from redteam_rubrics.judge.spec import Part

__all__ = ["LIMITS", "Exhibit", "Exhibits", "show"]

_LONGEST = 6_000
_SHORT = 600
_ROWS = 100
_MOST = 160_000

LIMITS: Mapping[str, int] = {
    "longest passage": _LONGEST,
    "longest where all is too long": _SHORT,
    "rows of a table": _ROWS,
    "most of all": _MOST,
}
"""The bounds on what is shown, in characters and rows; they are part of what is asked."""

_NAMES: Mapping[Part, str] = {
    "transcript": "what was said",
    "calls": "tool calls and their results",
    "changes": "what changed in the database",
}
_CONVERSATION = "conversation"
_CHANGES = "changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """One passage of the evidence.

    Attributes:
        ref: what the judge calls it: `e12` for the event of index 12, `r3` for the third changed row.
        part: the part of the evidence that it belongs to.
        head: who or what it is.
        text: what is said in it, as it is; quotes are looked for here.
        event: the index of its event, or of the call that wrote the row, where that is known.
        table, row: the changed row that it is, if it is one.
    """

    ref: str
    part: Part
    head: str
    text: str
    event: int | None = None
    table: TableChanges | None = None
    row: ChangedRow | None = None

    def line(self, limit: int) -> tuple[str, int]:
        """As the judge sees it, and how many characters of it were left out."""
        head, _ = shorten(visible(self.head), _SHORT)
        text, left_out = shorten(visible(self.text), limit)
        return f"{self.ref} {head}: {text}", left_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibits:
    """The passages, and the lines that show them.

    Attributes:
        by_ref: the passages by their names.
        lines: of each part of the evidence, what is shown.
        hidden: parts that there are and that the rule does not show, in words.
        left_out: what was left out because it is too long, in words; "" where nothing was.
        too_long: how many characters there are where they are too many even so; 0 where they are not.
    """

    by_ref: Mapping[str, Exhibit]
    lines: Mapping[str, Sequence[str]]
    hidden: tuple[str, ...]
    left_out: str
    too_long: int


def show(evidence: Evidence, sees: Sequence[Part]) -> Exhibits:
    """The passages of a conversation that a rule shows to its judge.

    What is too long is shortened by this rule, and said to be: a passage keeps its first 4,500 and last
    1,500 characters; of a table 100 changed rows are shown; where all together is longer than 160,000
    characters, passages other than what was said keep 600. What is longer even then is not shown at all.
    """
    wanted = frozenset(sees)
    every = list(_events(evidence))
    events = [exhibit for exhibit in every if exhibit.part in wanted]
    rows, unshown = _rows(evidence) if "changes" in wanted else ([], [])
    there = {exhibit.part for exhibit in every}
    if evidence.changes.tables or evidence.changes.objects:
        there.add("changes")

    def drawn(limit_of: Callable[[Exhibit], int]) -> tuple[dict[str, list[str]], int, int]:
        parts: dict[str, list[str]] = {}
        shortened = characters = 0
        for name, exhibits in ((_CONVERSATION, events), (_CHANGES, rows)):
            lines = []
            for exhibit in exhibits:
                line, missing = exhibit.line(limit_of(exhibit))
                lines.append(line)
                shortened, characters = shortened + bool(missing), characters + missing
            parts[name] = lines
        return parts, shortened, characters

    lines, shortened, characters = drawn(lambda _: _LONGEST)
    if _length(lines) > _MOST:
        lines, shortened, characters = drawn(
            lambda exhibit: _LONGEST if exhibit.part == "transcript" else _SHORT
        )
    length = _length(lines)
    lines[_CHANGES] += unshown
    told = [f"{shortened} passages are shortened by {characters:,} characters"] if shortened else []
    told += ["not every changed row is shown"] if unshown else []
    if not wanted & {"transcript", "calls"}:
        del lines[_CONVERSATION]
    if "changes" not in wanted:
        del lines[_CHANGES]
    return Exhibits(
        by_ref={exhibit.ref: exhibit for exhibit in (*events, *rows)},
        lines={name: shown or ["(nothing)"] for name, shown in lines.items()},
        hidden=tuple(name for part, name in _NAMES.items() if part in there - wanted),
        left_out=" and ".join(told),
        too_long=length if length > _MOST else 0,
    )


def _length(lines: Mapping[str, Sequence[str]]) -> int:
    return sum(len(line) + 1 for shown in lines.values() for line in shown)


def _events(evidence: Evidence) -> Iterator[Exhibit]:
    names: dict[str, str] = {}
    part: Part
    for index, event in enumerate(evidence.events):
        match event["kind"]:
            case "user" | "agent" as who:
                part, head, text = "transcript", who, str(event["text"])
            case "tool_call":
                names[event["call"]] = event["name"]
                part, head, text = "calls", f"call of tool {event['name']}", _json(event["arguments"])
            case "tool_result":
                part, value = "calls", event.get("value")
                head = f"result of tool {event.get('name') or names.get(event['call'], '')}"
                text = value if isinstance(value, str) else _json(value)
            case "tool_error":
                part, head = "calls", f"error of tool {event.get('name') or names.get(event['call'], '')}"
                text = f"{event.get('type', '')}: {event.get('message', '')}"
            case "external":
                part, head = "calls", f"external call {event['name']}"
                answer = {name: event[name] for name in ("result", "error") if name in event}
                text = _json({"arguments": event["arguments"], **answer})
            case _:
                continue
        yield Exhibit(ref=f"e{index}", part=part, head=head, text=text, event=index)


def _rows(evidence: Evidence) -> tuple[list[Exhibit], list[str]]:
    """The changed rows and schema objects that are shown, and a line for those that are not."""
    exhibits: list[Exhibit] = []
    unshown: list[str] = []
    number = 0
    for table in evidence.changes.tables:
        for row in table.rows[:_ROWS]:
            number += 1
            exhibits.append(_row(evidence, table, row, number))
        more = len(table.rows[_ROWS:]) + table.omitted
        if more:
            unshown.append(f"⟨{more:,} more changed rows of {visible(table.name)} are not shown⟩")
        number += len(table.rows[_ROWS:])
    for place, change in enumerate(evidence.changes.objects, start=1):
        exhibits.append(
            Exhibit(
                ref=f"o{place}",
                part="changes",
                head=f"{change.op} of schema object",
                text=f"{change.kind} {change.name}",
            )
        )
    return exhibits, unshown


def _row(evidence: Evidence, table: TableChanges, row: ChangedRow, number: int) -> Exhibit:
    match row.op:
        case "insert":
            head, text = "row added to", _json(row.new)
        case "delete":
            head, text = "row deleted from", _json(row.old)
        case "update":
            old, new = row.old or {}, row.new or {}
            differing = {name: {"from": old.get(name), "to": new.get(name)} for name in row.changed}
            head, text = "row changed in", f"{_json(differing)} in the row that is now {_json(row.new)}"
    return Exhibit(
        ref=f"r{number}",
        part="changes",
        head=f"{head} {table.name}",
        text=text,
        event=evidence.writer(row.by),
        table=table,
        row=row,
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
