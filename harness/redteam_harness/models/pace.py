"""How many calls of one model may be out at once: found by trying, as TCP finds a path's width. Pure.

It rises by about one for each round of answers, and only where calls wait for it; a 429 or 529 halves it,
once for all calls that were out together. An API that says how long to wait is left alone for so long.
Errors of the server say nothing about our pace, so they only stop the rise for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]

_FIRST = 4.0
_STILL_S = 10.0


@dataclass(slots=True, kw_only=True)
class Pace:
    """The pace of one model. `now` is any clock that only goes forward, in seconds.

    Attributes:
        ceiling: never more than this.
        limit: how many may be out now, fractions kept.
        out: how many are.
        held_until: before this, none goes out.
        still_until: before this, the limit does not rise.
    """

    ceiling: int
    limit: float = _FIRST
    out: int = 0
    held_until: float = 0.0
    still_until: float = 0.0
    _cut_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.limit = min(self.limit, float(self.ceiling))

    def may_start(self, now: float) -> bool:
        """Whether a call may go out."""
        return self.out < int(self.limit) and now >= self.held_until

    def held_s(self, now: float) -> float:
        """How long the API is left alone, in seconds from now."""
        return max(0.0, self.held_until - now)

    def started(self) -> None:
        """A call goes out. Exactly one of the four below must follow."""
        self.out += 1

    def answered(self, now: float) -> None:
        """It was answered."""
        full = self.out >= int(self.limit)
        self.out -= 1
        if full and now >= self.still_until:
            self.limit = min(float(self.ceiling), self.limit + 1 / self.limit)

    def limited(self, now: float, *, since: float, retry_after_s: float | None) -> None:
        """It met a 429 or 529; `since` is when it went out."""
        self.out -= 1
        if since >= self._cut_at:
            self.limit = max(1.0, self.limit / 2)
            self._cut_at = now
        if retry_after_s is not None:
            self.held_until = max(self.held_until, now + retry_after_s)

    def failed(self, now: float) -> None:
        """It met an error that is not about our pace."""
        self.out -= 1
        self.still_until = now + _STILL_S

    def dropped(self) -> None:
        """It was given up."""
        self.out -= 1
