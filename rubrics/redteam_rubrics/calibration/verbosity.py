"""Whether a judge's mistakes go with how much the agent said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_rubrics.calibration.agreement import interval_json, interval_of, quantile
from redteam_rubrics.statistics import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Correlation", "rank_correlation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """Spearman's rank correlation.

    Attributes:
        value: from -1 to 1.
        n: of how many pairs.
        interval: 95 %, by Fisher's transformation with the standard error of Bonett and Wright (2000); None
            for fewer than four pairs, or where the correlation is perfect.
    """

    value: float
    n: int
    interval: Interval | None

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "value": self.value,
            "n": self.n,
            "interval": interval_json(self.interval, "bonett-wright"),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Correlation:
        """The reverse of `to_json`."""
        return cls(value=data["value"], n=data["n"], interval=interval_of(data["interval"]))


def rank_correlation(
    one: Sequence[float], other: Sequence[float], confidence: float = 0.95
) -> Correlation | None:
    """Spearman's correlation of two equally long sequences; None where either of them never varies."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    from scipy.stats import spearmanr

    value = float(spearmanr(one, other).statistic)
    n = len(one)
    if n < 4 or math.isclose(abs(value), 1.0):
        return Correlation(value=value, n=n, interval=None)
    half = quantile(confidence) * math.sqrt((1 + value**2 / 2) / (n - 3))
    middle = math.atanh(value)
    return Correlation(
        value=value, n=n, interval=Interval(math.tanh(middle - half), math.tanh(middle + half))
    )
