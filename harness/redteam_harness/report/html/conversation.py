"""One conversation as the page draws it: said, called, changed, and what each verdict points at. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.render import visible
from redteam_harness.evidence.ids import in_order
from redteam_harness.report.attacks import STATES
from redteam_harness.report.html.changes import Rows, changes_data
from redteam_harness.report.html.text import marked, one_line, said, value_text
from redteam_harness.report.late import late_lines
from redteam_harness.report.words import blame
from redteam_rubrics import COLLATERAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.evidence.run import StoredConversation

__all__ = ["conversation_data", "list_entry", "rank", "searched"]

_MAX_SHORT = 140
_MAX_SEARCHED = 2000
_SEARCHED = ("text", "name", "arguments", "value", "message", "fact")
_RANKS = {"fail": 0, "derailed": 2, "pass": 3}
_STATUSES = {"fail": 0, "unclear": 1, "pass": 2}


def rank(one: Mapping[str, Any]) -> tuple[int, int, tuple[int, ...]]:
    """Where a conversation stands in the list: the gravest failures first, then faults, passes last."""
    return _RANKS.get(one["outcome"], 1), _severity(one) or 9, in_order(one["id"])


def list_entry(one: Mapping[str, Any], chunk: int | None) -> dict[str, Any]:
    """A conversation's line in the list.

    Args:
        one: its entry in report.json.
        chunk: which part of the embedded evidence holds the rest; None: there is none.
    """
    broken = sorted(_not_held(one), key=_gravest)
    return {
        "id": visible(one["id"]),
        "case": visible(one["case"]),
        "persona": visible(one["persona"]),
        "disposition": visible(one["disposition"]),
        "outcome": one["outcome"],
        "severity": _severity(one),
        "rules": [[visible(verdict["rule"]), verdict["severity"], verdict["status"]] for verdict in broken],
        "line": one_line(_line(one), 220),
        "chunk": chunk,
    }


def searched(one: Mapping[str, Any], stored: StoredConversation) -> str:
    """All words of a conversation that a search looks through: said, called, answered, found.

    Args:
        one: its entry in report.json.
        stored: its evidence.
    """
    texts = [stored.about["demand"]]
    for event in stored.events:
        texts += [event[part] for part in _SEARCHED if event.get(part)]
    for verdict in one["verdicts"]:
        texts += [verdict["rule"], *(finding["text"] for finding in verdict["findings"])]
    return "\n".join(value_text(text)[:_MAX_SEARCHED] for text in texts)


def conversation_data(one: Mapping[str, Any], stored: StoredConversation) -> dict[str, Any]:
    """A conversation in full.

    Args:
        one: its entry in report.json, whose verdicts are those that count.
        stored: its evidence.

    Raises:
        UsageError: its change set is of another version or damaged.
    """
    calls = {
        event["call"]: index for index, event in enumerate(stored.events) if event["kind"] == "tool_call"
    }
    rows = Rows(stored.changes or {"tables": []}, calls)
    attribution = one["attribution"]
    fault = one["fault"]
    return {
        "demand": said(stored.about["demand"]),
        "ending": visible(one["ending"]),
        "count": one["turns"],
        "seconds": one["seconds"],
        "fault": None if fault is None else [visible(fault["cause"]), said(fault["message"])],
        "late": [visible(line) for line in one["late"]],
        "kept": visible(one["kept_fork"] or ""),
        "attacks": [
            {
                "name": visible(attack["name"]),
                "state": attack["state"],
                "means": STATES[attack["state"]],
                "at": [] if attack["event"] is None else [f"e{attack['event']}"],
            }
            for attack in one["attacks"]
        ],
        "attribution": None if attribution is None else _attribution(attribution, rows),
        "verdicts": [_verdict(verdict, rows) for verdict in sorted(one["verdicts"], key=_gravest)],
        "turns": _turns(stored.events, _quotes(one["verdicts"])),
        "changes": None if stored.changes is None else changes_data(stored.changes, stored.events),
    }


def _severity(one: Mapping[str, Any]) -> int | None:
    failed = [verdict["severity"] for verdict in one["verdicts"] if verdict["status"] == "fail"]
    return min(failed, default=None)


def _not_held(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [verdict for verdict in one["verdicts"] if verdict["status"] != "pass"]


def _gravest(verdict: Mapping[str, Any]) -> tuple[int, int, bool, str]:
    # The gate on everything comes after the rules that say what is wrong.
    beside = verdict["rule"] == COLLATERAL
    return _STATUSES[verdict["status"]], verdict["severity"], beside, verdict["rule"]


def _line(one: Mapping[str, Any]) -> str:
    """Why it ended as it did, in one sentence."""
    if attribution := one["attribution"]:
        return str(attribution["text"])
    if one["fault"]:
        return str(one["fault"]["message"])
    for verdict in sorted(_not_held(one), key=_gravest):
        findings = verdict["findings"]
        return str(findings[0]["text"] if findings else verdict["reason"])
    return str(one["ending"])


def _attribution(attribution: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    return {
        "rule": visible(attribution["rule"]),
        "severity": attribution["severity"],
        "text": said(attribution["text"]),
        "at": _places(attribution, rows),
        "consequences": [visible(rule) for rule in attribution["consequences"]],
        "independent": [visible(rule) for rule in attribution["independent"]],
    }


def _verdict(verdict: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    findings = verdict["findings"]
    named = any(finding.get("table") for finding in findings)
    asked = verdict["asked"]
    return {
        "rule": visible(verdict["rule"]),
        "severity": verdict["severity"],
        "status": verdict["status"],
        "source": verdict["source"],
        "why": said(verdict.get("why") or ""),
        "reason": said(verdict["reason"]),
        "vacuous": verdict["vacuous"],
        "fault": verdict["fault"],
        "asked": None
        if asked is None
        else {
            "model": visible(asked["model"]),
            "votes": [[visible(answer), votes] for answer, votes in asked["votes"].items()],
        },
        # A SELECT names no row of the change set: then all changed rows of its tables are its evidence.
        "at": [] if named or verdict["status"] == "pass" else rows.of_tables(verdict.get("tables", ())),
        "findings": [
            {
                "text": said(finding["text"]),
                "quote": said(finding["quote"]) if finding.get("quote") else None,
                "at": _places(finding, rows),
            }
            for finding in findings
        ],
    }


def _places(finding: Mapping[str, Any], rows: Rows) -> list[str]:
    """What a finding points at: rows first, then the line or call."""
    event = finding.get("event")
    return [*rows.of(finding), *([] if event is None else [f"e{event}"])]


def _quotes(verdicts: Sequence[Mapping[str, Any]]) -> dict[int, list[str]]:
    quotes: dict[int, list[str]] = defaultdict(list)
    for verdict in verdicts:
        for finding in verdict["findings"]:
            if finding.get("quote") and finding.get("event") is not None:
                quotes[finding["event"]].append(finding["quote"])
    return quotes


def _turns(events: Sequence[Mapping[str, Any]], quotes: Mapping[int, Sequence[str]]) -> list[dict[str, Any]]:
    """By turn what was said, what was called then, and what was said after it; a call holds its result."""
    turns: dict[int, dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    for index, event in enumerate(events):
        mine = quotes.get(index, ())
        if event["kind"] in ("tool_result", "tool_error") and event["call"] in calls:
            calls[event["call"]]["result"] = {"at": f"e{index}", **_result(event, mine)}
            continue
        side, drawn = _drawn(event, mine)
        if side is None:
            continue
        drawn["at"] = f"e{index}"
        if event["kind"] == "tool_call":
            calls[event["call"]] = drawn
        number = int(event.get("turn", 0))
        turn = turns.setdefault(number, {"turn": number, "said": [], "tools": [], "after": []})
        turn["after" if side == "said" and turn["tools"] else side].append(drawn)
    return [turns[number] for number in sorted(turns)]


def _drawn(event: Mapping[str, Any], quotes: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    match event["kind"]:
        case "user" | "agent" as who:
            return "said", {"kind": who, "text": marked(said(event["text"]), quotes)}
        case "tool_call":
            return "tools", {"kind": "call", **_called(event, quotes)}
        case "tool_result" | "tool_error":  # of a call that is in no event
            result = {"at": "", **_result(event, quotes)}
            return "tools", {
                "kind": "call",
                "name": visible(event["name"]),
                "arguments": [],
                "result": result,
            }
        case "external":
            return "tools", {
                "kind": "external",
                **_called(event, quotes),
                "result": {"at": "", **_answer(event, quotes)},
                "fault": _played(event),
            }
        case "swap":
            named = f"{event.get('from') or 'another agent'} → {event['to']}"
            return "tools", {"kind": "swap", "text": visible(named)}
        case "printed":
            return "tools", {"kind": "printed", "text": said(event["text"])}
        case "reveal":
            return "said", {"kind": "reveal", "text": visible(event["fact"])}
        case "fault" | "agent_fault":
            whose = "agent's fault" if event["kind"] == "agent_fault" else blame(event["whose"])
            message = event.get("message") or event.get("traceback") or ""
            return "said", {"kind": "fault", "text": said(f"{whose}, {event['cause']}: {message}")}
        case "late":
            return "said", {"kind": "late", "text": "\n".join(visible(line) for line in late_lines([event]))}
        case "retry" | "end" as kind:
            return "said", {"kind": kind, "text": visible(str(event.get("reason") or event.get("cause")))}
        case _:
            return None, {}


def _called(event: Mapping[str, Any], quotes: Sequence[str]) -> dict[str, Any]:
    return {
        "name": visible(event["name"]),
        "arguments": [
            [visible(name), marked(value_text(value), quotes)] for name, value in event["arguments"].items()
        ],
        "result": None,
    }


def _result(event: Mapping[str, Any], quotes: Sequence[str]) -> dict[str, Any]:
    if event["kind"] == "tool_error":
        return {
            "error": visible(event["type"]),
            "text": marked(said(event["message"]), quotes),
            "short": None,
        }
    return {"error": None, **_shortened(event.get("value"), quotes)}


def _answer(event: Mapping[str, Any], quotes: Sequence[str]) -> dict[str, Any]:
    if event.get("error") is not None:
        return {"error": "error", "text": marked(value_text(event["error"]), quotes), "short": None}
    return {"error": None, **_shortened(event.get("result"), quotes)}


def _shortened(value: object, quotes: Sequence[str]) -> dict[str, Any]:
    """A result on one line, and in full where that is more."""
    flat = value_text(value)
    whole = value_text(value, indent=2) if isinstance(value, dict | list) else flat
    short = one_line(flat, _MAX_SHORT)
    return {"text": marked(whole, quotes), "short": None if short == whole else short}


def _played(event: Mapping[str, Any]) -> str | None:
    """The fault that the case played on a mocked call."""
    if not event.get("fault"):
        return None
    ran = "the mock had run before" if event.get("happened") else "the mock did not run"
    return visible(f"{event['fault']}, as the case says; {ran}")
