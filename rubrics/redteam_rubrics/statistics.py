"""The statistics over verdicts. scipy is imported where it is used: it costs half a second at start."""

from __future__ import annotations

from typing import NamedTuple

from redteam_sdk.errors import InternalError

__all__ = ["Interval", "wilson"]


class Interval(NamedTuple):
    """A confidence interval of a rate, both ends between 0 and 1."""

    low: float
    high: float


def wilson(passed: int, n: int, confidence: float = 0.95) -> Interval | None:
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
    if n == 0:
        return None
    from scipy.stats import binomtest

    found = binomtest(passed, n).proportion_ci(confidence_level=confidence, method="wilson")
    return Interval(float(found.low), float(found.high))
