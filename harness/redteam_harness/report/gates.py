"""Whether a run is green, and if not, every reason why: the exit code follows from the reasons. Pure.

A reason is either the agent's (exit 1: what was measured is not what the suite asks for) or ours (exit 3:
there is not enough to go by). A gate that cannot be evaluated is red with a code of its own, never green.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redteam_harness.report.codes import AGENT, CODES, OURS
from redteam_harness.report.thresholds import GatesSpec, severities

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redteam_harness.report.summary import Summary
    from redteam_harness.report.thresholds import ShareAtMost

__all__ = ["Gate", "check_gates", "exit_code", "gates_of"]

_INTERRUPTED = 130
_DEFAULT = GatesSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate and what was measured.

    Attributes:
        gate: the key in suite.yaml: `pass_rate`, `rules.right-visit-kind`.
        measured: the figure, or None where there is none.
        limit: what it is compared with.
        code: why it is red; None: it is green.
        message: in words, with the figures; empty where it is green.
        rule: the rule that it is about, if it is about one.
    """

    gate: str
    measured: float | None
    limit: float | None
    code: str | None = None
    message: str = ""
    rule: str | None = None


def check_gates(summary: Summary, spec: GatesSpec, judge: Mapping[str, Any] | None = None) -> list[Gate]:
    """Every gate of a run, those of the agent first.

    Args:
        summary: what the run found.
        spec: what it must reach.
        judge: report.json's `judge`: which model judged which rules, and how it is calibrated.
    """
    return [
        *_failures(summary, spec),
        *_severity_1(summary, spec),
        *_rules(summary, spec),
        *_pass_rate(summary, spec),
        *_cost(summary, spec),
        *_judged(summary, spec),
        *_without_verdict(summary, spec),
        *_unclear(summary, spec),
        *_calibration(spec, judge),
    ]


