"""How many pairs a comparison needs before it can see an effect: the power of the exact McNemar test."""

from __future__ import annotations

from typing import NamedTuple

from redteam_sdk.errors import UsageError

__all__ = ["Churn", "churn_of", "mcnemar_power", "pairs_needed"]

_MOST = 100_000
_STEADY = 10  # the exact test's power goes down a little between its steps up
_NEGLIGIBLE = 1e-9


class Churn(NamedTuple):
    """How often a pair differs.

    Attributes:
        improved: the chance that only the candidate passes.
        regressed: the chance that only the base passes.
    """

    improved: float
    regressed: float


def churn_of(base_rate: float, effect: float) -> Churn:
    """The churn of two agents that pass or fail each conversation by chance, one independently of the other.

    That is the most that two agents of these pass rates can differ in without being at odds: conversations
    that are always easy or always hard make it less, and a comparison needs fewer pairs then.

    Args:
        base_rate: the base's pass rate.
        effect: how much higher (or, below 0, lower) the candidate's is.

    Raises:
        UsageError: these are no two rates.
    """
    candidate = base_rate + effect
    if not (0 <= base_rate <= 1 and 0 <= candidate <= 1):
        raise UsageError(
            f"a pass rate of {base_rate:g} and an effect of {effect:+g} give {candidate:g}, which is no rate"
        )
    return Churn((1 - base_rate) * candidate, base_rate * (1 - candidate))


def mcnemar_power(n: int, churn: Churn, *, alpha: float) -> float:
    """The chance that the exact two-sided McNemar test finds a difference at level `alpha` in `n` pairs.

    Summed over the number of pairs that differ, which is binomial, and over how many of these improve.
    """
    differ = churn.improved + churn.regressed
    if differ <= 0:
        return 0.0
    import numpy
    from scipy.stats import binom

    share = churn.improved / differ
    likely = numpy.arange(binom.ppf(_NEGLIGIBLE, n, differ), binom.isf(_NEGLIGIBLE, n, differ) + 1)
    # The two-sided p value of k at one half is twice the tail: of each count, the most that is significant.
    bound = binom.ppf(alpha / 2, likely, 0.5)
    bound = numpy.where(2 * binom.cdf(bound, likely, 0.5) > alpha, bound - 1, bound)
    found = binom.cdf(bound, likely, share) + binom.sf(likely - bound - 1, likely, share)
    found = numpy.where(bound >= 0, found, 0.0)
    return float(min((binom.pmf(likely, n, differ) * found).sum(), 1.0))


def pairs_needed(churn: Churn, *, alpha: float, power: float) -> int | None:
    """The fewest pairs with which the test has this power, and keeps it with a few more; None: over 100,000.

    Raises:
        UsageError: alpha or power is not between 0 and 1.
    """
    if not (0 < alpha < 1 and 0 < power < 1):
        raise UsageError("alpha and power lie between 0 and 1")
    if churn.improved == churn.regressed:
        return None

    def reaches(n: int) -> bool:
        return all(mcnemar_power(n + more, churn, alpha=alpha) >= power for more in range(_STEADY))

    high = 8
    while not reaches(high):
        high *= 2
        if high > _MOST:
            return None
    low = high // 2
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
