"""How long to wait before a call is tried again. Pure but for the clock that an HTTP date needs."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from redteam_harness.models.chat import ModelFault

__all__ = ["backoff_s", "retry_after_s"]

_FIRST_S = 0.5
_LONGEST_S = 30.0
_LONGEST_ASKED_S = 600.0


def backoff_s(fault: ModelFault, tries: int, random: Random) -> float:
    """Seconds until the next try: what the API asked for, else twice as long each time, with jitter.

    Args:
        fault: what the last try met.
        tries: how many tries there were, from 1.
        random: draws the jitter, so that conversations that failed together do not come back together.
    """
    if fault.retry_after_s is not None:
        return fault.retry_after_s * random.uniform(1, 1.1)
    longest = min(_LONGEST_S, _FIRST_S * 2 ** (tries - 1))
    return random.uniform(longest / 2, longest)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """What `retry-after-ms` or `retry-after` (seconds, or an HTTP date) asks for, in seconds; else None."""
    try:
        if "retry-after-ms" in headers:
            asked = float(headers["retry-after-ms"]) / 1000
        elif "retry-after" in headers:
            asked = _seconds(headers["retry-after"])
        else:
            return None
    except ValueError:
        return None
    return None if isnan(asked) else min(max(asked, 0.0), _LONGEST_ASKED_S)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
