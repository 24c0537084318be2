"""The conversation as a pure reducer: it decides, `drive` acts.

`step(state, event) -> (state, command)`. There is no clock, no database and no model in here; every way in
which a conversation can go on or end is a line of `step`.

    begin ─► AskActor ─ Spoke ─► AskAgent ─ Replied ─► AskActor ... ─► Finish
                                             └─ after a line that ends, or at the cap: Finish

The user's last line is delivered and the agent answers it before an end counts, so that "yes, do it" is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from redteam_sdk.errors import InternalError

__all__ = [
    "AskActor",
    "AskAgent",
    "Command",
    "Ending",
    "Faulted",
    "Finish",
    "Replied",
    "Spoke",
    "State",
    "Whose",
    "begin",
    "step",
]

Whose = Literal["infra", "sim", "judge", "replay"]
"""Whose fault it is; `replay`: nobody's, the conversation left what was recorded."""


class Phase(Enum):
    """Whose move it is."""

    ACTOR = "actor"
    AGENT = "agent"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a conversation stands.

    Attributes:
        cap: the most turns it may take.
        turn: the current turn, from 1.
        phase: whose move it is.
        parting: the actor's reason, once it said its last line.
    """

    cap: int
    turn: int = 1
    phase: Phase = Phase.ACTOR
    parting: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoke:
    """The actor said a line; `end` where it is its last, with the reason."""

    text: str
    end: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The agent answered the actor's line."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """Something of ours failed: never the agent's failure, nor its success."""

    whose: Whose
    cause: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskActor:
    """Have the actor say its line of this turn."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgent:
    """Give the agent the actor's line and have its answer."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a conversation ended.

    Attributes:
        kind: `ended` by the actor, at the `cap`, or by a `fault`.
        reason: in words.
        fault: what failed, where something did.
    """

    kind: Literal["ended", "cap", "fault"]
    reason: str
    fault: Faulted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Nothing more is to be said."""

    ending: Ending


Event = Spoke | Replied | Faulted
Command = AskActor | AskAgent | Finish


def begin(cap: int) -> tuple[State, Command]:
    """A new conversation of at most `cap` turns (at least 1)."""
    if cap < 1:
        raise InternalError(f"a conversation needs at least one turn, not {cap}")
    return State(cap=cap), AskActor(turn=1)


def step(state: State, event: Event) -> tuple[State, Command]:
    """What follows from `event`.

    Raises:
        InternalError: the event cannot happen in this state.
    """
    match state.phase, event:
        case Phase.OVER, _:
            raise InternalError(f"{type(event).__name__} came after the conversation was over")
        case _, Faulted(message=message):
            return _over(state, Ending(kind="fault", reason=message, fault=event))
        case Phase.ACTOR, Spoke(text=text, end=end, reason=reason):
            parting = (reason or "the actor ended the conversation") if end else None
            heard = replace(state, phase=Phase.AGENT, parting=parting)
            return heard, AskAgent(turn=state.turn, text=text)
        case Phase.AGENT, Replied():
            if state.parting is not None:
                return _over(state, Ending(kind="ended", reason=state.parting))
            if state.turn == state.cap:
                return _over(state, Ending(kind="cap", reason=f"the cap of {state.cap} turns was reached"))
            return replace(state, phase=Phase.ACTOR, turn=state.turn + 1), AskActor(turn=state.turn + 1)
        case _:
            raise InternalError(f"{type(event).__name__} came while the {state.phase.value} had the word")


def _over(state: State, ending: Ending) -> tuple[State, Command]:
    return replace(state, phase=Phase.OVER), Finish(ending=ending)
