"""What the agent under test is given beside a user's line, and how it says that another agent takes over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from redteam_sdk import record

__all__ = ["Message", "Session", "handoff"]


@dataclass(frozen=True, slots=True)
class Message:
    """One line of the conversation."""

    role: Literal["user", "agent"]
    text: str


@dataclass(slots=True, kw_only=True)
class Session:
    """One conversation, as its agent sees it; the same object at every turn.

    Attributes:
        id: names the conversation.
        history: the lines before the one that is being answered.
        state: the agent's own, kept from turn to turn.
    """

    id: str
    history: list[Message] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)


def handoff(to: str, *, by: str | None = None) -> None:
    """Record that another agent has the conversation from here on; in production nothing happens.

    Args:
        to: the name of the agent that takes over.
        by: the name of the one that hands over, where it is known.
    """
    record.emit("swap", **{"from": by, "to": to})
