"""A pass rate that a judge gave, with the mistakes that it is known to make taken out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from redteam_rubrics.calibration.agreement import Share, interval_json, quantile
from redteam_rubrics.statistics import Interval

__all__ = ["Corrected", "corrected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """The share of conversations that would pass if people judged all of them, as far as labels can tell.

    Attributes:
        raw: what the judge passed, of what it decided.
        share: the estimate of Rogan and Gladen (1978), kept between 0 and 1; None where it is undefined.
        interval: the 95 % interval of Lang and Reiczigel (2014). It knows that the judge's mistakes were
            measured on few labels, so it is wider than that of the raw rate.
        clipped: whether the estimate lay outside of 0 to 1 and was put on the edge: the labels and this run
            do not go together well, or there are too few of either.
        undefined: why there is no estimate, in words; empty where there is one.
    """

    raw: Share
    share: float | None = None
    interval: Interval | None = None
    clipped: bool = False
    undefined: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "raw": self.raw.to_json(),
            "share": self.share,
            "interval": interval_json(self.interval, "lang-reiczigel"),
            "clipped": self.clipped,
            "undefined": self.undefined,
        }


def corrected(raw: Share, pass_recall: Share, fail_recall: Share, *, confidence: float = 0.95) -> Corrected:
    """Correct a judge's pass rate.

    Args:
        raw: what the judge passed, of what it decided.
        pass_recall: of what people passed, what the judge passed.
        fail_recall: of what people failed, what the judge failed.
        confidence: of the interval.
    """
    if not raw.n:
        return Corrected(raw=raw, undefined="the judge decided nothing")
    if not pass_recall.n or not fail_recall.n:
        lacking = "pass" if not pass_recall.n else "fail"
        return Corrected(raw=raw, undefined=f"no label says {lacking}, so half of its mistakes are not known")
    rate, on_pass, on_fail = (one.count / one.n for one in (raw, pass_recall, fail_recall))
    informed = on_pass + on_fail - 1
    if informed <= 0:
        return Corrected(raw=raw, undefined="the judge is no better than chance, so its rate says nothing")
    estimate = (rate + on_fail - 1) / informed
    return Corrected(
        raw=raw,
        share=min(1.0, max(0.0, estimate)),
        interval=_lang_reiczigel(raw, pass_recall, fail_recall, quantile(confidence)),
        clipped=not 0 <= estimate <= 1,
    )


def _lang_reiczigel(raw: Share, pass_recall: Share, fail_recall: Share, z: float) -> Interval | None:
    """Their interval: normal, around an estimate of shares that are each drawn a little to the middle.

    None where that leaves a judge that is no better than chance.
    """
    n, n_pass, n_fail = raw.n + z * z, pass_recall.n + 2, fail_recall.n + 2
    rate = (raw.count + z * z / 2) / n
    on_pass, on_fail = (pass_recall.count + 1) / n_pass, (fail_recall.count + 1) / n_fail
    informed = on_pass + on_fail - 1
    if informed <= 0:
        return None
    share = (rate + on_fail - 1) / informed
    of_pass = on_pass * (1 - on_pass) / n_pass
    of_fail = on_fail * (1 - on_fail) / n_fail
    shift = 2 * z * z * (share * of_pass - (1 - share) * of_fail)
    variance = rate * (1 - rate) / n + share**2 * of_pass + (1 - share) ** 2 * of_fail
    half = z * math.sqrt(variance) / informed
    low, high = share + shift - half, share + shift + half
    return Interval(min(1.0, max(0.0, low)), min(1.0, max(0.0, high)))
