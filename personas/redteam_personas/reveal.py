"""Which facts are revealed, decided outside the actor. Pure.

`hear` is called once per turn, before the actor speaks, with what the agent said since (nothing on turn 1).
A line of the agent asks for a fact at most once, however often it repeats itself within the line.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from redteam_personas.questions import asks_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_personas.persona import Fact

__all__ = ["Heard", "RevealState", "hear", "held_facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealState:
    """What is revealed so far.

    Attributes:
        revealed: names of facts, in the order in which they were revealed.
        asked: how often each held-back fact was asked for.
    """

    revealed: tuple[str, ...] = ()
    asked: Mapping[str, int] = field(default_factory=dict)


class Heard(NamedTuple):
    """The state after a line of the agent, and the names it newly revealed (each is one trace event)."""

    state: RevealState
    revealed: tuple[str, ...]


def hear(state: RevealState, facts: Sequence[Fact], agent_text: str, turn: int) -> Heard:
    """What turn `turn` (from 1) and the agent's line before it reveal."""
    asked = dict(state.asked)
    fresh: list[str] = []
    for fact in held_facts(facts, state):
        if asks_for(agent_text, fact.asked_by):
            asked[fact.name] = asked.get(fact.name, 0) + 1
        due, asks = fact.reveal.turn, fact.reveal.asks
        if (due is not None and turn >= due) or (asks is not None and asked.get(fact.name, 0) >= asks):
            fresh.append(fact.name)
    return Heard(replace(state, revealed=(*state.revealed, *fresh), asked=asked), tuple(fresh))


def held_facts(facts: Sequence[Fact], state: RevealState) -> tuple[Fact, ...]:
    """The facts that are still held back."""
    return tuple(fact for fact in facts if fact.name not in state.revealed)
