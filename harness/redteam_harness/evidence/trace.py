"""The trace of one conversation: every event, in order, on disk as it happens."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.storage import json_text, writing

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["Event", "Trace", "now"]

Event = dict[str, Any]
"""One recorded fact: at least `kind`, `at` (UTC) and `turn`; docs/evidence.md lists the kinds."""


def now() -> str:
    """The current time as evidence writes it: UTC, milliseconds, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Trace:
    """Appends events to `trace.jsonl` and keeps them for the rules.

    A line is handed to the operating system at once, so a killed launcher leaves what was said until then;
    it is synced to disk when the trace is closed, before the journal says that the conversation finished.

    Attributes:
        events: all that was recorded.
        turn: the turn that is being held, from 1; 0 before the first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.events: list[Event] = []
        self.turn = 0
        with writing(path):
            self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def record(self, kind: str, turn: int, **facts: Any) -> Event:
        """Append one event of our own."""
        return self.append({"kind": kind, "at": now(), "turn": turn, **facts})

    def append(self, event: Event) -> Event:
        """Append an event that another process stamped."""
        self.events.append(event)
        with writing(self._path):
            self._file.write(json_text(event) + "\n")
            self._file.flush()
        return event

    def close(self) -> None:
        """Sync and close the file; more than once does no harm."""
        if self._file.closed:
            return
        with writing(self._path), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
