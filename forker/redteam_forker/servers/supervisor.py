"""The process between those who use an embedded server and PostgreSQL. It is run by its path.

    owner ──pipe──► supervisor ──► postgres

Its own session keeps it from a terminal's Ctrl-C. It makes the cluster, runs `postgres` in the foreground,
and ends it when the owner says so or is gone: the pipe is closed by the kernel however the owner died. When
the supervisor itself is killed, the kernel ends `postgres` (PR_SET_PDEATHSIG). Nothing is left behind: it
removes the cluster's directory last, and what a killed supervisor left, the next start sweeps.

Standard library only, and few modules of it: every millisecond here is one of each start. One JSON line in
(the plan, `servers/embedded.py` writes it), then `stop`; one JSON line out per event. `servers/keeper.py` is
the same for a cluster that is kept.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_FS_IOC_GETFLAGS = 0x80086601
_FS_IOC_SETFLAGS = 0x40086602
_FS_TOPDIR_FL = 0x00020000
_TAIL_BYTES = 64_000
_TAIL_LINES = 6
_COMPLAINTS = ("FATAL:", "PANIC:", "ERROR:", "error:", "could not")
_FAST_STOP_S = 10.0
_IMMEDIATE_STOP_S = 10.0
_HEARTBEAT_S = 2.0


class Wishes:
    """What is wanted of us, and the signals that wake us."""

    def __init__(self) -> None:
        self.wish: str | None = None  # `stop`, or `gone`
        self._wake, write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(write, False)
        # A child that ends, or a SIGTERM to us, wakes the select.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminated)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _terminated(self, *_: object) -> None:
        self.wish = self.wish or "stop"

    def _select(self, watched: list[Any], seconds: float) -> list[Any]:
        ready, _, _ = select.select([self._wake, *watched], [], [], min(seconds, _HEARTBEAT_S))
        if self._wake in ready:
            os.read(self._wake, 4096)
        return ready

    def wait(self, seconds: float) -> None:
        """Return when a child ended, a wish came in, or the time is over."""
        raise NotImplementedError

    def tell(self, event: str, **facts: object) -> None:
        """Send an event to whoever is there."""
        raise NotImplementedError

    def shut(self) -> None:
        """The server is being stopped: nobody new can have it."""


class Owner(Wishes):
    """The other end of the pipe."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getppid()

    def plan(self) -> dict[str, Any] | None:
        """The first line, or None when the owner died before it wrote one."""
        data = b""
        while not data.endswith(b"\n"):
            piece = os.read(0, 65536)
            if not piece:
                return None
            data += piece
        plan: dict[str, Any] = json.loads(data)
        return plan

    def wait(self, seconds: float) -> None:
        """Return when a child ended, a wish came in, or the time is over."""
        if 0 in self._select([] if self.wish == "gone" else [0], seconds):
            self.wish = "stop" if os.read(0, 4096) else "gone"
        # Somebody may have forked the owner and so hold our pipe open; a parent cannot be faked.
        if os.getppid() != self._pid:
            self.wish = "gone"

    def tell(self, event: str, **facts: object) -> None:
        """Send an event; an owner that is gone does not mind."""
        try:
            os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")
        except OSError:
            self.wish = "gone"


def main() -> int:
    """Make the cluster, run it until it is not wanted any more, remove it."""
    owner = Owner()
    plan = owner.plan()
    if plan is None:
        return 1
    try:
        if initialise(plan, owner):
            configure(plan)
            serve(plan, owner)
    except OSError as error:
        owner.tell("failed", message=f"{error.strerror}: {error.filename}")
    finally:
        remove(plan)
    return 0


def remove(plan: dict[str, Any]) -> None:
    """Remove all that the cluster has."""
    for directory in plan["remove"]:
        shutil.rmtree(directory, ignore_errors=True)


def _spawn(
    plan: dict[str, Any], argv: list[str], log: int, death_signal: signal.Signals
) -> subprocess.Popen[bytes]:
    """Start a program as the cluster's user, bound to our own life.

    It inherits the lock, so the lock is free only when no process of the cluster is left.
    """
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def bind() -> None:
        # Runs after the change of user, which would have cleared the death signal (P84).
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(death_signal))
            if os.getppid() != parent:
                os._exit(1)

    drop = {} if plan["uid"] is None else {"user": plan["uid"], "group": plan["gid"], "extra_groups": []}
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(plan["lock_fd"],),
        cwd=plan["data"],
        env=plan["env"],
        umask=0o077,
        start_new_session=True,
        preexec_fn=bind,
        **drop,
    )


