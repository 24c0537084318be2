"""The seam to whoever plays a persona, and the one way to take a line from it.

An actor gets a `View`, which is built from the revealed facts alone: a held-back value is not in it, so no
actor can tell one. `take_line` checks every line all the same, because a model may guess.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from redteam_personas.discipline import fault_of
from redteam_personas.leaks import find_leaks
from redteam_personas.reveal import held_facts
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_personas.disposition import Disposition
    from redteam_personas.persona import Fact
    from redteam_personas.reveal import RevealState
    from redteam_personas.script import Script

__all__ = ["Actor", "ActorFault", "Brief", "Line", "Role", "Taken", "View", "take_line", "view_of"]

Role = Literal["user", "agent"]


class ActorFault(EnvironmentFault):
    """The actor said twice what a persona must not say, so the simulation failed, not the agent.

    Attributes:
        leaks: names of facts it gave away before their time.
        said: the refused lines; evidence for the trace, never for a message.
    """

    def __init__(self, message: str, *, leaks: tuple[str, ...] = (), said: tuple[str, ...] = ()) -> None:
        super().__init__(message, retryable=True)
        self.leaks = leaks
        self.said = said


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
        leaks: names of facts that a refused first attempt gave away.
        refused: why a first attempt was refused; empty where it was taken.
    """

    line: Line
    leaks: tuple[str, ...] = ()
    refused: str = ""


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


async def take_line(actor: Actor, view: View, held: Sequence[Fact]) -> Taken:
    """Have the actor speak; refuse an empty, role-flipped or leaking line once.

    Args:
        actor: who speaks.
        view: what it knows.
        held: the facts that are held back in this turn (`held_facts`); the actor does not get them.

    Raises:
        ActorFault: the second line was as bad; it carries the names that leaked.
    """
    public = (
        view.script.demand,
        view.script.ends,
        *view.revealed.values(),
        *(text for _, text in view.history),
    )
    leaked: list[str] = []
    said: list[str] = []
    refused = ""
    for _ in range(2):
        line = await actor.speak(replace(view, refused=refused))
        leaks = find_leaks(line.text, held, public=public)
        fault = fault_of(line.text, view.history)
        if not leaks and not fault:
            return Taken(line=line, leaks=tuple(dict.fromkeys(leaked)), refused=refused)
        leaked += leaks
        said.append(line.text)
        refused = fault or f"it tells what must not be told yet: {', '.join(leaks)}"
    raise ActorFault(
        f"the actor's line of turn {view.turn} was refused twice: {refused}; run the conversation "
        "again, and look at the disposition or the actor's model if it recurs",
        leaks=tuple(dict.fromkeys(leaked)),
        said=tuple(said),
    )
