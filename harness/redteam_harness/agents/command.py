"""`agent: {command: [...]}`: a program of any kind, run once for each conversation with its fork's address.

It is asked in JSON lines, `{"conversation": ..., "turn": ..., "text": ...}` on its standard input, and
answers each with one line, `{"reply": ...}`, on its standard output; docs/agents.md says it all. With
`serves:` it is asked by HTTP instead (`serving.py`).
"""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.agents.address import addresses
from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.program import MAX_LINE_BYTES, Program
from redteam_harness.agents.serving import PortSession, free_port
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup

    from redteam_harness.agents.agent import AgentSession, Opening
    from redteam_harness.agents.serving import Serving

__all__ = ["LinesSession", "ProgramAgent", "ProgramCommand", "program_agent"]

_ASK_ADDRESSES = (sys.executable, "-P", "-m", "redteam_sdk.serve.probe")
_MAX_PROBE_LINES = 100
_PROBE_S = 60.0
_CLOSE_S = 2.0
# Long enough to see that an import fails: a program says so only by its end.
_REHEARSAL_S = 10.0
_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCommand:
    """How to run an agent's program.

    Attributes:
        argv: the program and its arguments.
        probe: a program that prints `current_database()` as the agent's code sees it, or None.
        folder: where both start.
        env: their environment, without the fork's address.
        addresses: templates of the fork's address, by the variable that takes them.
        log: the file that takes what they write to their standard error.
        turn_s: how long the program may take to answer one line, in seconds.
        serving: how it takes lines by HTTP, or None where it reads them.
    """

    argv: Sequence[str]
    probe: Sequence[str] | None
    folder: Path
    env: Mapping[str, str] = field(repr=False)
    addresses: Mapping[str, str]
    log: Path
    turn_s: float
    serving: Serving | None = None


class ProgramAgent:
    """Opens each session in a run of the program. `tasks` takes what watches the runs."""

    def __init__(self, command: ProgramCommand, tasks: TaskGroup) -> None:
        self._command = command
        self._tasks = tasks
        self._programs: set[Program] = set()
        self._ports: set[int] = set()

    async def open(self, opening: Opening) -> AgentSession:
        """Probe the fork's address, and start the program; see `Agent`."""
        try:
            return await self._open(opening)
        except UsageError as error:
            # It could be started when the launch began: what is different now is this conversation.
            raise AgentFault("start", str(error)) from None

    async def rehearse(self, opening: Opening) -> None:
        """Open a session and close it, to see before the first conversation that it can be done.

        Raises:
            UsageError: the program cannot be started.
            AgentFault: a probe sees something else than the fork, or the program did not end in order.
        """
        session = await self._open(opening)
        await session.close(patience_s=_REHEARSAL_S)
        if session.failed is not None:
            raise session.failed

    async def stop(self) -> None:
        """End every program."""
        async with anyio.create_task_group() as stopping:
            for program in self._programs:
                stopping.start_soon(program.stop)

    async def _open(self, opening: Opening) -> LinesSession | PortSession:
        handed = addresses(self._command.addresses, opening.fork)
        await self._probe(opening, handed)
        if self._command.serving is not None:
            return await self._open_port(opening, handed, self._command.serving)
        program = await self._start(self._command.argv, opening, handed)
        session = LinesSession(program, opening, turn_s=self._command.turn_s)
        self._tasks.start_soon(session.listen)
        return session

    async def _open_port(self, opening: Opening, handed: Mapping[str, str], serving: Serving) -> PortSession:
        port = free_port(self._ports)
        argv = [argument.replace("{port}", str(port)) for argument in self._command.argv]
        program = await self._start(argv, opening, handed)
        session = PortSession(program, opening, serving, port, turn_s=self._command.turn_s)
        self._tasks.start_soon(session.drain)
        try:
            await session.ready()
        except BaseException:
            await session.close()
            raise
        return session

    async def _start(self, argv: Sequence[str], opening: Opening, handed: Mapping[str, str]) -> Program:
        program = Program(
            argv,
            folder=self._command.folder,
            env={**self._command.env, **handed},
            name=opening.conversation,
            secret=opening.fork.password,
            log=self._command.log,
        )
        self._programs.add(program)
        await program.start(self._tasks)
        return program

    async def _probe(self, opening: Opening, handed: Mapping[str, str]) -> None:
        """Have a process in the program's environment say what database it sees; it must be the fork."""
        own = self._command.probe
        said = await self._output_of(own or (*_ASK_ADDRESSES, *handed), opening, handed)
        seen = {f"probe {own[0]}": said} if own else json.loads(said)
        if not seen:
            raise AgentFault(
                "isolation",
                f"nothing says where {', '.join(handed)} leads: no form of address that can be tried; "
                "give the agent a `probe`",
            )
        for asked, database in seen.items():
            opening.sink({"kind": "probe", "asked": asked, "database": database})
            if database != opening.fork.name:
                raise AgentFault(
                    "isolation",
                    f"{asked} leads to database {database[:_SHOWN]!r}, not to this conversation's fork; "
                    "nothing was said to the agent",
                )

    async def _output_of(self, argv: Sequence[str], opening: Opening, handed: Mapping[str, str]) -> str:
        program = await self._start(argv, opening, handed)
        lines: list[str] = []
        try:
            with anyio.fail_after(_PROBE_S):
                await program.finish_input()
                try:
                    while len(lines) < _MAX_PROBE_LINES:
                        lines.append(await program.receive())
                except EOFError:
                    pass
                await program.ended.wait()
        except TimeoutError:
            raise AgentFault(
                "isolation", f"the probe {argv[0]!r} did not answer within {_PROBE_S:g} s"
            ) from None
        finally:
            await program.stop()
            self._programs.discard(program)
        if program.status != 0:
            raise AgentFault("isolation", f"the probe {argv[0]!r} {program.end()}")
        return "\n".join(lines).strip()


