"""A circuit breaker for one model: after faults in a row nothing is sent but one probe at a time. Pure.

closed ── `_FAULTS` faults in a row ──► open ── its time is over ──► half-open: one probe
   ▲                                      ▲                              │
   └──────────── the probe is answered ───┼──────────────────────────────┤
                                          └── it fails: twice as long ───┘
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Breaker"]

_FAULTS = 5
_FIRST_S = 2.0
_LONGEST_S = 60.0


@dataclass(slots=True)
class Breaker:
    """The breaker of one model. Rate limits are no faults here: an API that limits is there.

    Attributes:
        faults: how many there were in a row.
        open_until: while it is open: when the next probe may go out; None while it is closed.
        opened_at: when it opened, None while it is closed.
    """

    faults: int = 0
    open_until: float | None = None
    opened_at: float | None = None
    _probes: int = 0
    _probing: bool = False

    def may_start(self, now: float) -> bool:
        """Whether a call may go out; while it is open, one may, as the probe, once the pause is over."""
        return self.open_until is None or (now >= self.open_until and not self._probing)

    def held_s(self, now: float) -> float:
        """How long until a probe may go out."""
        return 0.0 if self.open_until is None else max(0.0, self.open_until - now)

    def started(self) -> bool:
        """A call goes out; says whether it is the probe. Exactly one of the three below must follow."""
        self._probing = self.open_until is not None
        return self._probing

    def answered(self) -> None:
        """The API answered, or limited us: it is there."""
        self.faults, self._probes, self._probing = 0, 0, False
        self.open_until = self.opened_at = None

    def failed(self, now: float, *, probe: bool) -> None:
        """A call met a fault of the API's."""
        self.faults += 1
        if probe:
            self._probes += 1
            self._probing = False
        elif self.faults < _FAULTS or self.open_until is not None:
            return  # not enough in a row; or it went out before the breaker opened
        if self.opened_at is None:
            self.opened_at = now
        self.open_until = now + min(_LONGEST_S, _FIRST_S * 2**self._probes)

    def dropped(self, *, probe: bool) -> None:
        """A call was given up; a probe that was is none."""
        if probe:
            self._probing = False
