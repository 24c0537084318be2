"""Figures in words, with what they rest on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["counted", "interval_of", "percent", "share_of"]


def counted(count: int, noun: str) -> str:
    """`1 conversation`, `2 conversations`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def percent(share: float) -> str:
    """A share of 1 as per cent; never rounded to all or to nothing."""
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return "over 99 %"
    if rounded == 0 and share > 0:
        return "under 1 %"
    return f"{rounded} %"


def interval_of(interval: Mapping[str, Any]) -> str:
    """`95 % interval 43 to 82 %`."""
    low, high = 100 * interval["low"], 100 * interval["high"]
    return f"{100 * interval['confidence']:.4g} % interval {low:.0f} to {high:.0f} %"


def share_of(count: int, of: int, interval: Mapping[str, Any] | None) -> str:
    """`65 %, 95 % interval 43 to 82 %`; where nothing counts, that there is no rate."""
    if not of or interval is None or interval["low"] is None:
        return "no rate: nothing counts"
    return f"{percent(count / of)}, {interval_of(interval)}"
