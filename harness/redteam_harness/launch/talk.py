"""The turns of one conversation: the edge that carries out what the reducer commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_harness.launch.conversation import (
    AskActor,
    AskAgent,
    Faulted,
    Finish,
    Replied,
    Spoke,
    begin,
    step,
)
from redteam_harness.models.chat import ModelFault
from redteam_personas import ActorFault, RevealState, hear, held_facts, take_line, view_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from redteam_harness.agents.agent import AgentSession
    from redteam_harness.evidence.trace import Trace
    from redteam_harness.launch.conversation import Ending, Event
    from redteam_harness.launch.recorded import Track
    from redteam_personas import Actor, Refusal, Script
    from redteam_personas.actor import Role

__all__ = ["talk"]


_NO_LINE = frozenset({"shape", "refusal", "max_tokens"})
"""Faults of an actor's model that is there, and gives no line: the simulation's, not the network's."""


async def talk(
    script: Script,
    actor: Actor,
    session: AgentSession,
    trace: Trace,
    *,
    doing: Callable[[int, str], None],
    track: Track | None = None,
) -> Ending:
    """Hold a whole conversation, recording every event.

    Args:
        script: what the actor plays by; what is held back in it is decided here, turn by turn.
        actor: says the user's lines.
        session: the agent under test.
        trace: takes the events.
        doing: told the turn and what is waited for.
        track: the recording that the conversation follows; None: it is held freely.

    Raises:
        AgentFault, AgentLost: the agent's side failed; a fault of the actor's side is an `Ending`.
    """
    reveals = RevealState()
    history: list[tuple[Role, str]] = []
    state, command = begin(script.cap)
    while True:
        match command:
            case AskActor(turn=turn):
                doing(turn, "the persona speaks")
                heard = history[-1][1] if history else ""
                reveals, fresh = hear(reveals, script.facts, heard, turn)
                for fact in fresh:
                    trace.record("reveal", turn, fact=fact)
                left = track.left(trace.events) if track is not None and turn == 1 else None
                event = left or await _line(script, actor, reveals, history, turn, trace, track)
            case AskAgent(turn=turn, text=text):
                history.append(("user", text))
                trace.record("user", turn, text=text)
                doing(turn, "the agent answers")
                answer = await session.turn(turn, text)
                history.append(("agent", answer))
                trace.record("agent", turn, text=answer)
                event = (track.left(trace.events) if track is not None else None) or Replied(text=answer)
            case Finish(ending=ending):
                if ending.fault is None:
                    trace.record("end", state.turn, ending=ending.kind, reason=ending.reason)
                return ending
        state, command = step(state, event)


async def _line(
    script: Script,
    actor: Actor,
    reveals: RevealState,
    history: list[tuple[Role, str]],
    turn: int,
    trace: Trace,
    track: Track | None,
) -> Event:
    try:
        taken = await take_line(
            actor,
            view_of(script, reveals, history, turn),
            held_facts(script.facts, reveals),
            others_in=script.others_in,
        )
    except ActorFault as fault:
        _refused(fault.refusals, turn, trace)
        if track is not None:
            # It was taken when it was recorded: what the agent says now is why it is not any more.
            why = f"the next recorded line would be out of place: {fault.refusals[-1].reason}"
            return Faulted(whose="replay", cause="line", message=why)
        return Faulted(whose="sim", cause="actor", message=str(fault))
    except ModelFault as fault:
        if fault.kind in _NO_LINE:
            return Faulted(whose="sim", cause=fault.kind, message=str(fault))
        return Faulted(
            whose="infra", cause="budget" if fault.kind == "budget" else "model", message=str(fault)
        )
    _refused((taken.refusal,) if taken.refusal else (), turn, trace)
    return Spoke(text=taken.line.text, end=taken.line.end, reason=taken.line.reason)


def _refused(refusals: tuple[Refusal, ...], turn: int, trace: Trace) -> None:
    """Record the lines that were not delivered, and the facts that they would have given away."""
    for refusal in refusals:
        for fact in refusal.leaks:
            trace.record("leak", turn, fact=fact)
        trace.record("refused", turn, fault=refusal.kind, reason=refusal.reason, line=refusal.text)
