"""Shares with their intervals, and agreement beyond chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_rubrics.statistics import Interval, wilson
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Kappa", "Share", "cohen_kappa", "interval_json", "interval_of", "quantile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`count` of `n`. Of nothing there is no share, and no interval."""

    count: int
    n: int

    @property
    def share(self) -> float | None:
        """Between 0 and 1; None for n = 0."""
        return self.count / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95 % interval; None for n = 0."""
        return wilson(self.count, self.n)

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data, with share and interval for readers that do not compute."""
        return {
            "count": self.count,
            "n": self.n,
            "share": self.share,
            "interval": interval_json(self.interval, "wilson"),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Share:
        """The reverse of `to_json`."""
        return cls(count=data["count"], n=data["n"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kappa:
    """Cohen's kappa: agreement beyond what two raters would have by chance; 1 is all, 0 is chance.

    Attributes:
        value: kappa.
        interval: its 95 % interval for large samples; None where the formula has no width to give: the two
            agree in everything, or in nothing.
    """

    value: float
    interval: Interval | None

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "value": self.value,
            "interval": interval_json(self.interval, "fleiss-cohen-everitt"),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Kappa:
        """The reverse of `to_json`."""
        return cls(value=data["value"], interval=interval_of(data["interval"]))


def cohen_kappa(table: Sequence[Sequence[int]], confidence: float = 0.95) -> Kappa | None:
    """Cohen's kappa of two raters (Cohen 1960), with the interval of Fleiss, Cohen and Everitt (1969).

    Args:
        table: how often the first rater gave category i where the second gave j; square.
        confidence: of the interval.

    Returns:
        None where kappa is undefined: there is nothing to compare, or both raters gave one and the same
        category throughout, so that chance alone explains all agreement.

    Raises:
        InternalError: the table is not square.
    """
    size = len(table)
    if any(len(row) != size for row in table):
        raise InternalError("an agreement table has as many columns as rows")
    n = sum(map(sum, table))
    if n == 0:
        return None
    p = [[count / n for count in row] for row in table]
    rows = [sum(row) for row in p]
    columns = [sum(row[j] for row in p) for j in range(size)]
    observed = sum(p[i][i] for i in range(size))
    expected = sum(rows[i] * columns[i] for i in range(size))
    if math.isclose(expected, 1.0):
        return None
    kappa = (observed - expected) / (1 - expected)
    agreeing = sum(p[i][i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in range(size))
    differing = (1 - kappa) ** 2 * sum(
        p[i][j] * (columns[i] + rows[j]) ** 2 for i in range(size) for j in range(size) if i != j
    )
    chance = (kappa - expected * (1 - kappa)) ** 2
    variance = (agreeing + differing - chance) / (n * (1 - expected) ** 2)
    if variance <= 1e-12:  # nothing but rounding is left of it
        return Kappa(value=kappa, interval=None)
    half = quantile(confidence) * math.sqrt(variance)
    return Kappa(value=kappa, interval=Interval(max(-1.0, kappa - half), min(1.0, kappa + half)))


def quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval reaches to either side."""
    from scipy.stats import norm

    return float(norm.ppf((1 + confidence) / 2))


def interval_json(interval: Interval | None, method: str, confidence: float = 0.95) -> dict[str, Any] | None:
    """An interval as JSON-like data, with how it was made; None stays None."""
    if interval is None:
        return None
    return {"method": method, "confidence": confidence, "low": interval.low, "high": interval.high}


def interval_of(data: Mapping[str, Any] | None) -> Interval | None:
    """The reverse of `interval_json`."""
    return None if data is None else Interval(data["low"], data["high"])
