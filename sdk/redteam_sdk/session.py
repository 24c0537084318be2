"""What the agent under test is given beside a user's line: the lines before, and room for its own notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Message", "Session"]


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
