"""The cluster bootstrap: a second way to an interval, that assumes no formula, as a check on the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_rubrics.statistics.intervals import CONFIDENCE, Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redteam_rubrics.statistics.intervals import Cluster

__all__ = ["RESAMPLES", "cluster_bootstrap", "difference_bootstrap"]

RESAMPLES = 1999
"""How often the clusters are drawn anew."""

_SEED = 20_230_501  # any; the same clusters give the same interval, today and in a year
_BATCH = 200  # draws at a time, so that thousands of clusters fit in memory


def cluster_bootstrap(clusters: Iterable[Cluster], confidence: float = CONFIDENCE) -> Interval | None:
    """The percentile interval of the rate over whole clusters drawn with replacement (Efron 1979).

    None where drawing says nothing: with fewer than two clusters, or where every cluster has the same share,
    so that every draw gives the same rate and the interval would claim to know it exactly.
    """
    parts = sorted(one for one in clusters if one.n)
    if len(parts) < 2 or len({one.passed / one.n for one in parts}) == 1:
        return None
    return _drawn(parts, confidence)


def difference_bootstrap(
    clusters: Iterable[tuple[int, int]], confidence: float = CONFIDENCE
) -> Interval | None:
    """The same of a difference of two rates over the same conversations, from each cluster's gain and size.

    Args:
        clusters: of each how many pairs only the candidate passed, less those that only the base did; and how
            many pairs it has.
        confidence: the interval's.
    """
    parts = sorted(one for one in clusters if one[1])
    if len(parts) < 2 or len({gain / n for gain, n in parts}) == 1:
        return None
    return _drawn(parts, confidence)


def _drawn(parts: Sequence[tuple[int, int]], confidence: float) -> Interval:
    import numpy
    from scipy.stats import bootstrap

    passed, n = (numpy.array(column, dtype=float) for column in zip(*parts, strict=True))
    found = bootstrap(
        (passed, n),
        lambda passed, n, axis: passed.sum(axis=axis) / n.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=_BATCH,
        confidence_level=confidence,
        method="percentile",
        rng=numpy.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))
