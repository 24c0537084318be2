"""What a launch asks of a replay: recorded lines and answers, and whether a conversation still follows them.

A replay is a launch in which some of the parts are recorded. `redteam_harness.replaying` makes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from redteam_harness.launch.conversation import Faulted
    from redteam_harness.launch.plan import Planned
    from redteam_personas import Actor, Script

__all__ = ["Replay", "Track"]


class Track(Protocol):
    """One conversation's recording, as far as the conversation needs it."""

    @property
    def actor(self) -> Actor:
        """Says the recorded lines."""
        ...

    @property
    def answers(self) -> Sequence[Mapping[str, Any]]:
        """What external tools answered, as the SDK takes it."""
        ...

    def left(self, events: Sequence[Mapping[str, Any]]) -> Faulted | None:
        """Why a conversation with these events is not what was recorded any more; None: it still is.

        Asked before the first turn, and after each reply.
        """
        ...


class Replay(Protocol):
    """A run that is held once more.

    Attributes of the whole replay decide the plan; `track` is asked for each conversation.
    """

    @property
    def escalates(self) -> bool:
        """Whether a conversation that left its track is held once more, freely."""
        ...

    def today(self, anchor: dt.date | None) -> dt.date | None:
        """The day for which dates are to be moved, so that the data is that of the run; None: today."""
        ...

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """`run.json` of the replay: that of a launch, with what is recorded in it.

        Raises:
            UsageError: the launch is not of what was recorded; says what differs.
        """
        ...

    def track(self, planned: Planned, script: Script) -> Track | None:
        """The recording that a conversation follows; None: it is held freely."""
        ...
