"""What is counted over finished conversations: rates, groups, rules, pass^k, judges. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.ids import first_of
from redteam_rubrics.calibration import calibration_of
from redteam_rubrics.statistics import Cluster, Task, clustered, method_of, pass_hat_k, rate_of, simultaneous
from redteam_rubrics.verdict import Asked

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from redteam_harness.report.summary import Finished
    from redteam_rubrics.calibration import Calibration
    from redteam_rubrics.statistics import Interval, PassHatK, Rate

__all__ = ["NOT_HELD", "Group", "RuleCount", "groups_of", "judge_of", "rate", "reliability", "rule_counts"]

NOT_HELD = "not-held"
"""How planned conversations without an outcome are named among what a rate leaves out."""

_GROUPINGS = ("case", "persona", "disposition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The conversations of one case, one persona or one disposition."""

    name: str
    rate: Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """What one rule said over all conversations.

    Attributes:
        rule: its name.
        severity: 1 to 3.
        kind: of which kind it is (`sql`, `judge`); None where the evidence does not say.
        judged: how many conversations it passed or failed.
        failed: how many of them it failed.
        vacuous: how many of them it passed because there was nothing to fail on.
        unclear: how many it could not decide; they are not among `judged`.
        interval: of the share that failed, of those that it passed or failed for a reason; None for
            severity 1, which is only counted, and where there is none.
        confidence: the interval's; so far above 95 % that all rules' intervals hold together with 95 %.
        clusters: how many clusters those are in.
        p_adjusted: None; a single run compares nothing, so there is no p value to adjust.
    """

    rule: str
    severity: int
    kind: str | None = None
    judged: int
    failed: int
    vacuous: int = 0
    unclear: int = 0
    interval: Interval | None = None
    confidence: float | None = None
    clusters: int = 0
    p_adjusted: float | None = None

    @property
    def n(self) -> int:
        """How many conversations the interval is of: those that it passed or failed for a reason."""
        return self.judged - self.vacuous

    @property
    def method(self) -> str:
        """How the interval is made."""
        return method_of(self.clusters, self.n)


def rate(finished: Iterable[Finished], *, not_held: int = 0, check: bool = False) -> Rate:
    """The pass rate of conversations; repetitions, and the same persona in the same case, are one cluster.

    Args:
        finished: the conversations.
        not_held: how many more were planned and have no outcome.
        check: whether to make the bootstrap interval, too.
    """
    excluded = Counter({NOT_HELD: not_held} if not_held else {})
    outcomes = []
    for one in finished:
        if one.outcome in ("pass", "fail"):
            outcomes.append((_cluster(one), one.outcome == "pass"))
        else:
            excluded[one.outcome] += 1
    return rate_of(outcomes, excluded, check=check)


def groups_of(finished: Sequence[Finished]) -> dict[str, list[Group]]:
    """The rates by case, by persona and by disposition, in the order of their names."""
    found = {}
    for grouping in _GROUPINGS:
        members: dict[str, list[Finished]] = defaultdict(list)
        for one in finished:
            members[getattr(one, grouping)].append(one)
        found[grouping] = [Group(name=name, rate=rate(members[name])) for name in sorted(members)]
    return found


def rule_counts(finished: Iterable[Finished]) -> list[RuleCount]:
    """Every rule that said anything, the gravest and the most often broken first."""
    verdicts: dict[tuple[str, int], list[tuple[Hashable, Mapping[str, Any]]]] = defaultdict(list)
    for one in finished:
        for verdict in one.verdicts:
            verdicts[str(verdict["rule"]), int(verdict["severity"])].append((_cluster(one), verdict))
    # Of so many intervals some would miss by chance; each is so much wider that all of them hold together.
    family = sum(severity > 1 for _, severity in verdicts)
    counts = [_rule(rule, severity, said, family) for (rule, severity), said in verdicts.items()]
    return sorted(counts, key=lambda count: (count.severity, -count.failed, count.rule))


def reliability(finished: Iterable[Finished], not_held: Iterable[str], repeat: int) -> list[PassHatK]:
    """pass^k for k from 1 to the number of repetitions; nothing where there are none.

    Args:
        finished: the conversations.
        not_held: ids of those that were planned and have no outcome.
        repeat: how often each was planned.
    """
    if repeat < 2:
        return []
    tries: dict[str, list[Finished | None]] = defaultdict(list)
    for one in finished:
        tries[first_of(one.id)].append(one)
    for name in not_held:
        tries[first_of(name)].append(None)
    tasks = [_task(name, held) for name, held in tries.items()]
    return [pass_hat_k(tasks, k) for k in range(1, repeat + 1)]


def judge_of(finished: Iterable[Finished], calibrations: Sequence[Calibration]) -> dict[str, Any] | None:
    """Which models judged which rules and how they compare with people; None where no model judged.

    Args:
        finished: the conversations.
        calibrations: the suite's, in the order in which they were measured.
    """
    asked: dict[tuple[str, str, str], Asked] = {}
    for one in finished:
        for verdict in one.verdicts:
            if verdict.get("asked"):
                judge = Asked.from_json(verdict["asked"])
                asked[str(verdict["rule"]), judge.model, judge.prompt] = judge
    if not asked:
        return None
    rules = []
    for (rule, model, prompt), judge in sorted(asked.items(), key=lambda item: item[0]):
        known = calibration_of(rule, judge, calibrations)
        rules.append(
            {
                "rule": rule,
                "model": model,
                "prompt": prompt,
                "calibration": known.calibration.to_json() if known.calibration else None,
                "stale": known.stale,
            }
        )
    return {"model": ", ".join(sorted({model for _, model, _ in asked})), "rules": rules}


def _cluster(one: Finished) -> tuple[str, str]:
    return (one.case, one.persona)


def _rule(
    rule: str, severity: int, said: Sequence[tuple[Hashable, Mapping[str, Any]]], family: int
) -> RuleCount:
    statuses = Counter(verdict["status"] for _, verdict in said)
    vacuous = sum(bool(verdict.get("vacuous")) and verdict["status"] == "pass" for _, verdict in said)
    clusters = _failures(said)
    confidence = simultaneous(family) if severity > 1 else None
    return RuleCount(
        rule=rule,
        severity=severity,
        kind=next((str(verdict["kind"]) for _, verdict in said if verdict.get("kind")), None),
        judged=statuses["pass"] + statuses["fail"],
        failed=statuses["fail"],
        vacuous=vacuous,
        unclear=statuses["unclear"],
        interval=None if confidence is None else clustered(clusters, confidence),
        confidence=confidence,
        clusters=len(clusters),
    )


def _failures(said: Iterable[tuple[Hashable, Mapping[str, Any]]]) -> list[Cluster]:
    failed, n = Counter[object](), Counter[object]()
    for cluster, verdict in said:
        if verdict["status"] == "unclear" or (verdict["status"] == "pass" and verdict.get("vacuous")):
            continue
        n[cluster] += 1
        failed[cluster] += verdict["status"] == "fail"
    return [Cluster(failed[cluster], count) for cluster, count in n.items()]


def _task(name: str, held: Sequence[Finished | None]) -> Task:
    outcomes = [one.outcome for one in held if one is not None]
    judged = outcomes.count("pass") + outcomes.count("fail")
    return Task(
        cluster=next((_cluster(one) for one in held if one is not None), name),
        passed=outcomes.count("pass"),
        judged=judged,
        excluded=len(held) - judged,
    )
