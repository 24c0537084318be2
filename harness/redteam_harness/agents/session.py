"""One conversation in an agent process: what is asked of the process on its behalf, and how it is voided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.agents.agent import AgentFault, AgentLost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.process import AgentProcess

__all__ = ["CLOSE_S", "ProcessSession", "Waiter"]

CLOSE_S = 5.0
"""How long a session, and then its process, may take to end, in seconds."""


@dataclass(slots=True)
class Waiter:
    """Somebody who waits for the answer to one request."""

    done: anyio.Event = field(default_factory=anyio.Event)
    answer: dict[str, Any] | None = None
    error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Answer with an error, where there is no answer yet."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class ProcessSession:
    """One conversation in an agent process; where it was opened alone, the process ends with it."""

    def __init__(self, process: AgentProcess, opening: Opening) -> None:
        self.conversation = opening.conversation
        self.sink = opening.sink
        self.database = ""
        self.waiters: dict[int, Waiter] = {}
        self.failed: Exception | None = None
        self._process = process
        self._alone = opening.alone

    @property
    def egress(self) -> tuple[str, ...] | None:
        """What the egress guard lets through, as the process said when it was armed; None: it did not."""
        return self._process.egress

    async def ask(self, request: Mapping[str, Any], deadline_s: float) -> dict[str, Any]:
        """Ask the process; a fault that struck earlier is raised at once."""
        if self.failed is not None:
            raise self.failed
        return await self._process.ask(self, request, deadline_s)

    async def turn(self, number: int, text: str) -> str:
        """Have the agent's callable answer a line."""
        request = {"op": "turn", "turn": number, "text": text}
        answer = await self.ask(request, self._process.command.turn_s)
        return str(answer["text"])

    async def call(self, turn: int, call: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call one tool; the answer's `op` is `result` (with `value`) or `error` (with `type`, `message`)."""
        request = {"op": "call", "turn": turn, "call": call, "tool": tool, "arguments": arguments}
        return await self.ask(request, self._process.command.turn_s)

    def take(self, event: dict[str, Any]) -> None:
        """Record an event. A fault of ours in a tool voids the session, also where the agent swallows it."""
        if event["kind"] != "fault":
            self.sink(event)
            return
        self.sink({**event, "kind": "agent_fault"})
        self.fail(AgentFault(str(event["cause"]), str(event["message"])))

    def fail(self, error: Exception) -> None:
        """Void the session: whatever waits, and whatever is asked next, gets `error`."""
        if self.failed is None:
            self.failed = error
        for waiter in self.waiters.values():
            waiter.fail(error)

    async def close(self) -> tuple[str, ...]:
        """End the session; a process that does not answer is ended, and the others in it are held again."""
        late: tuple[str, ...] = ()
        try:
            if self._process.lost is None:
                answer = await self._process.ask(self, {"op": "close"}, CLOSE_S)
                late = tuple(answer.get("late", ()))
        except AgentFault as fault:
            if fault.cause == "hang":
                self._process.kill()
        except AgentLost:
            pass
        finally:
            self._process.sessions.pop(self.conversation, None)
            if self._alone:
                await self._process.stop()
        return late
