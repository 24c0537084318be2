"""pass^k: how likely an agent is to pass the same task k times in a row."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from redteam_rubrics.statistics.intervals import CONFIDENCE, ratio_interval
from redteam_rubrics.statistics.rate import Bounds, interval_data
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redteam_rubrics.statistics.intervals import Interval

__all__ = ["PassHatK", "Task", "pass_hat_k"]


class Task(NamedTuple):
    """One thing that was tried several times.

    Attributes:
        cluster: what it shares with tasks that may go alike.
        passed: how many tries passed.
        judged: how many count.
        excluded: how many do not, because of a fault of ours.
    """

    cluster: Hashable
    passed: int
    judged: int
    excluded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassHatK:
    """pass^k of a number of tasks.

    Attributes:
        k: how many tries in a row.
        share: the mean over the tasks of the chance that k tries all pass; None: some task has fewer than k
            tries that count, so it is not defined.
        tasks: how many tasks there are.
        excluded: how many tries do not count.
        interval: of the share; None where that is not defined.
        bounds: between which it would be had all tries counted; None where some task has fewer than k.
        confidence: the interval's.
    """

    k: int
    share: float | None
    tasks: int
    excluded: int
    interval: Interval | None
    bounds: Bounds | None
    confidence: float = CONFIDENCE

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data; `cases` are tasks: a case with its persona and disposition."""
        return {
            "k": self.k,
            "share": self.share,
            "cases": self.tasks,
            "excluded": self.excluded,
            "interval": interval_data(self.interval, "wilson-clustered", self.confidence),
            "bounds": {
                "if_all_failed": self.bounds.if_all_failed if self.bounds else None,
                "if_all_passed": self.bounds.if_all_passed if self.bounds else None,
            },
        }


def pass_hat_k(tasks: Sequence[Task], k: int, confidence: float = CONFIDENCE) -> PassHatK:
    """Estimate pass^k without bias: C(c, k) / C(n, k) for c passes in n tries, averaged over the tasks.

    That is the share of all choices of k tries that have no failure (Yao, Shinn, Razavi and Narasimhan,
    tau-bench, arXiv 2406.12045). Dropping the tasks that have too few tries would leave out, without a word,
    those where something went wrong: so one of them leaves it undefined, and the bounds say what is known.

    The interval is that of `ratio_interval` over the clusters' sums; n tries hold n // k groups of k that
    share none, which is the most that they can count for.

    Raises:
        InternalError: k is not positive, or a task is impossible.
    """
    if k < 1:
        raise InternalError(f"pass^{k} is not defined")
    for task in tasks:
        if not 0 <= task.passed <= task.judged or task.excluded < 0:
            raise InternalError(f"a task with {task.passed} of {task.judged} passed is none")
    defined = bool(tasks) and all(task.judged >= k for task in tasks)
    share, interval = None, None
    if defined:
        values = [_chance(task.passed, task.judged, k) for task in tasks]
        share = float(sum(values, Fraction()) / len(tasks))
        sums: dict[Hashable, list[Fraction]] = defaultdict(list)
        for task, value in zip(tasks, values, strict=True):
            sums[task.cluster].append(value)
        parts = [(float(sum(ones, Fraction())), float(len(ones))) for ones in sums.values()]
        interval = ratio_interval(parts, sum(task.judged // k for task in tasks), confidence)
    return PassHatK(
        k=k,
        share=share,
        tasks=len(tasks),
        excluded=sum(task.excluded for task in tasks),
        interval=interval,
        bounds=_bounds(tasks, k),
        confidence=confidence,
    )


def _chance(passed: int, n: int, k: int) -> Fraction:
    return Fraction(math.comb(passed, k), math.comb(n, k))


def _bounds(tasks: Sequence[Task], k: int) -> Bounds | None:
    tries = [task.judged + task.excluded for task in tasks]
    if not tasks or min(tries) < k:
        return None
    worst = [_chance(task.passed, n, k) for task, n in zip(tasks, tries, strict=True)]
    best = [_chance(task.passed + task.excluded, n, k) for task, n in zip(tasks, tries, strict=True)]
    return Bounds(float(sum(worst) / len(tasks)), float(sum(best) / len(tasks)))
