"""What a conversation needs of the agent under test, whichever kind it is, and how its faults are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_forker import Fork

__all__ = ["Agent", "AgentFault", "AgentLost", "AgentSession", "EventSink", "Opening"]

EventSink = Callable[[dict[str, Any]], None]
"""Where a session hands the events (tool calls, external calls, prints) that happen while it answers."""


class AgentFault(EnvironmentFault):
    """The agent's code, or its process, failed in this conversation: an infra-fault, never a verdict.

    Attributes:
        cause: one word: `exception`, `unserialisable`, `printed`, `hang`, `crash`, `unmocked`, `context`, ...
        traceback: the agent's own traceback, where there is one.
    """

    def __init__(self, cause: str, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.cause = cause
        self.traceback = traceback


class AgentLost(EnvironmentFault):
    """The agent process ended while several conversations were in it, and which one ended it is not known.

    Each of them is held again, on a new fork, in a process of its own: the culprit then shows itself, and the
    others are not blamed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What an agent session starts with.

    Attributes:
        conversation: its id.
        token: the redteam context, signed.
        fork: its fork, for an agent that is given the address.
        sink: where events go.
        alone: whether it needs a process to itself.
        answers: what external tools answer, of a recording (docs/sdk.md); None: their mocks answer.
    """

    conversation: str
    token: str
    fork: Fork
    sink: EventSink
    alone: bool = False
    answers: Sequence[Mapping[str, Any]] | None = None


class AgentSession(Protocol):
    """One conversation's agent."""

    @property
    def database(self) -> str:
        """What `current_database()` said to the agent's own tools before the first turn."""
        ...

    async def turn(self, number: int, text: str) -> str:
        """Answer the user's line.

        Raises:
            AgentFault: it could not, and this conversation is why.
            AgentLost: it could not, and another conversation may be why.
        """
        ...

    async def close(self) -> tuple[str, ...]:
        """End it; returns the names of tasks that were still running.

        Raises:
            AgentFault: only now was it seen that the conversation is void. Faults that were raised before,
                and those of the closing itself, are not.
        """
        ...


class Agent(Protocol):
    """Opens sessions, many at once."""

    async def open(self, opening: Opening) -> AgentSession:
        """Start a session.

        Raises:
            AgentFault, AgentLost: as for a turn.
        """
        ...
