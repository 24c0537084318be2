"""The script of one conversation: persona, demand, held-back facts, end condition, and the cap on turns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redteam_personas.disposition import suggest
from redteam_personas.persona import Fact, FactSpec, default_asked_by, value_text
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from redteam_personas.disposition import Disposition
    from redteam_personas.others import Others
    from redteam_personas.persona import Persona

__all__ = ["CaseParts", "Script", "build_script", "check_case", "check_text", "fill"]

DEFAULT_ENDS = "when what you came for is done, or when it is clear that it will not be done"
_COLUMN = re.compile(r"\{([^\W\d]\w*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseParts:
    """What a case of a suite says of a script.

    Attributes:
        id: the case's id, for messages.
        demand: what the person wants; may name columns as `{column}`.
        facts: column to when it is revealed.
        ends: when the person is done; read after "You are done".
        cap: the most turns, whatever the actor does.
    """

    id: str
    demand: str
    facts: Mapping[str, FactSpec] = field(default_factory=dict)
    ends: str = DEFAULT_ENDS
    cap: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """All that one actor plays by. It holds secrets: only a `View` of it goes to the actor.

    Attributes:
        persona: the row that speaks.
        claims: the row that it claims to be, where the disposition impersonates; else None.
        demand: what it wants, with its columns filled in (of the row that it claims to be).
        facts: what it can tell, with the rules as the disposition stretches them.
        missing: facts that this row has no value for, and how they are asked for.
        ends: when it is done.
        disposition: how it behaves.
        cap: the most turns.
        others: whose data a line may tell; None where nobody looks.
    """

    persona: Persona
    demand: str
    facts: tuple[Fact, ...]
    missing: Mapping[str, tuple[str, ...]]
    ends: str
    disposition: Disposition
    cap: int
    claims: Persona | None = None
    others: Others | None = field(default=None, repr=False, compare=False)

    @property
    def speaks_as(self) -> Persona:
        """The row whose facts and texts these are: the one that it claims to be, or its own."""
        return self.claims or self.persona

    def others_in(self, text: str, public: Iterable[str]) -> tuple[str, ...]:
        """The columns of rows other than `speaks_as` whose values a line tells (`Others.told_in`)."""
        return self.others.told_in(text, by=self.speaks_as, public=public) if self.others else ()


def build_script(
    persona: Persona,
    case: CaseParts,
    disposition: Disposition,
    *,
    claims: Persona | None = None,
    others: Others | None = None,
) -> Script:
    """Put a script together.

    A fact whose column is NULL or blank in this row is left out: the person does not have it, and says so
    when asked. Of the row in `claims` it knows what is told at once, and lacks the rest.

    Args:
        persona: the row that speaks.
        case: what the suite says of the script.
        disposition: how the person behaves.
        claims: the row that it claims to be, where the disposition impersonates.
        others: the cast, to notice a line that tells another row's data.

    Raises:
        UsageError: a fact or a place in a text names no column, or a text names a held-back fact.
    """
    check_case(case, tuple(persona.row))
    told = claims or persona
    facts: list[Fact] = []
    missing: dict[str, tuple[str, ...]] = {}
    for name, spec in case.facts.items():
        asked_by = spec.asked_by or default_asked_by(name)
        value = value_text(told.row[name])
        if value is None or (claims is not None and spec.reveal.kind != "at once"):
            missing[name] = asked_by
        else:
            facts.append(
                Fact(name=name, value=value, reveal=disposition.shift(spec.reveal), asked_by=asked_by)
            )
    return Script(
        persona=persona,
        demand=fill(case.demand, told),
        facts=tuple(facts),
        missing=missing,
        ends=fill(case.ends, told),
        disposition=disposition,
        cap=case.cap,
        claims=claims,
        others=others,
    )


def check_case(case: CaseParts, columns: Collection[str]) -> None:
    """Check a case against the cast's columns, before anything runs.

    Raises:
        UsageError: names the case, the fact or the place, and the columns there are.
    """
    for name in case.facts:
        if name not in columns:
            raise UsageError(
                f"case {case.id!r}: fact {name!r} is no column of the cast{suggest(name, columns)}; "
                "select it in personas.select, or take it out of facts"
            )
    check_text(case.demand, case.facts, columns, where=f"case {case.id!r}, demand")
    check_text(case.ends, case.facts, columns, where=f"case {case.id!r}, ends")


def check_text(text: str, facts: Mapping[str, FactSpec], columns: Collection[str], *, where: str) -> None:
    """Check that `{...}` in a text names columns that the actor may know from the start.

    Args:
        text: what a suite has the actor say, or tells it.
        facts: the case's facts.
        columns: the cast's columns.
        where: what the text is, for messages.

    Raises:
        UsageError: a place names no column, or a fact that is not revealed at once.
    """
    for name in _COLUMN.findall(text):
        if name not in columns:
            raise UsageError(f"{where}: {{{name}}} is no column of the cast{suggest(name, columns)}")
        if name in facts and facts[name].reveal.kind != "at once":
            rule = str(facts[name].reveal)
            raise UsageError(
                f"{where}: {{{name}}} is a fact revealed {rule!r}, so it cannot stand in a text that is "
                "known from the start; take it out, or reveal it at once"
            )


def fill(text: str, persona: Persona) -> str:
    """Put the row's values in place of `{column}`; NULL becomes nothing. Other braces stay as they are.

    A line spoken by a cast of a suite passed `check_text` before, so every place names a column.
    """
    return _COLUMN.sub(lambda place: value_text(persona.row.get(place[1])) or "", text)
