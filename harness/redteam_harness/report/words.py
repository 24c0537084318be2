"""Sentences and lines that several renderings of a report share, so that they say the same. Plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.registers.people import fidelity_lines
from redteam_harness.report.gates import gates_of
from redteam_harness.report.isolation import attestation_lines
from redteam_harness.report.mocks import mock_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.report.summary import Summary
    from redteam_rubrics.statistics import PassHatK

__all__ = [
    "blame",
    "checked_gates",
    "exit_line",
    "fault_lines",
    "judge_lines",
    "not_held_line",
    "plural",
    "reason_lines",
    "reliability_lines",
    "world_lines",
]

_RULE_FAILED = "rule-failed"


def blame(whose: str) -> str:
    """Whose fault ended a conversation, in a word; a replay that left its recording is nobody's."""
    return "derailed" if whose == "replay" else f"{whose}-fault"


def exit_line(summary: Summary) -> str:
    """The exit code and why, in words."""
    lost = summary.faults + summary.unfinished + summary.outcomes.get("derailed", 0)
    without = f"{plural(lost, 'planned conversation')} without a verdict"
    codes = list(dict.fromkeys(reason["code"] for reason in _gates(summary)["reasons"]))
    match summary.exit_code:
        case 130:
            return f"exit 130: interrupted; {plural(len(summary.finished), 'conversation')} finished and kept"
        case 1:
            if codes[0] == _RULE_FAILED:
                return "exit 1: the agent broke a rule" + (f"; {without}" if lost else "")
            return f"exit 1: the agent broke a gate: {', '.join(codes)}"
        case 3 if set(codes) <= {"without-verdict", "nothing-judged"}:
            derailed = "derailed" if summary.outcomes.get("derailed", 0) else "not held"
            return f"exit 3: {without}, " + ("by faults of ours" if summary.faults else derailed)
        case 3:
            return f"exit 3: there is not enough to go by: {', '.join(codes)}"
        case _ if summary.rate.judged == summary.rate.passed and not lost:
            return "exit 0: every conversation passed"
        case _:
            return "exit 0: every gate is green"


def world_lines(summary: Summary) -> list[tuple[str, list[str]]]:
    """How this world's walls and stand-ins are known, by what they are of: each a line or more."""
    head = "persona fidelity: "
    said = [line.removeprefix(head) for line in fidelity_lines(summary.persona_fidelity)]
    return [
        ("isolation", attestation_lines(summary.isolation)),
        ("mocks", mock_lines(summary.mocks)),
        ("personas", said),
    ]


def reason_lines(summary: Summary) -> list[tuple[str, str]]:
    """Every reason to be red, as code and message; rules that failed stand in one line, under their code."""
    reasons = _gates(summary)["reasons"]
    failed = [str(reason["rule"]) for reason in reasons if reason["code"] == _RULE_FAILED]
    lines = (
        [] if not failed else [(_RULE_FAILED, f"{plural(len(failed), 'rule')} failed: {', '.join(failed)}")]
    )
    return lines + [
        (str(reason["code"]), str(reason["message"])) for reason in reasons if reason["code"] != _RULE_FAILED
    ]


def checked_gates(summary: Summary) -> list[str]:
    """The gates that were checked, with the figure and its limit where both are known."""
    found = []
    for gate in _gates(summary)["checked"]:
        measured, limit = gate["measured"], gate["limit"]
        figures = "" if measured is None else f" {measured:.4g} (limit {limit:.4g})"
        found.append(f"{gate['gate']}{figures}")
    return found


def fault_lines(summary: Summary, most: int) -> list[str]:
    """What ended conversations that have no verdict: a line for each different message, `most` at most."""
    same: dict[str, list[Any]] = {}
    for one in summary.finished:
        if one.cause:
            same.setdefault(one.message, []).append(one)
    lines = []
    for message, those in list(same.items())[:most]:
        times = f" ({len(those)} conversations)" if len(those) > 1 else ""
        lines.append(f"{those[0].id} {those[0].outcome}, {those[0].cause}: {message}{times}")
    if len(same) > most:
        lines.append(f"... and {plural(len(same) - most, 'other fault')}")
    return lines


def not_held_line(summary: Summary, most: int) -> str:
    """Which planned conversations have no outcome, and why, if something stopped the launch."""
    more = len(summary.not_held) - most
    why = f": {summary.stopped}" if summary.stopped else ""
    return f"{' '.join(summary.not_held[:most])}{f' and {more} more' if more > 0 else ''}{why}"


def reliability_lines(summary: Summary) -> list[str]:
    """pass^k, where conversations were repeated."""
    return [_reliability(one) for one in summary.reliability]


def judge_lines(summary: Summary) -> list[str]:
    """How far each judge is known to agree with people; nothing where no model judged."""
    if summary.judge is None:
        return []
    return [
        str(summary.judge["model"]),
        *(f"{entry['rule']}: {_calibrated(entry)}" for entry in summary.judge["rules"]),
    ]


def plural(count: int, noun: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _reliability(one: PassHatK) -> str:
    of = f"pass^{one.k} of {plural(one.tasks, 'case')}"
    if one.share is None or one.interval is None:
        text = f"{of}: not defined, because of one fewer than {one.k} conversations count"
    else:
        low, high = 100 * one.interval.low, 100 * one.interval.high
        text = f"{of}: {100 * one.share:.0f} %  ({100 * one.confidence:g} % interval {low:.0f} to {high:.0f})"
    if not one.excluded:
        return text
    bounds = one.bounds
    between = (
        "" if bounds is None else f": {100 * bounds.if_all_failed:.0f} to {100 * bounds.if_all_passed:.0f} %"
    )
    return f"{text}; left out: {plural(one.excluded, 'conversation')}{between}"


def _calibrated(entry: Mapping[str, Any]) -> str:
    known = entry["calibration"]
    if known is None:
        return "not calibrated; label conversations (`redteam label`), and `redteam judge calibrate` compares"
    if entry["stale"]:
        return "the calibration is stale: of another model or prompt"
    agreed, kappa = known["agreement"], known["kappa"]
    if not agreed["n"]:
        return "calibrated, but no label could be compared"
    interval = agreed["interval"]
    return (
        f"agrees with people in {agreed['count']} of {agreed['n']} "
        f"(95 % interval {100 * interval['low']:.0f} to {100 * interval['high']:.0f}), kappa "
        f"{'undefined' if kappa is None else format(kappa['value'], '.2f')}, "
        f"false passes {known['false_passes']}, false fails {known['false_fails']}"
    )


def _gates(summary: Summary) -> Mapping[str, Any]:
    return summary.gates if summary.gates is not None else gates_of(summary)
