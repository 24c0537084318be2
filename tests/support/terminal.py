"""`redteam` at a real pseudo terminal: what a person sees, types and interrupts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

from support.cli import REDTEAM, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Terminal", "at_a_terminal", "shown_at_a_terminal"]

_DEADLINE_S = 40.0
_ROWS, _COLUMNS = 50, 120


class Terminal:
    """A command that runs at a terminal.

    Attributes:
        process: the command.
        shown: all that it has shown so far.
    """

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.shown = ""
        self._master = master
        self._read = 0

    def expect(self, text: str) -> str:
        """Wait until `text` is shown after what was expected before; returns what was shown up to it."""
        deadline = time.monotonic() + _DEADLINE_S
        while text not in self.shown[self._read :]:
            assert self._more(deadline), f"{text!r} was never shown; instead: {self.shown[self._read :]}"
        end = self.shown.index(text, self._read) + len(text)
        before, self._read = self.shown[self._read : end], end
        return before

    def type(self, text: str) -> None:
        """Press these keys; Enter is `\\n`, Ctrl-C is `\\x03`, Ctrl-D is `\\x04`."""
        os.write(self._master, text.encode())

    def finish(self) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + _DEADLINE_S
        while self._more(deadline):
            pass
        return self.process.wait(_DEADLINE_S)

    def _more(self, deadline: float) -> bool:
        """Read some more; False when there is no more."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            found = os.read(self._master, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.shown += found.decode(errors="replace").replace("\r\n", "\n")
        return bool(found)


@contextlib.contextmanager
def at_a_terminal(*arguments: object, cwd: Path | None = None) -> Iterator[Terminal]:
    """Run `redteam` with a terminal of its own, which Ctrl-C is for; ended on exit if it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    process = subprocess.Popen(
        [str(REDTEAM), *map(str, arguments)],
        cwd=cwd,
        env=environment(TERM="xterm", NO_COLOR="1"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


def shown_at_a_terminal(*arguments: object, cwd: Path | None = None, **env: str) -> tuple[int, str]:
    """Run `redteam` to its end with a terminal to write to, and nobody who types.

    Args:
        arguments: of the command.
        cwd: where it runs.
        env: added to the environment; `TERM`, `COLUMNS` and `LINES` say how the terminal is.

    Returns:
        The exit code, and all that was written, with its escapes.
    """
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [str(REDTEAM), *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    written = bytearray()
    try:
        # Linux says by an error that the other side is closed.
        with contextlib.suppress(OSError):
            while chunk := os.read(master, 65536):
                written += chunk
        return process.wait(_DEADLINE_S), written.decode()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
