"""Intervals of one rate: Wilson's, and Wilson's for conversations that are not independent of each other."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CONFIDENCE", "Cluster", "Interval", "clustered", "ratio_interval", "wilson"]

CONFIDENCE = 0.95
"""The confidence of every interval that does not say another one."""


class Interval(NamedTuple):
    """A confidence interval of a rate, both ends between 0 and 1."""

    low: float
    high: float


class Cluster(NamedTuple):
    """Conversations that may go alike because they have the same person in the same case.

    Attributes:
        passed: how many of them passed.
        n: how many have an outcome that counts.
    """

    passed: int
    n: int


def wilson(passed: int, n: int, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's interval of the rate `passed / n`, without continuity correction; None for n = 0.

    Args:
        passed: how many of them passed.
        n: how many have an outcome that counts; faults of ours are not among them.
        confidence: the share of such intervals that hold the true rate.

    Raises:
        InternalError: not 0 <= passed <= n.
    """
    if not 0 <= passed <= n:
        raise InternalError(f"{passed} of {n} is no rate")
    return None if n == 0 else _wilson(passed, n, confidence)


@lru_cache(maxsize=4096)  # a report has a rate for each persona, and most of them are 1 of 1
def _wilson(passed: int, n: int, confidence: float) -> Interval:
    from scipy.stats import binomtest

    found = binomtest(passed, n).proportion_ci(confidence_level=confidence, method="wilson")
    return Interval(float(found.low), float(found.high))


def clustered(clusters: Iterable[Cluster], confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's interval at the effective number of conversations; None where there are none.

    Conversations of one cluster tell less than as many strangers would. How much less is estimated from how
    far the clusters' counts scatter: the design effect of a ratio estimator (Rao and Scott, Biometrics 48,
    1992). Few clusters make that estimate unsure, so the number is reduced further by the ratio of t
    quantiles (Korn and Graubard, Survey Methodology 24, 1998), and it never exceeds the number of
    conversations. Of eight intervals at such a number, Wilson's is one of the two that Franco, Little, Louis
    and Slud (J. Survey Stat. Methodol. 7, 2019) recommend. Where nothing scatters because all passed or all
    failed, each cluster counts once.

    With one conversation in each cluster it is `wilson`. It does not depend on the clusters' order.

    Raises:
        InternalError: a cluster that is no rate.
    """
    parts = [one for one in clusters if one.n]
    for one in parts:
        if not 0 <= one.passed <= one.n:
            raise InternalError(f"{one.passed} of {one.n} is no rate")
    passed, n = sum(one.passed for one in parts), sum(one.n for one in parts)
    if n == len(parts):
        return wilson(passed, n, confidence)
    return ratio_interval([(float(one.passed), float(one.n)) for one in parts], n, confidence)


def ratio_interval(
    parts: Sequence[tuple[float, float]], size: int, confidence: float = CONFIDENCE
) -> Interval | None:
    """The interval of a ratio of sums over clusters; None where there are none.

    Args:
        parts: for each cluster what is summed above and below the line; the ratio is between 0 and 1.
        size: how many independent observations there are at most, were the clusters of no importance.
        confidence: the share of such intervals that hold the true ratio.
    """
    weight = math.fsum(below for _, below in parts)
    if not weight:
        return None
    # Sums of floats that do not depend on the order of the clusters.
    share = min(1.0, math.fsum(above for above, _ in parts) / weight)
    return _score(share, _effective(share, parts, weight, size, confidence), confidence)


def _effective(
    share: float, parts: Sequence[tuple[float, float]], weight: float, size: int, confidence: float
) -> float:
    """How many independent observations the clusters are worth: from 1 to `size`."""
    count = len(parts)
    if count == 1:
        return 1.0
    scatter = math.fsum((above - share * below) ** 2 for above, below in parts) / weight**2
    if share in (0.0, 1.0):
        worth = float(count)
    elif scatter == 0:
        worth = math.inf
    else:
        worth = share * (1 - share) / scatter
    if size > count:
        worth *= (_quantile(confidence, size - 1) / _quantile(confidence, count - 1)) ** 2
    return max(1.0, min(worth, float(size)))


def _score(share: float, n: float, confidence: float) -> Interval:
    """Wilson's interval for a number of observations that need not be whole."""
    square = _quantile(confidence) ** 2
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = math.sqrt(square * (share * (1 - share) / n + square / (4 * n * n))) / (1 + square / n)
    # Rounding must not push an end past the share, which lies on it where all passed or none did.
    return Interval(max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


@lru_cache(maxsize=1024)
def _quantile(confidence: float, freedom: int | None = None) -> float:
    """How many standard errors an interval reaches to each side: of t, or of the normal distribution."""
    from scipy.stats import norm, t

    upper = 1 - (1 - confidence) / 2
    return float(norm.ppf(upper) if freedom is None else t.ppf(upper, freedom))
