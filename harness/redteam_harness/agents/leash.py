"""Runs an agent's program as long as its owner wants it, and ends it with everything it started.

    owner ──socket──► leash ──► program ──► whatever that starts

It is run by its path: `leash.py FD PROGRAM [ARGUMENT...]`. The program has our standard input, output and
error. The owner writes `stop` (ask the program to end, then end it), or is gone: the kernel closes the socket
however it died. We tell the owner `{"started": pid}` or `{"failed": why}`, in the end `{"ended": status}`, as
Python counts: below 0 it is a signal. When the program has ended, what it left behind is ended too, daemons
included: on Linux they become our children (PR_SET_CHILD_SUBREAPER). When we are killed, the kernel ends it.

Standard library only, and little of it: every millisecond here is one of each conversation.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 2.0
_KILL_S = 5.0


def main() -> int:
    """Run the program until it ends, or until it is not wanted any more."""
    control, argv = int(sys.argv[1]), sys.argv[2:]
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    us = os.getpid()

    def bind() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != us:
                os._exit(1)

    try:
        program = subprocess.Popen(argv, start_new_session=True, preexec_fn=bind)
    except (OSError, subprocess.SubprocessError) as error:
        _tell(control, failed=getattr(error, "strerror", None) or str(error))
        return 127
    # The program alone holds its input and output: their end must be seen by it, and by the owner.
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    _tell(control, started=program.pid)
    if not _wait(program, wake, control, None):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
        _wait(program, wake, control, _GRACE_S)
    _end_all(program)
    _tell(control, ended=program.returncode)
    return 0


def _wait(program: subprocess.Popen[bytes], wake: int, control: int, seconds: float | None) -> bool:
    """Wait until the program has ended (true), or the owner said something, is gone, or the time is over."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while program.poll() is None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([wake, control], [], [], left)
        if wake in ready:
            os.read(wake, 4096)
        elif control in ready:
            if not os.read(control, 4096):  # the owner is gone: nobody waits for an orderly end
                _kill(program.pid)
            if seconds is None:
                return program.poll() is not None
        else:
            return False
    return True


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _end_all(program: subprocess.Popen[bytes]) -> None:
    """Kill the program's group, then whoever became our child, until nobody is left."""
    _kill(program.pid)
    program.wait()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        for child in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    us, found = str(os.getpid()), []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            # The command's name may hold anything, parentheses too.
            if entry.read_text(errors="replace").rpartition(")")[2].split()[1] == us:
                found.append(int(entry.parent.name))
    return found


def _tell(control: int, **facts: object) -> None:
    with contextlib.suppress(OSError):
        os.write(control, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
