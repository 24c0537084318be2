"""What a warm pool has done, and is doing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a pool has done, and what it is doing.

    Attributes:
        warm: forks that wait to be checked out; one of them may be looked into just now.
        building: forks that are being made.
        waiting: callers who wait for one.
        created: forks that were made.
        visited: forks that were looked into while they waited, so that their first session answers sooner.
        checked_out: forks that were handed out.
        dropped: forks that were dropped, used or not.
        failed: builds that failed.
        discarded: warm forks that could not be handed out.
        undropped: names of forks that could not be dropped; the next sweep tries again.
        checkout_s: of the last checkout, from asking to having, in seconds.
        longest_checkout_s: of the longest.
    """

    warm: int = 0
    building: int = 0
    waiting: int = 0
    created: int = 0
    visited: int = 0
    checked_out: int = 0
    dropped: int = 0
    failed: int = 0
    discarded: int = 0
    undropped: tuple[str, ...] = ()
    checkout_s: float = 0.0
    longest_checkout_s: float = 0.0
