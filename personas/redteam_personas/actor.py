"""The seam to whoever plays a persona, and the one way to take a line from it.

An actor gets a `View`, which is built from the revealed facts alone: a held-back value is not in it, so no
actor can tell one. `take_line` checks every line all the same, because a model may guess, step out of its
person, or make up a detail that happens to be somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from redteam_personas.discipline import FAULTS, Fault, fault_of
from redteam_personas.leaks import find_leaks
from redteam_personas.reveal import held_facts
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redteam_personas.discipline import FaultKind
    from redteam_personas.disposition import Disposition
    from redteam_personas.persona import Fact
    from redteam_personas.reveal import RevealState
    from redteam_personas.script import Script

__all__ = [
    "Actor",
    "ActorFault",
    "Brief",
    "Line",
    "Refusal",
    "Role",
    "Taken",
    "View",
    "take_line",
    "view_of",
]

Role = Literal["user", "agent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A line that was not taken; evidence for the trace.

    Attributes:
        kind: what is wrong with it.
        reason: in words, as the actor was told; it holds no value.
        text: the line.
        leaks: names of facts that it gave away before their time.
    """

    kind: FaultKind
    reason: str
    text: str = field(repr=False)
    leaks: tuple[str, ...] = ()


class ActorFault(EnvironmentFault):
    """The actor said twice what a persona must not say, so the simulation failed, not the agent.

    Attributes:
        refusals: the refused lines, in order; for the trace, never for a message.
    """

    def __init__(self, message: str, *, refusals: tuple[Refusal, ...]) -> None:
        super().__init__(message, retryable=True)
        self.refusals = refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A script without its secrets.

    Attributes:
        demand: what the person wants.
        ends: when it is done.
        disposition: how it behaves.
        held: names of facts that it would rather not tell yet.
        missing: names of facts that it does not have.
        asked_by: how each fact, of any kind, is asked for.
    """

    demand: str
    ends: str
    disposition: Disposition
    held: tuple[str, ...]
    missing: tuple[str, ...]
    asked_by: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that an actor knows when it speaks.

    Attributes:
        script: the script without its secrets.
        revealed: name to value of the facts revealed so far.
        history: every line so far, in order.
        turn: the turn that it speaks in, from 1.
        refused: why its last line was not taken; empty on the first attempt.
    """

    script: Brief
    revealed: Mapping[str, str]
    history: tuple[tuple[Role, str], ...]
    turn: int
    refused: str = ""

    @property
    def last_heard(self) -> str:
        """The agent's last line; empty where it has said none."""
        return next((text for role, text in reversed(self.history) if role == "agent"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What an actor says.

    Attributes:
        text: its words.
        end: whether these are its last.
        reason: why it ends; empty where it does not.
    """

    text: str
    end: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A line that was taken.

    Attributes:
        line: the line.
        refusal: the first attempt, where it was refused.
    """

    line: Line
    refusal: Refusal | None = None


class Actor(Protocol):
    """Plays a persona in one conversation."""

    async def speak(self, view: View) -> Line:
        """The next line of the person."""
        ...


def view_of(script: Script, state: RevealState, history: Sequence[tuple[Role, str]], turn: int) -> View:
    """What the actor may know in this state."""
    values = {fact.name: fact.value for fact in script.facts}
    asked_by = {fact.name: fact.asked_by for fact in script.facts} | dict(script.missing)
    return View(
        script=Brief(
            demand=script.demand,
            ends=script.ends,
            disposition=script.disposition,
            held=tuple(fact.name for fact in held_facts(script.facts, state)),
            missing=tuple(script.missing),
            asked_by=asked_by,
        ),
        revealed={name: values[name] for name in state.revealed},
        history=tuple(history),
        turn=turn,
    )


async def take_line(
    actor: Actor,
    view: View,
    held: Sequence[Fact],
    *,
    others_in: Callable[[str, Iterable[str]], Sequence[str]] | None = None,
) -> Taken:
    """Have the actor speak; a line that a persona could not say (`FaultKind`) is refused once.

    Args:
        actor: who speaks.
        view: what it knows.
        held: the facts that are held back in this turn (`held_facts`); the actor does not get them.
        others_in: finds other people's data in a line, beside what is public (`Script.others_in`).

    Raises:
        ActorFault: the second line was refused, too; it carries both.
    """
    public = (
        view.script.demand,
        view.script.ends,
        *view.revealed.values(),
        *(text for _, text in view.history),
    )
    refusals: list[Refusal] = []
    for _ in range(2):
        line = await actor.speak(replace(view, refused=refusals[-1].reason if refusals else ""))
        leaks = find_leaks(line.text, held, public=public)
        fault = _fault(line, view, leaks, others_in(line.text, public) if others_in else ())
        if fault is None:
            return Taken(line=line, refusal=refusals[0] if refusals else None)
        refusals.append(Refusal(kind=fault.kind, reason=fault.reason, text=line.text, leaks=leaks))
    raise ActorFault(
        f"the actor's line of turn {view.turn} was refused twice: {refusals[-1].reason}; run the "
        "conversation again, and look at the disposition or the actor's model if it recurs",
        refusals=tuple(refusals),
    )


def _fault(line: Line, view: View, leaks: Sequence[str], others: Sequence[str]) -> Fault | None:
    """What is wrong with a line, the worst first: a secret told outweighs how it was told."""
    if leaks:
        return Fault("leak", f"{FAULTS['leak']}: {', '.join(leaks)}")
    if others:
        return Fault("other-person", f"{FAULTS['other-person']}: {', '.join(others)}")
    permits = view.script.disposition.permits
    return fault_of(line.text, view.history, end=line.end, permits=permits)
