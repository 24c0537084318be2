"""One agent process for each conversation, for code that keeps the address that it found at its import.

The processes wait for their conversation with the SDK imported; what is left to do then is the agent's own
import. A process is given the fork's address over its socket, so it is in no argument and in no environment
that other processes can list.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.agents.address import addresses
from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.process import AgentCommand, AgentProcess
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from anyio.abc import TaskGroup

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.code import AgentCode
    from redteam_harness.agents.session import ProcessSession

__all__ = ["IsolatedAgent", "Isolation", "isolated_agent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What an agent process of its own is given of its fork.

    Attributes:
        env: templates of the fork's address, by the variable that takes them.
        probe: `module:callable` that says what database the agent's own engine sees, or None.
    """

    env: Mapping[str, str]
    probe: str | None


class IsolatedAgent:
    """Opens each session in a process of its own. `keep_spares` must run in a task group."""

    def __init__(
        self, command: AgentCommand, trust: Mapping[str, Any], isolation: Isolation, tasks: TaskGroup
    ) -> None:
        self._command = command
        self._trust = trust
        self._isolation = isolation
        self._tasks = tasks
        self._tools: Sequence[Mapping[str, Any]] = ()
        self._code: AgentCode | None = None
        self._processes: set[AgentProcess] = set()
        # Imports are work for a processor each: more at once only make each of them late.
        self._importing = anyio.CapacityLimiter(os.cpu_count() or 1)
        # The spares are started by one task and taken by sessions, which wait where there is none.
        self._put, self._get = anyio.create_memory_object_stream[AgentProcess](max(1, os.cpu_count() or 1))

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The schemas of the suite's tools, as the last process read them from the code."""
        return self._tools

    @property
    def code(self) -> AgentCode | None:
        """What is marked in the code that the last process imported; None where none said so."""
        return self._code

    async def open(self, opening: Opening) -> ProcessSession:
        """Start a session in a new process; see `Agent`."""
        try:
            return await self._open(opening)
        except UsageError as error:
            # It could be imported when the launch began: what is different now is this conversation.
            raise AgentFault("import", str(error)) from None

    async def rehearse(self, opening: Opening) -> None:
        """Open a session and close it, to see before the first conversation that it can be done.

        Raises:
            UsageError: the agent cannot be imported, or not with a fork's address.
            AgentFault: a probe sees something else than the fork.
        """
        session = await self._open(opening)
        await session.close()

    async def keep_spares(self) -> None:
        """Start processes in advance, as many as there are processors, for as long as the launch runs."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                process = AgentProcess(self._command)
                self._processes.add(process)
                await process.start(self._trust)
                self._tasks.start_soon(process.serve)
                await self._put.send(process)

    async def stop(self) -> None:
        """End every process."""
        self._put.close()
        self._get.close()
        async with anyio.create_task_group() as stopping:
            for process in self._processes:
                stopping.start_soon(process.stop)

    async def _open(self, opening: Opening) -> ProcessSession:
        process = await self._get.receive()
        try:
            own = {
                "token": opening.token,
                "environment": addresses(self._isolation.env, opening.fork),
                "probe": self._isolation.probe,
            }
            process.secret = opening.fork.password
            async with self._importing:
                await process.arm(own)
            self._tools, self._code = process.tools, process.code
            return await process.open(replace(opening, alone=True))
        except BaseException:
            await process.stop()
            raise


@asynccontextmanager
async def isolated_agent(
    command: AgentCommand, trust: Mapping[str, Any], isolation: Isolation
) -> AsyncIterator[IsolatedAgent]:
    """Run an agent process for each conversation, for the length of a launch.

    Raises:
        UsageError: the interpreter cannot be started.
    """
    async with anyio.create_task_group() as tasks:
        agent = IsolatedAgent(command, trust, isolation, tasks)
        tasks.start_soon(agent.keep_spares)
        try:
            yield agent
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await agent.stop()
