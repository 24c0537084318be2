"""Two agents, or two versions of one, over the same conversations: what changed, and whether by chance."""

from __future__ import annotations

import math
from typing import NamedTuple

from redteam_rubrics.statistics.intervals import CONFIDENCE, wilson
from redteam_sdk.errors import InternalError

__all__ = ["Difference", "McNemar", "Pairs", "mcnemar", "paired_difference"]


class Pairs(NamedTuple):
    """Pairs of outcomes, the first of a base and the second of a candidate.

    Attributes:
        both: both passed.
        regressed: only the base passed.
        improved: only the candidate passed.
        neither: none passed.
    """

    both: int
    regressed: int
    improved: int
    neither: int

    @property
    def n(self) -> int:
        """How many pairs there are."""
        return sum(self)


class McNemar(NamedTuple):
    """McNemar's test of whether as many improve as regress.

    Attributes:
        p: the exact two-sided p value; it decides.
        mid_p: the mid-p value, for information: nearer to its nominal level, and may slightly exceed it.
    """

    p: float
    mid_p: float


class Difference(NamedTuple):
    """The candidate's pass rate less the base's, over the same pairs.

    Attributes:
        difference: from -1 to 1; above 0 the candidate is better.
        low, high: its confidence interval.
        n: of how many pairs.
    """

    difference: float
    low: float
    high: float
    n: int


def mcnemar(pairs: Pairs) -> McNemar:
    """McNemar's exact test (conditional, binomial), and the mid-p version beside it.

    Only pairs that differ count; without any both values are 1. The mid-p value is that of Fagerland,
    Lydersen and Laake (BMC Medical Research Methodology 13:91, 2013).

    Raises:
        InternalError: a count below 0.
    """
    _check(pairs)
    differ = pairs.regressed + pairs.improved
    if not differ:
        return McNemar(1.0, 1.0)
    from scipy.stats import binom, binomtest

    exact = float(binomtest(pairs.improved, differ, 0.5).pvalue)
    point = float(binom.pmf(pairs.improved, differ, 0.5))
    return McNemar(exact, exact - (point / 2 if pairs.improved == pairs.regressed else point))


def paired_difference(pairs: Pairs, confidence: float = CONFIDENCE) -> Difference | None:
    """The difference of the two pass rates with Newcombe's interval for pairs; None without pairs.

    Method 10 of Newcombe (Statistics in Medicine 17, 1998, 2635-2650): Wilson's intervals of both rates,
    squared and added with the correlation of the pairs.

    Raises:
        InternalError: a count below 0.
    """
    _check(pairs)
    n = pairs.n
    base, candidate = pairs.both + pairs.regressed, pairs.both + pairs.improved
    of_base, of_candidate = wilson(base, n, confidence), wilson(candidate, n, confidence)
    if of_base is None or of_candidate is None:
        return None
    first, second = candidate / n, base / n
    below, above = first - of_candidate.low, of_candidate.high - first
    base_below, base_above = second - of_base.low, of_base.high - second
    phi = _correlation(pairs)
    low = math.sqrt(max(0.0, below**2 - 2 * phi * below * base_above + base_above**2))
    high = math.sqrt(max(0.0, above**2 - 2 * phi * above * base_below + base_below**2))
    difference = (pairs.improved - pairs.regressed) / n
    return Difference(difference, max(-1.0, difference - low), min(1.0, difference + high), n)


def _correlation(pairs: Pairs) -> float:
    """Newcombe's phi: corrected towards 0 where it is above, as it is measured where it is below."""
    margins = (
        (pairs.both + pairs.regressed)
        * (pairs.improved + pairs.neither)
        * (pairs.both + pairs.improved)
        * (pairs.regressed + pairs.neither)
    )
    if not margins:
        return 0.0
    excess = pairs.both * pairs.neither - pairs.regressed * pairs.improved
    if excess > 0:
        return max(excess - pairs.n / 2, 0.0) / math.sqrt(margins)
    return excess / math.sqrt(margins)


def _check(pairs: Pairs) -> None:
    if min(pairs) < 0:
        raise InternalError(f"{tuple(pairs)} are no counts of pairs")