class LinesSession:
    """One conversation with a program in JSON lines. `listen` must run in a task group.

    Attributes:
        failed: why the conversation is void, once it is.
    """

    def __init__(self, program: Program, opening: Opening, *, turn_s: float) -> None:
        self.failed: AgentFault | None = None
        self._program = program
        self._conversation = opening.conversation
        self._database = opening.fork.name
        self._turn_s = turn_s
        self._asked = self._closing = self._told = False
        self._answer: str | None = None
        self._heard = anyio.Event()
        self._over = anyio.Event()

    @property
    def database(self) -> str:
        """What every probe said; see `AgentSession`."""
        return self._database

    async def listen(self) -> None:
        """Take the program's lines until it ends. One that nobody asked for voids the conversation."""
        try:
            while True:
                line = await self._program.receive()
                if not self._asked:
                    self._fail("protocol", f"the program wrote without being asked: {_shown(line)}")
                elif len(line) >= MAX_LINE_BYTES:
                    self._fail("protocol", f"the program wrote a line longer than {MAX_LINE_BYTES} bytes")
                else:
                    self._asked, self._answer = False, line
                    self._heard.set()
        except EOFError:
            with anyio.move_on_after(_CLOSE_S):
                await self._program.ended.wait()
            in_order = self._program.stopped or self._program.status == 0
            if not self._closing or not in_order:
                self._fail("crash", f"the program {self._program.end()}")
        finally:
            self._over.set()

    async def turn(self, number: int, text: str) -> str:
        """Hand the line over and have the reply; see `AgentSession`."""
        self._told = True  # whatever has failed by now is raised here
        if self.failed is not None:
            raise self.failed
        self._asked, self._answer, self._heard = True, None, anyio.Event()
        request = {"conversation": self._conversation, "turn": number, "text": text}
        try:
            with anyio.fail_after(self._turn_s):
                await self._program.send(json.dumps(request, ensure_ascii=False).encode() + b"\n")
                await self._heard.wait()
        except TimeoutError:
            raise self._fail("hang", f"the program did not answer within {self._turn_s:g} s") from None
        reply = self._reply(self._answer)
        self._told = False
        return reply

    async def close(self, *, patience_s: float = _CLOSE_S) -> tuple[str, ...]:
        """Close the program's input, and end it if it does not end by itself in time; see `AgentSession`."""
        self._closing = True
        if self.failed is None:
            await self._program.finish_input()
            with anyio.move_on_after(patience_s):
                await self._program.ended.wait()
        await self._program.stop()
        with anyio.move_on_after(_CLOSE_S):
            await self._over.wait()
        if not self._told and self.failed is not None and self.failed.cause == "protocol":
            raise self.failed
        return ()

    def _reply(self, line: str | None) -> str:
        if line is None:  # it failed instead of answering
            raise self.failed or AgentFault("crash", f"the program {self._program.end()}")
        try:
            said: Any = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or set(said) != {"reply"} or not isinstance(said["reply"], str):
            raise self._fail(
                "protocol",
                'the program must answer with one line {"reply": "..."} on its standard output, and write '
                f"nothing else there; it wrote {_shown(line)}",
            )
        return str(said["reply"])

    def _fail(self, cause: str, message: str) -> AgentFault:
        """Void the session for the first reason that there is."""
        if self.failed is None:
            self.failed = AgentFault(cause, message)
        self._heard.set()
        return self.failed


def _shown(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...")


@asynccontextmanager
async def program_agent(command: ProgramCommand) -> AsyncIterator[ProgramAgent]:
    """Run a program for each conversation, for the length of a launch."""
    async with anyio.create_task_group() as tasks:
        agent = ProgramAgent(command, tasks)
        try:
            yield agent
        finally:
            with anyio.CancelScope(shield=True):
                await agent.stop()
            tasks.cancel_scope.cancel()
