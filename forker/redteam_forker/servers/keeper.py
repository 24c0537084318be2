"""The supervisor of a kept cluster, which several processes use and none owns. It is run by its path.

    owner ═╗
    owner ═╬═ socket in a private directory ═► keeper ──► postgres
    owner ═╝

Who is connected is in; the kernel says who is out, however it died. The last one out ends the processes by a
fast stop, and the data stays. Otherwise as `servers/supervisor.py`, of which this is the other half: the plan
comes as the first line of whoever made the socket, then `keep` once it has written down where the cluster is.
docs/decisions/0004-shared-embedded-server.md has the whole of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ != "__main__" or TYPE_CHECKING:
    from redteam_forker.servers import supervisor
else:  # isolated, and without the packages that importing ours would take along
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import supervisor


class Owners(supervisor.Wishes):
    """Whoever is connected to a kept cluster's socket. When the last one is out, the wish is `stop`."""

    def __init__(self, listening: socket.socket) -> None:
        super().__init__()
        self.kept = True  # whether somebody wrote down where the cluster is
        self._listening = listening
        self._inside: dict[socket.socket, int | None] = {}
        self._leaving: list[socket.socket] = []  # they wait for the end

    def plan(self) -> dict[str, Any] | None:
        """The first line of the first one in, who made the socket and so is waiting in it already."""
        connection = self._let_in()
        data = b""
        while not data.endswith(b"\n"):
            piece = connection.recv(65536)
            if not piece:
                return None
            data += piece
        plan: dict[str, Any] = json.loads(data)
        return plan

    def _let_in(self) -> socket.socket:
        connection, _ = self._listening.accept()
        # A child that was forked off the owner may hold its end open, so its process is watched as well.
        watch = None
        with contextlib.suppress(OSError, AttributeError):  # not Linux, or a process that we cannot see
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            watch = os.pidfd_open(struct.unpack("3i", peer)[0])
        self._inside[connection] = watch
        return connection

    def wait(self, seconds: float) -> None:
        """Return when a child ended, somebody came, spoke or left, or the time is over."""
        watches = {watch: connection for connection, watch in self._inside.items() if watch is not None}
        doors = [self._listening] if self.wish is None else []
        ready = self._select([*doors, *self._inside, *watches], seconds)
        for item in ready:
            if item is self._listening:
                _send(self._let_in(), event="running")
            elif item in watches:
                self._out(watches[item])
            elif item in self._inside:
                self._hear(item)
        if not self._inside:
            self.wish = self.wish or "stop"

    def _hear(self, connection: socket.socket) -> None:
        try:
            words = connection.recv(4096).splitlines()
        except OSError:
            words = []
        if not words:
            self._out(connection)
        if b"keep" in words:
            self.kept = True
        if b"count" in words:
            _send(connection, event="owners", count=len(self._inside))

    def _out(self, connection: socket.socket) -> None:
        if connection not in self._inside:
            return
        watch = self._inside.pop(connection)
        if watch is not None:
            os.close(watch)
        if self._inside:
            connection.close()
        else:
            self._leaving.append(connection)

    def tell(self, event: str, **facts: object) -> None:
        """Send an event to all who are in."""
        for connection in self._inside:
            _send(connection, event=event, **facts)

    def shut(self) -> None:
        """Let nobody in any more. Who is waiting in the socket hears that it is over, and starts anew."""
        self.wish = self.wish or "stop"
        self._listening.close()

    def dismiss(self) -> None:
        """Tell all who are in, and who waited for it, that it is over."""
        for connection in (*self._inside, *self._leaving):
            connection.close()
        self._inside.clear()


def _send(connection: socket.socket, **event: object) -> None:
    with contextlib.suppress(OSError):  # it is gone, which the next wait shows
        connection.sendall(json.dumps(event).encode() + b"\n")


def keep(listening: int, new: list[str]) -> int:
    """Run a kept cluster until the last of its owners is out. Everything but its processes stays.

    Args:
        listening: the socket.
        new: directories that go if whoever made them died before the plan came.
    """
    if os.fork():
        os._exit(0)  # nobody's child, since whoever started it may be the first to leave
    os.setsid()
    owners = Owners(socket.socket(fileno=listening))
    plan = owners.plan()
    if plan is None:
        supervisor.remove({"remove": new})
        return 1
    clean, owners.kept = False, not plan["initialise"]
    try:
        if owners.kept or supervisor.initialise(plan, owners):
            supervisor.configure(plan)
            clean = supervisor.serve(plan, owners)
    except OSError as error:
        owners.tell("failed", message=f"{error.strerror}: {error.filename}")
    owners.shut()
    if not owners.kept:
        supervisor.remove(plan)
    if clean and owners.kept and plan["run"]:
        owners.dismiss()  # nobody waits for the disk
        _flush(plan)
    os.close(plan["lock_fd"])  # first, so that whoever waits for our end finds the cluster free
    return 0


def _flush(plan: dict[str, Any]) -> None:
    """Have all data on the disk, and leave a sign of it, so that it outlives the machine's next start."""
    if sys.platform == "linux":
        descriptor = os.open(plan["data"], os.O_RDONLY | os.O_DIRECTORY)
        failed = ctypes.CDLL(None).syncfs(descriptor)
        os.close(descriptor)
        if failed:
            return
    else:
        os.sync()
    sign = os.open(Path(plan["home"]) / "flushed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(sign, plan["run"].encode())
    os.fsync(sign)
    os.close(sign)


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), sys.argv[2:]))
