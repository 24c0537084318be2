"""Personas, scripts and agents for tests of the personas room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_personas import (
    Actor,
    CaseParts,
    FactSpec,
    Line,
    OfflineSpec,
    Others,
    Persona,
    RevealState,
    Script,
    ScriptedActor,
    build_script,
    hear,
    held_facts,
    load_dispositions,
    take_line,
    view_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redteam_personas.actor import Role

__all__ = ["DISPOSITIONS", "OTHER", "ROW", "Talk", "converse", "make_case", "make_script", "scripted"]

DISPOSITIONS = load_dispositions()
ROW: dict[str, object] = {
    "id": 1207,
    "full_name": "Ada Lindqvist",
    "date_of_birth": "1984-03-07",
    "insurance": "Aetna Gold",
}
OTHER = Persona(
    key="1300",
    row={"id": 1300, "full_name": "Bo Ek", "date_of_birth": "1990-12-24", "insurance": "Humana Blue"},
)


def make_case(facts: Mapping[str, object] | None = None, **parts: object) -> CaseParts:
    specs = {name: FactSpec.model_validate(rule) for name, rule in (facts or {}).items()}
    return CaseParts(**{"id": "case-1", "demand": "Book a visit.", "facts": specs, **parts})  # type: ignore[arg-type]


def make_script(
    facts: Mapping[str, object] | None = None,
    *,
    disposition: str = "cooperative",
    row: Mapping[str, object] | None = None,
    claims: Persona | None = None,
    others: Others | None = None,
    **parts: object,
) -> Script:
    persona = Persona(key="1207", row={**ROW, **(row or {})})
    if claims is None and DISPOSITIONS[disposition].impersonates:
        claims = OTHER
    return build_script(
        persona, make_case(facts, **parts), DISPOSITIONS[disposition], claims=claims, others=others
    )


def scripted(script: Script, offline: Mapping[str, object] | None = None, *, seed: int = 7) -> ScriptedActor:
    lines = OfflineSpec.model_validate(offline or {}).fill(script.speaks_as)
    return ScriptedActor(lines, script.disposition, seed=seed)


class Talk:
    """What a conversation came to: its lines, the actor's last one, and what was revealed in which turn."""

    def __init__(self) -> None:
        self.history: list[tuple[Role, str]] = []
        self.revealed: list[tuple[int, str]] = []
        self.last = Line(text="")

    @property
    def user(self) -> list[str]:
        return [text for role, text in self.history if role == "user"]


async def converse(
    script: Script, actor: Actor, agent: Callable[[str], str] | Sequence[str], *, cap: int | None = None
) -> Talk:
    """Hold a conversation as the harness does. A sequence is the agent's lines; the talk ends with them."""
    talk, state = Talk(), RevealState()
    lines = None if callable(agent) else list(agent)
    for turn in range(1, (cap or script.cap) + 1):
        heard = talk.history[-1][1] if talk.history else ""
        state, fresh = hear(state, script.facts, heard, turn)
        talk.revealed += [(turn, name) for name in fresh]
        taken = await take_line(
            actor,
            view_of(script, state, talk.history, turn),
            held_facts(script.facts, state),
            others_in=script.others_in,
        )
        talk.last = taken.line
        talk.history.append(("user", taken.line.text))
        if taken.line.end or (lines is not None and not lines):
            break
        talk.history.append(("agent", agent(taken.line.text) if callable(agent) else (lines or [""]).pop(0)))
    return talk
