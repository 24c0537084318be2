"""The report's one model: what a launch found, computed from its finished conversations. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.report.attacks import attack_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.models.usage import Spent

__all__ = ["FAULTS", "Finished", "Outcome", "PassRate", "RuleCount", "Summary", "summarise"]

Outcome = Literal["pass", "fail", "sim-fault", "judge-fault", "infra-fault", "derailed"]

FAULTS = frozenset({"sim-fault", "judge-fault", "infra-fault"})
"""Outcomes that are ours: neither the agent's failure nor its success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One conversation that has an outcome.

    Attributes:
        id: the conversation.
        case: the case's id.
        persona: the key of the row that spoke.
        disposition: how it behaved.
        outcome: see `Outcome`.
        turns: how many it took.
        ending: how it ended, in words.
        cause: where the outcome is a fault: one word, and `message` says it in full.
        message: see `cause`.
        verdicts: the JSON form of every verdict.
        changes: the change set's JSON form, or None where none was taken.
        seconds: how long it took.
        kept: the fork's name, where it was kept.
        late: what was still going on when it was over, a sentence each.
        attacks: what became of each attack that waited in its data, from `attacks_of`.
        repetition: which time the same case, persona and disposition was held: 1, 2, ...
        attribution: the first event that made it fail and what followed from it, as JSON-like data; None:
            it did not fail, or nobody looked.
    """

    id: str
    case: str
    persona: str
    disposition: str
    outcome: Outcome
    turns: int
    ending: str
    cause: str = ""
    message: str = ""
    verdicts: Sequence[Mapping[str, Any]] = ()
    changes: Mapping[str, Any] | None = None
    seconds: float
    kept: str | None = None
    late: Sequence[str] = ()
    attacks: Sequence[Mapping[str, Any]] = ()
    repetition: int = 1
    attribution: Mapping[str, Any] | None = None

    @property
    def broken(self) -> list[Mapping[str, Any]]:
        """The verdicts that failed, the gravest first."""
        failed = [verdict for verdict in self.verdicts if verdict["status"] == "fail"]
        return sorted(failed, key=lambda verdict: (verdict["severity"], verdict["rule"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """Passed of those that have a verdict, with its 95 % Wilson interval; undefined where none has.

    Attributes:
        passed: how many passed.
        judged: how many have a verdict; faults are not among them.
        low, high: the interval's bounds as shares, or None where it is undefined.
    """

    passed: int
    judged: int
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """How often one rule failed, of the conversations that it judged."""

    rule: str
    severity: int
    failed: int
    judged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a launch found.

    Attributes:
        notice: the first line of every report: what the figures can and cannot speak of.
        suite: the suite's name.
        run: the run's id.
        planned: how many conversations were planned.
        finished: those with an outcome, in the plan's order.
        forks: how many forks were made.
        rate: the pass rate.
        severity_1: how many conversations broke a rule of severity 1; a count, never inside a rate.
        rules: every rule that failed, the gravest and most frequent first.
        outcomes: how many conversations had each outcome.
        interrupted: whether a person stopped the launch.
        seconds: from the first conversation's start to the last one's end, in the last launch of the run.
        not_held: ids of planned conversations without an outcome.
        stopped: why no more of them were started, where something of ours stopped that.
        usage: what models used in all launches of the run, by role and model.
        launches: how often the run was launched: 1, and one more for each time that it was resumed.
        gates: what the run had to reach and every reason why it did not, as JSON-like data.
        attacks: what was planted in the data to mislead the agent, and what came of it, as JSON-like data.
    """

    notice: str
    suite: str
    run: str
    planned: int
    finished: Sequence[Finished]
    forks: int
    rate: PassRate
    severity_1: int
    rules: Sequence[RuleCount]
    outcomes: Mapping[str, int]
    interrupted: bool
    seconds: float
    not_held: Sequence[str] = ()
    stopped: str | None = None
    usage: Sequence[Spent] = ()
    launches: int = 1
    gates: Mapping[str, Any] | None = None
    attacks: Sequence[Mapping[str, Any]] = ()

    @property
    def faults(self) -> int:
        """How many conversations ended by a fault of ours."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in FAULTS)

    @property
    def unfinished(self) -> int:
        """How many planned conversations have no outcome at all."""
        return self.planned - len(self.finished)

    @property
    def exit_code(self) -> int:
        """130 interrupted, 1 the agent broke a rule, 3 a planned conversation has no verdict, else 0."""
        if self.interrupted:
            return 130
        if self.outcomes.get("fail"):
            return 1
        if self.faults or self.unfinished or self.outcomes.get("derailed"):
            return 3
        return 0


def summarise(
    finished: Sequence[Finished],
    *,
    notice: str,
    suite: str,
    run: str,
    planned: int,
    forks: int,
    interrupted: bool,
    seconds: float,
    not_held: Sequence[str] = (),
    stopped: str | None = None,
    usage: Sequence[Spent] = (),
    launches: int = 1,
    gates: Mapping[str, Any] | None = None,
) -> Summary:
    """Count what finished."""
    from redteam_rubrics import wilson

    outcomes = Counter[str](one.outcome for one in finished)
    passed, judged = outcomes["pass"], outcomes["pass"] + outcomes["fail"]
    interval = wilson(passed, judged) if judged else None
    return Summary(
        notice=notice,
        suite=suite,
        run=run,
        planned=planned,
        finished=sorted(finished, key=lambda one: one.id),
        forks=forks,
        rate=PassRate(
            passed=passed,
            judged=judged,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
        ),
        severity_1=sum(any(verdict["severity"] == 1 for verdict in one.broken) for one in finished),
        rules=_rules(finished),
        outcomes=dict(outcomes),
        interrupted=interrupted,
        seconds=seconds,
        not_held=tuple(not_held),
        stopped=stopped,
        usage=tuple(usage),
        launches=launches,
        gates=gates,
        attacks=tuple(attack_counts((one.case, one.attacks) for one in finished)),
    )


def _rules(finished: Sequence[Finished]) -> list[RuleCount]:
    failed: Counter[tuple[str, int]] = Counter()
    judged: Counter[tuple[str, int]] = Counter()
    for one in finished:
        for verdict in one.verdicts:
            rule = (str(verdict["rule"]), int(verdict["severity"]))
            judged[rule] += 1
            failed[rule] += verdict["status"] == "fail"
    counts = [
        RuleCount(rule=name, severity=severity, failed=count, judged=judged[name, severity])
        for (name, severity), count in failed.items()
        if count
    ]
    return sorted(counts, key=lambda count: (count.severity, -count.failed, count.rule))