def initialise(plan: dict[str, Any], owner: Wishes) -> bool:
    """Run initdb; whether there is a cluster now."""
    data, home = Path(plan["data"]), Path(plan["home"])
    secret = home / "secret"
    data.mkdir(mode=0o700)
    _give(data, plan)
    try:
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, plan["password"].encode() + b"\n")
        os.close(descriptor)
        _give(secret, plan)
        argv = [f"{plan['bin']}/initdb", f"--pgdata={data}", f"--pwfile={secret}", *plan["initdb"]]
        log = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        process = _spawn(plan, argv, log, signal.SIGKILL)
        os.close(log)
        while process.poll() is None:
            owner.wait(_HEARTBEAT_S)
            if owner.wish is not None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    finally:
        secret.unlink(missing_ok=True)
    if owner.wish is not None:
        return False
    if process.returncode != 0:
        owner.tell("failed", message=_tail(home / "log"))
        return False
    if plan["top_directory"]:
        _mark_top(data / "base")
    return True


def configure(plan: dict[str, Any]) -> None:
    """Write the configuration, and clear away what killed processes left."""
    data = Path(plan["data"])
    for name, text in plan["files"].items():
        (data / name).write_text(text, encoding="utf-8")
        _give(data / name, plan)
    # We hold the cluster's lock, so none of its processes lives: these are of killed ones, and PostgreSQL
    # believes in them where the process id is in use again.
    (data / "postmaster.pid").unlink(missing_ok=True)
    sockets = Path(plan["sockets"])
    sockets.mkdir(mode=0o700, exist_ok=True)
    _give(sockets, plan)
    for stale in sockets.iterdir():
        stale.unlink()


def serve(plan: dict[str, Any], owner: Wishes) -> bool:
    """Run `postgres` until it is not wanted any more; whether it ended in order."""
    home = Path(plan["home"])
    log = os.open(home / "log", os.O_WRONLY | os.O_TRUNC | os.O_APPEND, 0o600)
    process = _spawn(plan, [f"{plan['bin']}/postgres", "-D", plan["data"]], log, signal.SIGQUIT)
    os.close(log)
    owner.tell("started", pid=process.pid)
    while process.poll() is None and owner.wish is None:
        owner.wait(_HEARTBEAT_S)
    if process.poll() is not None:
        owner.tell("died", message=_tail(home / "log"))
        return False
    owner.shut()
    # SIGINT is a fast stop, SIGQUIT an immediate one. Killing comes last: it would leave children behind
    # (P86).
    steps = [
        (signal.SIGINT, _FAST_STOP_S),
        (signal.SIGQUIT, _IMMEDIATE_STOP_S),
        (signal.SIGKILL, _IMMEDIATE_STOP_S),
    ]
    for number, seconds in steps[1:] if owner.wish == "gone" else steps:
        process.send_signal(number)
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            owner.wait(deadline - time.monotonic())
            if owner.wish == "gone" and number == signal.SIGINT:
                break
        if process.poll() is not None:
            return number == signal.SIGINT and process.returncode == 0
    return False


def _give(path: Path, plan: dict[str, Any]) -> None:
    if plan["uid"] is not None:
        os.chown(path, plan["uid"], plan["gid"])


def _mark_top(base: Path) -> None:
    """`chattr +T`: ext4 then spreads the databases' directories, and stays fast for longer (P95)."""
    try:
        descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        raw = fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, struct.pack("l", 0))
        flags = struct.unpack("l", raw)[0] | _FS_TOPDIR_FL
        fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, struct.pack("l", flags))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _tail(log: Path) -> str:
    """The log's last complaints; its last lines where it has none (initdb's SQL follows its own errors)."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    complaints = [line for line in lines if any(word in line for word in _COMPLAINTS)]
    return "\n".join((complaints or lines)[-_TAIL_LINES:])


if __name__ == "__main__":
    sys.exit(main())
