"""A seat at the keeper of a kept cluster: how it is taken, what is said there, and how the keeper is run."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import embedded, keeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anyio.abc import SocketStream

    from redteam_forker.servers.homes import Home

__all__ = ["GoneError", "Seat", "listening", "run_keeper"]

_LONGEST_EVENT_BYTES = 1 << 16


class GoneError(Exception):
    """The keeper ended, and said why or nothing. Never leaves `open_shared`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Our connection at the keeper: as long as it is open, the cluster runs for us."""

    stream: SocketStream
    events: BufferedByteReceiveStream

    @classmethod
    async def take(cls, control: Path) -> Seat:
        """Sit down; raises OSError where nobody listens."""
        stream = await anyio.connect_unix(control)
        return cls(stream=stream, events=BufferedByteReceiveStream(stream))

    async def say(self, text: str) -> None:
        """Tell the keeper one line."""
        try:
            await self.stream.send(text.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise GoneError("") from error

    async def hear(self) -> dict[str, Any]:
        """The keeper's next word."""
        try:
            line = await self.events.receive_until(b"\n", _LONGEST_EVENT_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise GoneError("") from error
        event: dict[str, Any] = json.loads(line)
        if event["event"] in ("died", "failed"):
            raise GoneError(event["message"])
        return event

    async def give_up(self) -> None:
        """Leave, and wait until the keeper has done all that follows from it."""
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, GoneError):
            await self.stream.send_eof()
            while True:
                await self.hear()


@contextlib.contextmanager
def listening(home: Home) -> Iterator[socket.socket]:
    """The socket that the keeper is to accept from, made here so that we can be the first to wait in it."""
    home.control.parent.mkdir(mode=0o700, exist_ok=True)
    home.control.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(os.fspath(home.control))
        door.listen(64)
        yield door


def run_keeper(folder: Path, home: Home, door: socket.socket, *, new: bool) -> None:
    """Run the keeper. It leaves us at once; only its first process, which ends at once, is our child."""
    made = home.remove if new else ()
    log = os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", keeper.__file__, str(door.fileno()), *map(str, made)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=embedded.environment(),
            start_new_session=True,
            pass_fds=(home.lock_fd, door.fileno()),
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerUnavailable(f"PostgreSQL's supervisor cannot be run: {error}") from error
    finally:
        os.close(log)
