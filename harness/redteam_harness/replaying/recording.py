"""What a replay takes from the evidence of one conversation: lines, replies, calls, answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_personas import Line
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_personas import View

__all__ = ["RecordedActor", "Recording", "recording_of"]

_ANSWER = ("name", "arguments", "result", "error", "fault", "happened")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One conversation as it went, to its end.

    Attributes:
        lines: what the persona said, in order; the last has `end`, where it ended the conversation.
        replies: what the agent answered to each.
        events: the whole trace.
    """

    lines: tuple[Line, ...]
    replies: tuple[str, ...]
    events: tuple[Mapping[str, Any], ...]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What external tools came to, in order, as the SDK takes it (docs/sdk.md)."""
        return [
            {name: event[name] for name in _ANSWER if name in event}
            for event in self.events
            if event["kind"] == "external"
        ]


def recording_of(events: Sequence[Mapping[str, Any]]) -> Recording | None:
    """What a trace recorded; None where the conversation did not come to its end: nothing can follow it."""
    end = next((event for event in events if event["kind"] == "end"), None)
    said = [str(event["text"]) for event in events if event["kind"] == "user"]
    replies = tuple(str(event["text"]) for event in events if event["kind"] == "agent")
    if end is None or not said or len(said) != len(replies):
        return None
    lines = [Line(text=text) for text in said]
    if end["ending"] == "ended":
        lines[-1] = Line(text=said[-1], end=True, reason=str(end["reason"]))
    return Recording(lines=tuple(lines), replies=replies, events=tuple(events))


class RecordedActor:
    """Says the lines of a recording, whatever it hears."""

    def __init__(self, recording: Recording) -> None:
        self._lines = recording.lines

    async def speak(self, view: View) -> Line:
        """The line of this turn.

        Raises:
            InternalError: the recording has no such turn.
        """
        if view.turn > len(self._lines):
            raise InternalError(f"turn {view.turn} follows a recording of {len(self._lines)} lines")
        return self._lines[view.turn - 1]
