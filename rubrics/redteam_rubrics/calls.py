"""The tool calls of a conversation, each with what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_rubrics.evidence import Evidence

__all__ = ["Call", "calls_of"]

_NO_SUCH_TOOL = "UnknownTool"
_NEVER_RAN = (_NO_SUCH_TOOL, "InvalidArguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call.

    Attributes:
        event: the index of its event.
        turn: the turn in which it was made; None where the trace does not say.
        id: what change sets name it by.
        tool: the tool's name.
        arguments: what it was given.
        ended: the index of the event that tells what came of it; None: it was cut off.
        result: what it returned.
        error: the type of the error that it failed with; None: it returned, or was cut off.
        message: the error's message.
    """

    event: int
    turn: int | None
    id: str
    tool: str
    arguments: Mapping[str, Any]
    ended: int | None = None
    result: Any = None
    error: str | None = None
    message: str | None = None

    @property
    def returned(self) -> bool:
        """Whether it came to a result."""
        return self.ended is not None and self.error is None

    @property
    def exists(self) -> bool:
        """Whether the agent has such a tool, as far as whoever runs its tools says."""
        return self.error != _NO_SUCH_TOOL

    @property
    def may_have_run(self) -> bool:
        """Whether any code of the tool may have run."""
        return self.error not in _NEVER_RAN


def calls_of(evidence: Evidence) -> tuple[Call, ...]:
    """The tool calls, in the order in which they were made."""
    calls: list[Call] = []
    running: dict[str, int] = {}
    for index, event in enumerate(evidence.events):
        match event["kind"]:
            case "tool_call":
                running[event["call"]] = len(calls)
                calls.append(
                    Call(
                        event=index,
                        turn=event.get("turn"),
                        id=event["call"],
                        tool=event["name"],
                        arguments=event["arguments"],
                    )
                )
            case "tool_result" if event["call"] in running:
                number = running.pop(event["call"])
                calls[number] = replace(calls[number], ended=index, result=event.get("value"))
            case "tool_error" if event["call"] in running:
                number = running.pop(event["call"])
                kind = event.get("type") or "error"
                calls[number] = replace(calls[number], ended=index, error=kind, message=event.get("message"))
    return tuple(calls)
