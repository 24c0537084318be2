"""What Python code writes to sys.stdout, line by line, with the conversation that wrote it."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any, TextIO

from redteam_sdk.context import current_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Printed"]

_MAX_LINE = 65_536


class Printed(io.TextIOBase):
    """Stands in for sys.stdout: passes text on to the real one and reports each whole line.

    C code that writes to file descriptor 1 goes past it.
    """

    def __init__(self, real: TextIO | None, report: Callable[[str | None, str], None]) -> None:
        super().__init__()
        self._real = real
        self._report = report
        self._partial: dict[str | None, str] = {}
        # Guards the partial lines; several threads of the agent may print.
        self._lock = threading.Lock()
        self._bytes = _PrintedBytes(self)

    @property
    def buffer(self) -> _PrintedBytes:
        """For code that writes bytes."""
        return self._bytes

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Always UTF-8."""
        return "utf-8"

    def fileno(self) -> int:
        """The real one, for subprocesses that inherit it."""
        if self._real is None:
            raise io.UnsupportedOperation("this process has no standard output")
        return self._real.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Take some text; lines are told apart for each conversation."""
        context = current_or_none()
        owner = context.conversation if context is not None else None
        with self._lock:
            *lines, rest = (self._partial.pop(owner, "") + text).split("\n")
            while len(rest) > _MAX_LINE:
                lines.append(rest[:_MAX_LINE])
                rest = rest[_MAX_LINE:]
            if rest:
                self._partial[owner] = rest
        self._pass_on(text)
        for line in lines:
            self._report(owner, line)
        return len(text)

    def finish(self, owner: str | None) -> None:
        """Report what a conversation has printed without ending the line."""
        with self._lock:
            rest = self._partial.pop(owner, "")
        if rest:
            self._report(owner, rest)

    def flush(self) -> None:
        """Nothing waits: text is passed on as it comes."""

    def _pass_on(self, text: str) -> None:
        try:
            if self._real is not None:
                self._real.write(text)
                self._real.flush()
        except (OSError, ValueError):
            self._real = None  # nobody reads it any more; that is not the agent's concern


class _PrintedBytes(io.RawIOBase):
    def __init__(self, text: Printed) -> None:
        super().__init__()
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._text.write(raw.decode("utf-8", errors="replace"))
        return len(raw)
