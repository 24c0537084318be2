"""The way to one model: who may call it now, first come, first served."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from redteam_harness.models.breaker import Breaker
from redteam_harness.models.chat import ModelFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redteam_harness.models.pace import Pace

__all__ = ["Lane"]

_LIMITED = frozenset({"rate_limited", "overloaded"})
_OF_THE_API = frozenset({"server", "unreachable", "cut", "stalled", "malformed"})


@dataclass(slots=True)
class Lane:
    """Pace and breaker of one model, and the queue before them.

    Attributes:
        pace: how many calls may be out.
        breaker: whether any may.
        clock: seconds; only goes forward.
        answered: whether the model ever answered.
    """

    pace: Pace
    clock: Callable[[], float]
    breaker: Breaker = field(default_factory=Breaker)
    answered: bool = False
    _queue: deque[object] = field(default_factory=deque)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def enter(self, waiting: Callable[[str, float], None]) -> bool:
        """Wait until a call may go out, and take its place; says whether it is the breaker's probe."""
        ticket = object()
        self._queue.append(ticket)
        try:
            while True:
                now = self.clock()
                if self._queue[0] is ticket and self.breaker.may_start(now) and self.pace.may_start(now):
                    break
                held_s = max(self.pace.held_s(now), self.breaker.held_s(now))
                waiting(self._why(now), held_s)
                # Whoever is not first, or waits for a call to come back, is woken by it.
                with anyio.move_on_after(held_s or None):
                    await self._changed.wait()
        finally:
            self._queue.remove(ticket)
            self._wake()
        self.pace.started()
        return self.breaker.started()

    @contextmanager
    def out(self, *, probe: bool) -> Iterator[None]:
        """A call that is out; what comes back decides when the next may go."""
        since = self.clock()
        try:
            yield
        except ModelFault as fault:
            self._faulted(fault, since, probe=probe)
            raise
        except BaseException:
            self.pace.dropped()
            self.breaker.dropped(probe=probe)
            raise
        else:
            self.answered = True
            self.pace.answered(self.clock())
            self.breaker.answered()
        finally:
            self._wake()

    def _faulted(self, fault: ModelFault, since: float, *, probe: bool) -> None:
        now = self.clock()
        if fault.kind in _LIMITED:
            self.pace.limited(now, since=since, retry_after_s=fault.retry_after_s)
            self.breaker.answered()
        elif fault.kind in _OF_THE_API:
            self.pace.failed(now)
            self.breaker.failed(now, probe=probe)
        else:  # the API is there and said no
            self.pace.dropped()
            self.breaker.answered()

    def _why(self, now: float) -> str:
        if self.breaker.open_until is not None:
            return f"the model's API failed {self.breaker.faults} times in a row; next try"
        if self.pace.held_s(now):
            return "the API asked to wait"
        return "other calls of this model"

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
