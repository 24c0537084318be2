"""What a Python agent's process says of the code that it has imported: its tools, and its external tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AgentCode", "MarkedExternal", "MarkedTool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedTool:
    """A function that `@tool` marked.

    Attributes:
        name: what events call it.
        file: where it stands, as the process sees it; empty where it is not written in Python.
        line: the line, from 1.
    """

    name: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedExternal(MarkedTool):
    """A function that `@external` marked.

    Attributes:
        mocked: whether it has a mock.
        gap: what the real thing does and the mock does not, where somebody said so.
    """

    mocked: bool
    gap: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCode:
    """What is marked in the modules that the process has imported; one that is imported later is not in it.

    Attributes:
        tools: by name and place.
        externals: likewise.
    """

    tools: tuple[MarkedTool, ...]
    externals: tuple[MarkedExternal, ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> AgentCode | None:
        """Read `marked` of the process's answer; None where its SDK is older and says nothing."""
        if data is None:
            return None
        return cls(
            tools=tuple(MarkedTool(**one) for one in data["tools"]),
            externals=tuple(MarkedExternal(**one) for one in data["externals"]),
        )
