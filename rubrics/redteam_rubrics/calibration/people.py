"""What several people said of the same conversation: one answer where they agree, and how far they do."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from redteam_rubrics.calibration.agreement import Kappa, Share, cohen_kappa

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redteam_rubrics.verdict import Status

__all__ = ["Between", "Consensus", "Label", "agreements", "consensus"]

Consensus = Literal["pass", "fail", "unclear", "disputed"]
"""What people said together. Disputed: as many said pass as said fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A human's verdict.

    Attributes:
        conversation: which one; unique over all runs that are looked at.
        rule: by which rule.
        who: whose verdict.
        status: pass, fail or unclear.
    """

    conversation: str
    rule: str
    who: str
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """How far two people agree, on what both decided.

    Attributes:
        people: the two, in the order of the alphabet.
        agreement: how often both said the same.
        kappa: None where it is undefined.
    """

    people: tuple[str, str]
    agreement: Share
    kappa: Kappa | None

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "people": list(self.people),
            "agreement": self.agreement.to_json(),
            "kappa": None if self.kappa is None else self.kappa.to_json(),
        }


def consensus(statuses: Sequence[Status]) -> Consensus:
    """What people said together: what most of those who decided said; unclear where nobody decided."""
    passes, fails = statuses.count("pass"), statuses.count("fail")
    if passes == fails:
        return "disputed" if passes else "unclear"
    return "pass" if passes > fails else "fail"


def agreements(labels: Iterable[Label]) -> list[Between]:
    """How far each two people agree, over all rules, where both decided something.

    Args:
        labels: at most one for each person, conversation and rule.
    """
    said: dict[str, dict[tuple[str, str], Status]] = defaultdict(dict)
    for label in labels:
        if label.status != "unclear":
            said[label.who][label.conversation, label.rule] = label.status
    found = []
    for one, other in combinations(sorted(said), 2):
        both = said[one].keys() & said[other].keys()
        if not both:
            continue
        table = [
            [sum((said[one][at], said[other][at]) == (a, b) for at in both) for b in ("pass", "fail")]
            for a in ("pass", "fail")
        ]
        same = table[0][0] + table[1][1]
        found.append(
            Between(people=(one, other), agreement=Share(count=same, n=len(both)), kappa=cohen_kappa(table))
        )
    return found
