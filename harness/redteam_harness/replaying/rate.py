"""How much of a replay left its track, and where; beside what was measured for changes of known kinds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from redteam_harness.evidence.reading import finished_entries, read_trace
from redteam_harness.evidence.run import read_events
from redteam_harness.replaying.derail import CAUSES
from redteam_rubrics.statistics import interval_data, wilson
from redteam_rubrics.statistics.intervals import CONFIDENCE
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.evidence.run import RunDirectory

__all__ = ["BANDS", "Band", "Derailed", "Derails", "count_derails", "read_derails"]

_UNRECORDED = "not-recorded"


class Band(NamedTuple):
    """A derail rate that was measured for one kind of change, to compare one's own with.

    Attributes:
        change: what was changed in the agent.
        derailed: how many conversations derailed.
        followed: of how many.
        measured: when, and on what.
    """

    change: str
    derailed: int
    followed: int
    measured: str


_CLINIC = "2026-11-30, clinic, scripted"

BANDS: tuple[Band, ...] = (
    Band("the same agent", 0, 20, _CLINIC),
    Band("other words in replies, the same questions", 0, 20, _CLINIC),
    Band("the same tools in another order", 0, 20, _CLINIC),
    Band("one tool more in bookings", 9, 20, _CLINIC),
    Band("questions put as statements", 12, 20, _CLINIC),
    Band("other words in what mocks are given", 16, 20, _CLINIC),
)
"""One suite, scripted callers and a scripted agent: orders of magnitude, and no promise for another agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derailed:
    """A conversation that left its track.

    Attributes:
        conversation: its id.
        cause: see `CAUSES`.
        message: how.
        turn: the turn in which it was noticed.
        escalated: the outcome of the conversation that was held freely after it, or None: none was.
    """

    conversation: str
    cause: str
    message: str
    turn: int
    escalated: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Derails:
    """All of a replay.

    Attributes:
        of: the run that was replayed.
        followed: how many conversations had a recording and an outcome that is no fault of ours.
        derailed: those that left it.
        unrecorded: those that had none.
    """

    of: str
    followed: int
    derailed: Sequence[Derailed]
    unrecorded: Sequence[Derailed]

    def to_json(self) -> dict[str, Any]:
        """As `replay.json` has it; shares are of 1."""
        count = len(self.derailed)
        causes = Counter(one.cause for one in self.derailed)
        return {
            "version": 1,
            "of": self.of,
            "followed": self.followed,
            "derailed": count,
            "share": count / self.followed if self.followed else None,
            "interval": interval_data(wilson(count, self.followed), "wilson", CONFIDENCE),
            "causes": {cause: causes[cause] for cause in CAUSES if cause != _UNRECORDED},
            "conversations": [
                {
                    "id": one.conversation,
                    "cause": one.cause,
                    "message": one.message,
                    "turn": one.turn,
                    "escalated": one.escalated,
                }
                for one in (*self.derailed, *self.unrecorded)
            ],
            "bands": [band._asdict() for band in BANDS],
        }


def read_derails(run: RunDirectory, of: str, entries: Iterable[Mapping[str, Any]]) -> Derails:
    """Find what derailed in a replay, from its evidence.

    Args:
        run: the replay.
        of: the run that was replayed.
        entries: the replay's journal.

    Raises:
        EnvironmentFault: a trace is damaged.
    """
    found: list[Derailed] = []
    followed = 0
    for name, entry in finished_entries(entries).items():
        path = run.conversation(name) / "trace-derailed.jsonl"
        try:
            first = read_events(path)
        except (OSError, ValueError) as error:
            raise EnvironmentFault(f"{path} cannot be read: {error}") from error
        left = _left(first or read_trace(run, name))
        if left is not None:
            found.append(_derailed(name, left, str(entry["outcome"]) if first else None))
        elif entry["outcome"] in ("pass", "fail", "judge-fault"):
            followed += 1
    return count_derails(of, followed, found)


def count_derails(of: str, followed: int, found: Iterable[Derailed]) -> Derails:
    """Put the derails of the agent apart from conversations that had nothing to follow. Pure.

    Args:
        of: the run that was replayed.
        followed: how many followed their recording to its end.
        found: the others.
    """
    ordered = sorted(found, key=lambda one: one.conversation)
    derailed = [one for one in ordered if one.cause != _UNRECORDED]
    return Derails(
        of=of,
        followed=followed + len(derailed),
        derailed=derailed,
        unrecorded=[one for one in ordered if one.cause == _UNRECORDED],
    )


def _left(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((event for event in events if event["kind"] == "fault" and event["whose"] == "replay"), None)


def _derailed(name: str, event: Mapping[str, Any], escalated: str | None) -> Derailed:
    return Derailed(
        conversation=name,
        cause=str(event["cause"]),
        message=str(event["message"]),
        turn=int(event["turn"]),
        escalated=escalated,
    )
