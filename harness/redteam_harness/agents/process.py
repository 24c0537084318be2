"""An agent process: `python -m redteam_sdk.serve`, spoken to in JSON lines over a socket pair.

The protocol is the SDK's and is written down in docs/sdk.md. The process leads a session of its own, so a
Ctrl-C at the terminal does not reach it; it ends when our end of the socket closes, also when we are killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL, STDOUT
from typing import TYPE_CHECKING, Any, Literal

import anyio
import structlog
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from redteam_harness.agents.agent import AgentFault, AgentLost
from redteam_harness.agents.code import AgentCode
from redteam_harness.agents.session import CLOSE_S, ProcessSession, Waiter
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.agents.agent import Opening
    from redteam_sdk.scripted import ScriptedFault

__all__ = ["AgentCommand", "AgentProcess"]

PROTOCOL_VERSION = 1
_MAX_LINE_BYTES = 16 * 2**20
_START_S = 60.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """How to start an agent process, and how patient to be with it.

    Attributes:
        interpreter: the Python that has the agent's packages and redteam-sdk.
        folder: where it starts; the first place it imports from.
        agent: `module:callable`, or None where the model's loop runs in the harness.
        tools: the module of the tools, or None.
        env: the process's whole environment.
        log: the file that takes what it writes to its standard output and error.
        stdout: whether a print of the agent's code voids its conversation (`fault`) or is kept (`record`).
        turn_s: how long it may take to answer one line, in seconds.
        faults: what external tools are to play in any conversation; the agent's code must have them.
    """

    interpreter: str
    folder: Path
    agent: str | None
    tools: str | None
    env: Mapping[str, str]
    log: Path
    stdout: Literal["fault", "record"]
    turn_s: float
    faults: Sequence[ScriptedFault] = ()

    @property
    def stall_s(self) -> float:
        """How long its event loop may stand still before the conversation that holds it is told."""
        return self.turn_s / 2


class AgentProcess:
    """One running process with the sessions in it. `serve` is its reader and must run in a task group."""

    def __init__(self, command: AgentCommand) -> None:
        self.command = command
        self.sessions: dict[str, ProcessSession] = {}
        self.lost: str | None = None
        self.tools: Sequence[Mapping[str, Any]] = ()
        self.code: AgentCode | None = None
        self.egress: tuple[str, ...] | None = None  # what its guard lets through, once it is armed
        self.secret = ""  # struck out of what is quoted of its output
        self._stopped = False
        self._waiters: dict[int, Waiter] = {}
        self._next = 0
        self._sending = anyio.Lock()  # guards the socket: one line at a time
        self._arming = Waiter()

    async def start(self, trust: Mapping[str, Any]) -> None:
        """Start the process and have it import the agent; `serve` must be started before anything is asked.

        Raises:
            UsageError: the interpreter or the agent cannot be used; says why.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [self.command.interpreter, "-m", "redteam_sdk.serve", "--fd", str(theirs.fileno())]
            try:
                with self.command.log.open("ab") as log:
                    self._process = await anyio.open_process(
                        argv,
                        cwd=self.command.folder,
                        env=dict(self.command.env),
                        stdin=DEVNULL,
                        stdout=log,
                        stderr=STDOUT,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                    )
            except OSError as error:
                ours.close()
                raise UsageError(
                    f"agent interpreter {self.command.interpreter} cannot be started: {error.strerror}"
                ) from None
        self._stream = await UNIXSocketStream.from_socket(ours)
        self._trust = trust

    async def serve(self) -> None:
        """Read what the process says until it ends; then fail whatever still waits for it."""
        lines = BufferedByteReceiveStream(self._stream)
        try:
            while True:
                line = await lines.receive_until(b"\n", _MAX_LINE_BYTES)
                self._hear(json.loads(line))
        except (
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            reason = "the agent process ended"
        except (anyio.DelimiterNotFound, ValueError):
            reason = "the agent process sent something that is not of the protocol"
        self._lose(reason)

    async def arm(self, own: Mapping[str, Any] | None = None) -> None:
        """Wait until the process has imported the agent and trusts our key.

        Args:
            own: what makes the process one conversation's: `token`, `environment` and `probe`; see
                docs/sdk.md.

        Raises:
            UsageError: it refused, or did not come up.
        """
        arm = {
            "op": "arm",
            "version": PROTOCOL_VERSION,
            "trust": self._trust,
            "agent": self.command.agent,
            "tools": self.command.tools,
            "stall_s": self.command.stall_s,
            "own": own,
        }
        named = self.command.agent or self.command.tools
        try:
            with anyio.fail_after(_START_S):
                await self._send(arm)
                await self._arming.done.wait()
        except TimeoutError:
            raise UsageError(
                f"agent {named} did not finish importing within {_START_S:g} s; "
                f"see its output in {self.command.log}"
            ) from None
        if self._arming.error is not None:
            raise self._arming.error
        assert self._arming.answer is not None
        allowed, wanted = self._arming.answer.get("egress"), list(self._trust.get("egress", ()))
        if allowed != wanted:
            raise UsageError(
                f"agent {named}: its redteam-sdk allows connections to {allowed}, and the suite to {wanted};"
                " install the harness's version of the SDK for the agent"
            )
        self.egress = tuple(allowed)
        self._check_faults(f"agent {named}", self._arming.answer.get("externals", {}))
        self.tools = self._arming.answer.get("tools", ())
        self.code = AgentCode.from_json(self._arming.answer.get("marked"))

    def _check_faults(self, agent: str, known: Mapping[str, Sequence[str]]) -> None:
        for name, fault in dict.fromkeys((one.external, one.fault) for one in self.command.faults):
            if name not in known:
                raise UsageError(
                    f"{agent} has no external tool {name!r}, which a case's `externals` names; "
                    f"it has {', '.join(known) or 'none'}"
                )
            if fault not in known[name]:
                raise UsageError(
                    f"external tool {name!r} of {agent} has no fault {fault!r}, which a case's `externals` "
                    f"names; it has {', '.join(known[name])}; others are added by @external(faults=...)"
                )

    async def open(self, opening: Opening) -> ProcessSession:
        """Start a session in this process."""
        session = ProcessSession(self, opening)
        self.sessions[opening.conversation] = session
        request: dict[str, Any] = {"op": "open", "token": opening.token}
        if opening.answers is not None:
            request["answers"] = list(opening.answers)
        try:
            answer = await session.ask(request, self.command.turn_s)
            if opening.answers is not None and answer.get("answers") != len(opening.answers):
                raise AgentFault(
                    "protocol",
                    "the agent's redteam-sdk knows nothing of recorded answers; install the harness's "
                    "version of the SDK for the agent",
                )
        except BaseException:
            self.sessions.pop(opening.conversation, None)
            raise
        session.database = str(answer["database"])
        for asked, database in answer.get("probes", {}).items():
            session.sink({"kind": "probe", "asked": asked, "database": database})
        return session

    async def ask(
        self, session: ProcessSession, request: Mapping[str, Any], deadline_s: float
    ) -> dict[str, Any]:
        """Ask the process something on behalf of a session, and wait for the answer."""
        if self.lost is not None:
            raise self._loss(session)
        self._next += 1
        number, waiter = self._next, Waiter()
        self._waiters[number] = session.waiters[number] = waiter
        try:
            with anyio.fail_after(deadline_s):
                await self._send({**request, "id": number, "conversation": session.conversation})
                await waiter.done.wait()
        except TimeoutError:
            raise AgentFault("hang", f"the agent did not answer within {deadline_s:g} s") from None
        finally:
            del self._waiters[number]
            session.waiters.pop(number, None)
        if waiter.error is not None:
            raise waiter.error
        assert waiter.answer is not None
        return waiter.answer

    async def stop(self) -> None:
        """End the process and whatever it started, politely, then not."""
        if self._stopped or not hasattr(self, "_process"):
            return
        self._stopped = True
        with anyio.CancelScope(shield=True):
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._stream.aclose()
            with anyio.move_on_after(CLOSE_S):
                await self._process.wait()
            self.kill()
            await self._process.wait()
            await self._process.aclose()

    def kill(self) -> None:
        """End the process and its process group now."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _send(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        async with self._sending:
            try:
                await self._stream.send(line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._lose("the agent process ended")

    def _hear(self, message: dict[str, Any]) -> None:
        session = self.sessions.get(str(message.get("conversation")))
        match message["op"]:
            case "armed":
                self._arming.answer = message
                self._arming.done.set()
            case "refused":
                self._arming.fail(UsageError(message["message"]))
            case "event" if session is not None:
                session.take(message["event"])
            case "printed":
                self._printed(session, str(message["text"]))
            case "stalled":
                self._stalled(session, message)
            case "event":
                _log.warning("agent_event_after_close", conversation=message.get("conversation"))
            case _:
                waiter = self._waiters.get(message.get("id", 0))
                if waiter is None:
                    return  # the answer to a question that was given up
                if message["op"] == "fault":
                    waiter.fail(
                        AgentFault(
                            message["cause"], message["message"], traceback=message.get("traceback") or ""
                        )
                    )
                else:
                    waiter.answer = message
                    waiter.done.set()

    def _printed(self, session: ProcessSession | None, text: str) -> None:
        if session is None or not text.strip():
            return
        session.sink({"kind": "printed", "text": text})
        if self.command.stdout == "fault":
            session.fail(
                AgentFault(
                    "printed",
                    f"the agent's code printed to standard output: {text.strip()[:80]!r}; "
                    "log to standard error, or set `stdout: record` under `agent` to keep prints",
                )
            )

    def _stalled(self, session: ProcessSession | None, message: Mapping[str, Any]) -> None:
        if session is not None:
            session.fail(
                AgentFault(
                    "hang",
                    f"the agent's code held its process for {float(message['for_s']):.1f} s without awaiting",
                    traceback=str(message.get("stack") or ""),
                )
            )
        self._lose("the agent process stood still")
        self.kill()

    def _lose(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        self._arming.fail(UsageError(f"{reason} before it served the agent{self._last_words()}"))
        for session in list(self.sessions.values()):
            for waiter in session.waiters.values():
                waiter.fail(self._loss(session))

    def _loss(self, session: ProcessSession) -> Exception:
        if session.failed is not None:
            return session.failed
        if len(self.sessions) > 1:
            return AgentLost(f"{self.lost} while {len(self.sessions)} conversations were in it")
        return AgentFault("crash", f"{self.lost}{self._last_words()}")

    def _last_words(self) -> str:
        try:
            text = self.command.log.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        last = text.rsplit("\n", 1)[-1].strip()
        if self.secret:
            last = last.replace(self.secret, "[secret]")
        return f"; the last line of {self.command.log.name}: {last[:200]}" if last else ""