def gates_of(
    summary: Summary, spec: GatesSpec = _DEFAULT, judge: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`check_gates` as report.json has it: every reason to be red, and every gate that was checked."""
    gates = check_gates(summary, spec, judge)
    return {
        "fail_on": list(severities(spec.fail_on)),
        "reasons": [
            {
                "code": gate.code,
                "message": gate.message,
                "measured": gate.measured,
                "limit": gate.limit,
                "gate": gate.gate,
                "rule": gate.rule,
                "exit_code": CODES[gate.code].exit,
            }
            for gate in gates
            if gate.code is not None
        ],
        "checked": [
            {"gate": gate.gate, "measured": gate.measured, "limit": gate.limit, "red": gate.code is not None}
            for gate in gates
        ],
    }


def exit_code(gates: Mapping[str, Any], *, interrupted: bool) -> int:
    """130 interrupted, else 1 if a reason is the agent's, else 3 if one is ours, else 0.

    Args:
        gates: what `gates_of` gave.
        interrupted: whether a person stopped the launch: then what was measured is not what was planned.
    """
    if interrupted:
        return _INTERRUPTED
    exits = {reason["exit_code"] for reason in gates["reasons"]}
    return next((code for code in (AGENT, OURS) if code in exits), 0)


def _verdicts(summary: Summary) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in summary.finished:
        for verdict in one.verdicts:
            yield one.id, verdict


def _failed_in(summary: Summary) -> dict[tuple[int, str], int]:
    """In how many conversations each rule failed, by severity and name, the gravest first."""
    failed = Counter(
        (int(verdict["severity"]), str(verdict["rule"]))
        for _, verdict in _verdicts(summary)
        if verdict["status"] == "fail"
    )
    return dict(sorted(failed.items(), key=lambda item: (item[0][0], -item[1], item[0][1])))


def _judged_in(summary: Summary) -> Counter[str]:
    """In how many conversations each rule said pass or fail."""
    return Counter(
        str(verdict["rule"]) for _, verdict in _verdicts(summary) if verdict["status"] in ("pass", "fail")
    )


def _failures(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    judged, covered = _judged_in(summary), severities(spec.fail_on)
    red = False
    for (severity, rule), count in _failed_in(summary).items():
        if severity in covered:
            red = True
            yield Gate(
                gate="fail_on",
                measured=count,
                limit=0,
                code="rule-failed",
                message=f"{rule} (severity {severity}) failed in {count} of {_conversations(judged[rule])}",
                rule=rule,
            )
    if covered and not red:
        yield Gate(gate="fail_on", measured=0, limit=0)


def _severity_1(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    if spec.severity_1 is None:
        return
    found, most = summary.severity_1, spec.severity_1.max
    message = f"{_conversations(found)} broke a rule of severity 1; the limit is {most}"
    yield _at_most("severity_1", found, most, "severity-1-over", message)


def _rules(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    judged = _judged_in(summary)
    failed: Counter[str] = Counter()
    for (_, rule), count in _failed_in(summary).items():
        failed[rule] += count
    for rule, limit in sorted(spec.rules.items()):
        gate, most = f"rules.{rule}", limit.max_failed
        if not judged[rule]:
            message = f"{rule} was judged in no conversation; its limit is {most} failures"
            yield Gate(gate=gate, measured=None, limit=most, code="rule-unknown", message=message, rule=rule)
            continue
        message = f"{rule} failed in {failed[rule]} of {_conversations(judged[rule])}; the limit is {most}"
        yield replace(_at_most(gate, failed[rule], most, "rule-over", message), rule=rule)


def _pass_rate(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    if spec.pass_rate is None:
        return
    rate, least = summary.rate, spec.pass_rate.min
    if not rate.judged or rate.low is None or rate.high is None:
        message = f"there is no pass rate to compare with {_percent(least)}: no conversation was judged"
        yield Gate(gate="pass_rate", measured=None, limit=least, code="pass-rate-unknown", message=message)
        return
    share = rate.passed / rate.judged
    on_bound = spec.pass_rate.figure == "lower_bound"
    measured = rate.low if on_bound else share
    what = "the pass rate's lower bound" if on_bound else "the pass rate"
    found = (
        f"{what} is {_percent(measured)}, and {_percent(least)} is asked for: {rate.passed} of {rate.judged} "
        f"passed, {_percent(share)} (95 % interval {_percent(rate.low)} to {_percent(rate.high)})"
    )
    red = measured < least
    yield Gate(
        gate="pass_rate",
        measured=measured,
        limit=least,
        code="pass-rate-low" if red else None,
        message=found if red else "",
    )


def _cost(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    if spec.cost is None:
        return
    most = spec.cost.max_usd
    unpriced = sorted({row.model for row in summary.usage if row.unpriced})
    spent = sum(row.usd for row in summary.usage)
    if spent > most:
        message = f"models cost ${spent:.2f}; the limit is ${most:.2f}"
        yield Gate(gate="cost", measured=round(spent, 6), limit=most, code="cost-over", message=message)
    elif unpriced:
        message = (
            f"what the run cost is not known: {', '.join(unpriced)} has no price; give it in models.prices"
        )
        yield Gate(gate="cost", measured=None, limit=most, code="cost-unknown", message=message)
    else:
        yield Gate(gate="cost", measured=round(spent, 6), limit=most)


def _judged(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    judged = summary.rate.judged
    if not judged:
        message = f"no conversation of {summary.planned} planned has a verdict"
        yield Gate(gate="judged", measured=0, limit=1, code="nothing-judged", message=message)
    if spec.min_judged is not None:
        red = judged < spec.min_judged
        message = f"{_conversations(judged)} {_have(judged)} a verdict; the least is {spec.min_judged}"
        yield Gate(
            gate="min_judged",
            measured=judged,
            limit=spec.min_judged,
            code="too-few-judged" if red else None,
            message=message if red else "",
        )


def _without_verdict(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    by_name = {
        name: count for name, count in sorted(summary.outcomes.items()) if name not in ("pass", "fail")
    }
    if summary.unfinished:
        by_name["not held"] = summary.unfinished
    count = sum(by_name.values())
    names = ", ".join(f"{number} {name}" for name, number in by_name.items() if number)
    yield _bounded(
        "faults",
        count,
        summary.planned,
        spec.faults,
        "without-verdict",
        f"{count} of {_planned(summary.planned)} {_have(count)} no verdict: {names}",
    )


def _unclear(summary: Summary, spec: GatesSpec) -> Iterator[Gate]:
    if spec.unclear is None:
        return
    statuses = [verdict["status"] for _, verdict in _verdicts(summary)]
    count = statuses.count("unclear")
    message = f"{count} of {len(statuses)} verdicts {'is' if count == 1 else 'are'} unclear"
    yield _bounded("unclear", count, len(statuses), spec.unclear, "unclear-over", message)


def _calibration(spec: GatesSpec, judge: Mapping[str, Any] | None) -> Iterator[Gate]:
    """A gate for each rule that a model judged; none where no model judged anything."""
    if spec.calibration is None or judge is None:
        return
    for entry in judge["rules"]:
        rule = str(entry["rule"])
        for gate in _calibrated(spec, rule, entry.get("calibration"), bool(entry.get("stale"))):
            yield replace(gate, rule=rule)


def _calibrated(
    spec: GatesSpec, rule: str, calibration: Mapping[str, Any] | None, stale: bool
) -> Iterator[Gate]:
    wanted, gate = spec.calibration, f"calibration.{rule}"
    assert wanted is not None
    labels = 0 if calibration is None else int(calibration["n"])
    if stale:
        message = f"the calibration of {rule} is of another model or prompt than those that judged"
        yield Gate(gate=gate, measured=None, limit=None, code="judge-stale", message=message)
        return
    if calibration is None or labels < wanted.min_labels:
        message = f"{rule} has {labels} labels of people for its judge; the least is {wanted.min_labels}"
        yield Gate(
            gate=gate, measured=labels, limit=wanted.min_labels, code="judge-uncalibrated", message=message
        )
        return
    interval, kappa = calibration["agreement"]["interval"], calibration["kappa"]
    low = interval and interval["low"]
    figures: list[tuple[str, float | None, float | None, bool]] = [
        ("the agreement's lower bound", low, wanted.min_agreement, True),
        ("Cohen's kappa", kappa and kappa["value"], wanted.min_kappa, True),
        ("the number of false passes", calibration["false_passes"], wanted.max_false_passes, False),
    ]
    for what, measured, limit, least in figures:
        if limit is None:
            continue
        if measured is None:
            red, said = True, f"{what} of {rule} is not defined; {limit} is asked for"
        else:
            red = measured < limit if least else measured > limit
            said = (
                f"{what} of {rule} is {measured:.2f}; at {'least' if least else 'most'} {limit} is asked for"
            )
        yield Gate(
            gate=gate,
            measured=measured,
            limit=limit,
            code="judge-disagrees" if red else None,
            message=said if red else "",
        )


def _at_most(gate: str, measured: int, most: int, code: str, message: str) -> Gate:
    red = measured > most
    return Gate(
        gate=gate,
        measured=measured,
        limit=most,
        code=code if red else None,
        message=message if red else "",
    )


def _bounded(gate: str, count: int, of: int, limit: ShareAtMost, code: str, message: str) -> Gate:
    """A count that is compared itself, or as a share of all."""
    if limit.max is not None:
        return _at_most(gate, count, limit.max, code, f"{message}; the limit is {limit.max}")
    assert limit.max_share is not None
    share = count / of if of else 0.0
    red = share > limit.max_share
    return Gate(
        gate=gate,
        measured=share,
        limit=limit.max_share,
        code=code if red else None,
        message=f"{message}; the limit is {_percent(limit.max_share)}" if red else "",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _conversations(count: int) -> str:
    return "1 conversation" if count == 1 else f"{count} conversations"


def _planned(count: int) -> str:
    return "1 planned conversation" if count == 1 else f"{count} planned conversations"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"
