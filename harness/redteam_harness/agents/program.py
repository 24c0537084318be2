"""A program of any kind, on a leash: it ends when we say so, when we die, and with all that it started.

What it writes to its standard error goes to the launch's agent.log, each line under the conversation's name
and without its fork's secret. See `leash.py` for how it is held.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from anyio.abc import ByteReceiveStream, TaskGroup

__all__ = ["MAX_LINE_BYTES", "Program"]

MAX_LINE_BYTES = 16 * 2**20
_LEASH = Path(__file__).with_name("leash.py")
_START_S = 60.0
# The leash asks the program to end, waits two seconds, and kills it.
_END_S = 10.0
_GONE = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Program:
    """One run of a program.

    Attributes:
        status: how it ended, where it did: its exit status, or below 0 the signal.
        ended: set once nothing of it runs any more.
        stopped: whether it ran when we ended it.
        last_words: its last line on standard error.

    Args:
        argv: the program and its arguments.
        folder: where it starts.
        env: its whole environment; secret.
        name: what its lines in the log go under.
        secret: struck out of all that is kept of its output.
        log: the file that takes what it writes to its standard error.
    """

    def __init__(
        self, argv: Sequence[str], *, folder: Path, env: Mapping[str, str], name: str, secret: str, log: Path
    ) -> None:
        self.argv = argv
        self.last_words = ""
        self.status: int | None = None
        self.ended = anyio.Event()
        self._folder = folder
        self._env = env
        self._name = name
        self._secret = secret
        self._log = log
        self.stopped = self._released = False

    async def start(self, tasks: TaskGroup) -> None:
        """Start it; `tasks` takes what watches it.

        Raises:
            UsageError: it cannot be started, and why.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-S", str(_LEASH), str(theirs.fileno()), *self.argv]
            try:
                self._process = await anyio.open_process(
                    command,
                    cwd=self._folder,
                    env=dict(self._env),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=PIPE,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._control = await UNIXSocketStream.from_socket(ours)
        control = BufferedByteReceiveStream(self._control)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output = _lines(self._process.stdout)
        tasks.start_soon(self._keep_errors, self._process.stderr)
        try:
            with anyio.fail_after(_START_S):
                first = json.loads(await control.receive_until(b"\n", MAX_LINE_BYTES))
        except (TimeoutError, *_GONE):
            first = {"failed": "what starts it ended"}
        if "failed" in first:
            await self.stop()
            raise UsageError(f"{self.argv[0]!r} cannot be started in {self._folder}: {first['failed']}")
        tasks.start_soon(self._see_end, control)

    async def send(self, line: bytes) -> None:
        """Write to its standard input. A program that has ended takes nothing; `ended` tells."""
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.send(line)

    async def receive(self) -> str:
        """The next line of its standard output, without its secret; a longer one than MAX_LINE_BYTES is cut.

        Raises:
            EOFError: there is no further one.
        """
        async for line in self._output:
            return self._clean(line)
        raise EOFError

    async def finish_input(self) -> None:
        """Close its standard input, which asks it to end."""
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.aclose()

    async def stop(self) -> None:
        """End it and everything that it started; returns when nothing of it runs any more."""
        if self._released or not hasattr(self, "_process"):
            return
        self._released, self.stopped = True, not self.ended.is_set()
        with anyio.CancelScope(shield=True):
            with suppress(*_GONE):
                await self._control.send(b"stop\n")
            with anyio.move_on_after(_END_S):
                await self._process.wait()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            with anyio.move_on_after(1):  # what the leash said last is still to be read
                await self.ended.wait()
            await self._control.aclose()
            await self._process.aclose()
            self.ended.set()

    def end(self) -> str:
        """How it ended, in words, with its last line of standard error."""
        if self.status is None:
            how = "closed its standard output"
        elif self.status < 0:
            how = f"was ended by {signal.Signals(-self.status).name}"
        else:
            how = f"ended with status {self.status}"
        return f"{how}; its last words on standard error: {self.last_words}" if self.last_words else how

    async def _see_end(self, control: BufferedByteReceiveStream) -> None:
        with suppress(*_GONE):
            last = json.loads(await control.receive_until(b"\n", MAX_LINE_BYTES))
            self.status = last["ended"]
        self.ended.set()

    async def _keep_errors(self, stream: ByteReceiveStream) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            async for line in _lines(stream):
                text = self._clean(line).rstrip()
                self.last_words = text[-200:].strip() or self.last_words
                log.write(f"{self._name}  {text}\n")
                log.flush()

    def _clean(self, line: bytes) -> str:
        return line.decode(errors="replace").replace(self._secret, "[secret]")


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """The stream's lines without their ends, the last also where it has none; long ones in pieces."""
    buffered = BufferedByteReceiveStream(stream)
    while True:
        try:
            line = await buffered.receive_until(b"\n", MAX_LINE_BYTES)
        except anyio.DelimiterNotFound:
            line = await buffered.receive_exactly(MAX_LINE_BYTES)
        except anyio.IncompleteRead:
            if buffered.buffer:
                yield buffered.buffer
            return
        except _GONE:
            return
        yield line
