"""A rejudging beside the verdicts before: what changed, where, and why; what could not be judged. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_rubrics import Verdict, outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.models.usage import Spent

__all__ = ["Changed", "Compared", "Left", "Rejudgement", "RuleCompared", "compare"]

STATUSES = ("pass", "fail", "unclear")
NEW = "new"
"""What stood before where a rule had no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A rule that was not judged again, and why; its verdict stays what it was."""

    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudgement:
    """One conversation, judged again.

    Attributes:
        conversation: its id.
        before: the verdicts of its launch, in their JSON form.
        after: the new ones.
        left: rules that were not judged again.
    """

    conversation: str
    before: Sequence[Mapping[str, Any]]
    after: Sequence[Verdict]
    left: Sequence[Left]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A verdict that is another one now, or that of a new rule and no pass.

    Attributes:
        conversation: whose.
        before, after: pass, fail or unclear; before may be `new`.
        reason: of the new verdict.
    """

    conversation: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCompared:
    """One rule over all conversations in which it was judged again.

    Attributes:
        rule: its name.
        severity: its severity now.
        before, after: how many verdicts of each status, of the same conversations.
        changed: those that differ, in the order of conversations.
    """

    rule: str
    severity: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    changed: Sequence[Changed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A whole rejudging.

    Attributes:
        run: the run's id.
        rejudging: its number in the run, from 1.
        conversations: how many were looked at.
        rules: those that were judged again, the gravest first.
        left: by rule and reason, the conversations in which it was not judged again.
        outcomes: how many conversations had each outcome then and have it now, what was left as it was.
        usage: what models used for it.
    """

    run: str
    rejudging: int
    conversations: int
    rules: Sequence[RuleCompared]
    left: Mapping[tuple[str, str], Sequence[str]]
    outcomes: tuple[Mapping[str, int], Mapping[str, int]]
    usage: Sequence[Spent]

    @property
    def changes(self) -> int:
        """How many verdicts are others now, or new and no pass."""
        return sum(len(rule.changed) for rule in self.rules)

    def to_json(self) -> dict[str, Any]:
        """As `redteam judge --json` prints it."""
        before, after = self.outcomes
        return {
            "run": self.run,
            "rejudging": self.rejudging,
            "conversations": self.conversations,
            "changed": self.changes,
            "rules": [
                {
                    "rule": rule.rule,
                    "severity": rule.severity,
                    "before": dict(rule.before),
                    "after": dict(rule.after),
                    "changed": [
                        {
                            "conversation": one.conversation,
                            "before": one.before,
                            "after": one.after,
                            "reason": one.reason,
                        }
                        for one in rule.changed
                    ],
                }
                for rule in self.rules
            ],
            "not_rejudged": [
                {"rule": rule, "why": why, "conversations": list(names)}
                for (rule, why), names in self.left.items()
            ],
            "outcomes": {"before": dict(before), "after": dict(after)},
            "usage": [spent.to_json() for spent in self.usage],
        }


def compare(run: str, rejudging: int, results: Sequence[Rejudgement], usage: Sequence[Spent]) -> Compared:
    """Compare with the verdicts of the launch; those of earlier rejudgings stand beside these."""
    severities: dict[str, int] = {}
    before: dict[str, Counter[str]] = {}
    after: dict[str, Counter[str]] = {}
    changed: dict[str, list[Changed]] = {}
    left: dict[tuple[str, str], list[str]] = {}
    outcomes: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for result in results:
        then = {str(verdict["rule"]): verdict for verdict in result.before}
        for verdict in result.after:
            was = str(then[verdict.rule]["status"]) if verdict.rule in then else NEW
            severities[verdict.rule] = verdict.severity
            before.setdefault(verdict.rule, Counter())[was] += 1
            after.setdefault(verdict.rule, Counter())[verdict.status] += 1
            differing = changed.setdefault(verdict.rule, [])
            if was != verdict.status and (was, verdict.status) != (NEW, "pass"):
                differing.append(
                    Changed(
                        conversation=result.conversation,
                        before=was,
                        after=verdict.status,
                        reason=verdict.reason,
                    )
                )
        for one in result.left:
            left.setdefault((one.rule, one.why), []).append(result.conversation)
        old = {name: Verdict.from_json(verdict) for name, verdict in then.items()}
        new = {**old, **{verdict.rule: verdict for verdict in result.after}}
        outcomes[0][outcome_of(old.values())] += 1
        outcomes[1][outcome_of(new.values())] += 1
    return Compared(
        run=run,
        rejudging=rejudging,
        conversations=len(results),
        rules=[
            RuleCompared(
                rule=name,
                severity=severities[name],
                before=dict(before[name]),
                after=dict(after[name]),
                changed=tuple(changed[name]),
            )
            for name in sorted(severities, key=lambda name: (severities[name], name))
        ],
        left=left,
        outcomes=outcomes,
        usage=usage,
    )
