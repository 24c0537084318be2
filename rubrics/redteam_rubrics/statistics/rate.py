"""A pass rate that cannot be shown without what it rests on."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redteam_rubrics.statistics.bootstrap import cluster_bootstrap
from redteam_rubrics.statistics.intervals import CONFIDENCE, Cluster, Interval, clustered

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

__all__ = ["Bounds", "Rate", "interval_data", "method_of", "percent", "rate_of"]


class Bounds(NamedTuple):
    """What a rate would be had all that is excluded ended one way: no further off can it be."""

    if_all_failed: float
    if_all_passed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many passed of those that count, with all that is needed to read it.

    It has no bare share on purpose. `words` and `to_json` are the ways to show it, and both say of how many,
    what is left out, and the interval.

    Attributes:
        passed: how many passed.
        judged: how many count.
        excluded: how many do not, by the name of why.
        interval: of the rate; None where nothing counts.
        confidence: the interval's.
        clusters: how many clusters those that count are in; as many as count: all are independent.
        bootstrap: the same interval by a cluster bootstrap, as a check; None where it says nothing, or where
            none was asked for.
    """

    passed: int
    judged: int
    excluded: Mapping[str, int] = field(default_factory=dict)
    interval: Interval | None
    confidence: float = CONFIDENCE
    clusters: int
    bootstrap: Interval | None = None

    @property
    def method(self) -> str:
        """How the interval was made: see `method_of`."""
        return method_of(self.clusters, self.judged)

    @property
    def low(self) -> float | None:
        """The interval's lower end."""
        return self.interval.low if self.interval else None

    @property
    def high(self) -> float | None:
        """The interval's upper end."""
        return self.interval.high if self.interval else None

    @property
    def bounds(self) -> Bounds | None:
        """The rate had all that is excluded failed, and had it all passed; None without any conversation."""
        left_out = sum(self.excluded.values())
        everybody = self.judged + left_out
        if not everybody:
            return None
        return Bounds(self.passed / everybody, (self.passed + left_out) / everybody)

    def words(self) -> str:
        """`13 of 20   65 %  (95 % interval 43 to 82)`, and what is left out, if anything is."""
        if self.interval is None:
            text = "no conversation has a verdict, so there is no rate"
        else:
            low, high = math.floor(100 * self.interval.low), math.ceil(100 * self.interval.high)
            text = (
                f"{self.passed} of {self.judged}   {percent(self.passed, self.judged)} %  "
                f"({100 * self.confidence:g} % interval {low} to {high})"
            )
        if self.bounds is None or not any(self.excluded.values()):
            return text
        named = ", ".join(f"{count} {name}" for name, count in sorted(self.excluded.items()) if count)
        everybody = self.judged + sum(self.excluded.values())
        worst, best = percent(self.passed, everybody), percent(everybody - self._failed, everybody)
        return f"{text}; left out: {named}, with which it would be {worst} to {best} %"

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data; shares are of 1."""
        bounds = self.bounds
        return {
            "passed": self.passed,
            "judged": self.judged,
            "share": self.passed / self.judged if self.judged else None,
            "interval": interval_data(self.interval, self.method, self.confidence),
            "excluded": dict(sorted(self.excluded.items())),
            "bounds": {
                "if_all_failed": bounds.if_all_failed if bounds else None,
                "if_all_passed": bounds.if_all_passed if bounds else None,
            },
            "clusters": self.clusters,
            "bootstrap": (
                {"low": self.bootstrap.low, "high": self.bootstrap.high} if self.bootstrap else None
            ),
        }

    @property
    def _failed(self) -> int:
        return self.judged - self.passed


def rate_of(
    outcomes: Iterable[tuple[Hashable, bool]],
    excluded: Mapping[str, int] | None = None,
    *,
    check: bool = False,
) -> Rate:
    """The rate of outcomes that count.

    Args:
        outcomes: for each its cluster, and whether it passed.
        excluded: how many do not count, by the name of why.
        check: whether to make the bootstrap interval, too; it costs some milliseconds.
    """
    passed, judged = Counter[object](), Counter[object]()
    for cluster, one_passed in outcomes:
        judged[cluster] += 1
        passed[cluster] += one_passed
    clusters = [Cluster(passed[name], n) for name, n in judged.items()]
    return Rate(
        passed=passed.total(),
        judged=judged.total(),
        excluded={name: count for name, count in (excluded or {}).items() if count},
        interval=clustered(clusters),
        clusters=len(clusters),
        bootstrap=cluster_bootstrap(clusters) if check else None,
    )


def interval_data(interval: Interval | None, method: str, confidence: float) -> dict[str, Any]:
    """An interval as JSON-like data; `low` and `high` are None where there is none."""
    return {
        "method": method,
        "confidence": confidence,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def method_of(clusters: int, n: int) -> Literal["wilson", "wilson-clustered"]:
    """How the interval of n conversations was made; with one in each cluster both are the same."""
    return "wilson" if clusters == n else "wilson-clustered"


def percent(part: int, whole: int) -> int:
    """A share in whole percent; 0 and 100 are kept for none and all."""
    if part in (0, whole):
        return 100 * (part // whole)
    return min(99, max(1, round(100 * part / whole)))
