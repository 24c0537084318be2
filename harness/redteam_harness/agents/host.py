"""The agent processes of one launch: one that many conversations share, and lone ones for who needs one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.agents.process import AgentCommand, AgentProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from anyio.abc import TaskGroup

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.code import AgentCode
    from redteam_harness.agents.session import ProcessSession

__all__ = ["ProcessAgent", "host_agent"]


class ProcessAgent:
    """Opens sessions in agent processes; replaces the shared process when it was lost."""

    def __init__(self, command: AgentCommand, trust: Mapping[str, Any], tasks: TaskGroup) -> None:
        self._command = command
        self._trust = trust
        self._tasks = tasks
        self._shared: AgentProcess | None = None
        self._starting = anyio.Lock()  # guards _shared: two openings must not start two shared processes
        self._processes: list[AgentProcess] = []

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The schemas of the suite's tools, as the process read them from the code."""
        return self._shared.tools if self._shared is not None else ()

    @property
    def code(self) -> AgentCode | None:
        """What is marked in the code that the process has imported; None where it does not say."""
        return self._shared.code if self._shared is not None else None

    async def open(self, opening: Opening) -> ProcessSession:
        """Start a session, in the shared process or alone."""
        if not opening.alone:
            return await (await self.shared()).open(opening)
        process = await self._start()
        try:
            return await process.open(opening)
        except BaseException:
            await process.stop()
            raise

    async def shared(self) -> AgentProcess:
        """The shared process, started where there is none.

        Raises:
            UsageError: the agent cannot be imported or started.
        """
        async with self._starting:
            if self._shared is None or self._shared.lost is not None:
                self._shared = await self._start()
            return self._shared

    async def stop(self) -> None:
        """End every process."""
        async with anyio.create_task_group() as stopping:
            for process in self._processes:
                stopping.start_soon(process.stop)

    async def _start(self) -> AgentProcess:
        process = AgentProcess(self._command)
        await process.start(self._trust)
        self._processes.append(process)
        self._tasks.start_soon(process.serve)
        await process.arm()
        return process


@asynccontextmanager
async def host_agent(command: AgentCommand, trust: Mapping[str, Any]) -> AsyncIterator[ProcessAgent]:
    """Run agent processes for the length of a launch; the shared one is up when this is entered.

    Raises:
        UsageError: the agent cannot be imported or started.
    """
    async with anyio.create_task_group() as tasks:
        agent = ProcessAgent(command, trust, tasks)
        try:
            await agent.shared()
            yield agent
        finally:
            with anyio.CancelScope(shield=True):
                await agent.stop()
