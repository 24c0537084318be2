"""Tells the harness when the event loop does not turn, and which conversation's code holds it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["watch"]


def watch(
    loop: asyncio.AbstractEventLoop,
    stall_s: float,
    report: Callable[[asyncio.Task[Any] | None, float, str], None],
) -> None:
    """Watch a loop that runs in the calling thread; call `report(task, for_s, stack)` once for each stall.

    `report` runs in the watchdog's thread. A process that was stopped as a whole (SIGSTOP, a sleeping laptop)
    is not a stall: only time that the watchdog itself has lived through counts.
    """
    beats = [0]
    tick = min(1.0, stall_s / 4)

    def beat() -> None:
        beats[0] += 1
        loop.call_later(tick, beat)

    loop.call_soon(beat)
    thread = threading.get_ident()

    def run() -> None:
        seen, still_s, told, before = -1, 0.0, False, time.monotonic()
        while True:
            time.sleep(tick)
            now = time.monotonic()
            passed, before = min(now - before, 2 * tick), now
            if beats[0] != seen:
                seen, still_s, told = beats[0], 0.0, False
                continue
            still_s += passed
            if still_s > stall_s and not told:
                told = True
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
                report(asyncio.current_task(loop), still_s, stack)

    threading.Thread(target=run, name="redteam-serve-watchdog", daemon=True).start()
