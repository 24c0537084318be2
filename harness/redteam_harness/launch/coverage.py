"""What a plan covers of a cast: rows times dispositions; what each persona knows, and tells when. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from redteam_harness.launch.plan import stratum_of
from redteam_personas.persona import value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import CaseSpec, Suite
    from redteam_personas import Cast, Disposition, FactSpec, Persona

__all__ = ["coverage"]


def coverage(suite: Suite, cast: Cast, planned: Sequence[Planned], *, draw: int) -> dict[str, Any]:
    """The cast of a suite and a plan over it, as JSON. It names columns and keys, and holds no other value.

    A rule of `None` in `facts` is a fact that this disposition does not know (it claims to be somebody else).
    """
    return {
        "suite": suite.name,
        "rows": len(cast.personas),
        "key": suite.spec.personas.key,
        "columns": list(cast.columns),
        "stratify": suite.spec.personas.stratify,
        "draw": draw,
        "count": len(planned),
        "repeat": max((one.repetition for one in planned), default=1),
        "turns": suite.turns,
        "dispositions": {
            name: {
                "finds": one.finds.strip(),
                "digest": one.digest,
                "conversations": sum(each.disposition == name for each in planned),
            }
            for name, one in sorted(suite.dispositions.items())
        },
        "cases": [_case(case, suite, cast, planned) for case in suite.spec.cases],
        "plan": [_conversation(one, suite) for one in planned],
    }


def _case(case: CaseSpec, suite: Suite, cast: Cast, planned: Sequence[Planned]) -> dict[str, Any]:
    rows = cast.rows_for(case.id)
    mine = [one for one in planned if one.case == case.id]
    weights = suite.weights_of(case.id)
    held = Counter(one.disposition for one in mine)
    return {
        "id": case.id,
        "who": case.who,
        "rows": len(rows),
        "conversations": len(mine),
        "personas": len({one.persona.key for one in mine}),
        "pairs": {
            "planned": len({(one.persona.key, one.disposition) for one in mine}),
            "possible": len(rows) * len(weights),
        },
        "dispositions": {
            name: {
                "weight": weight,
                "share": round(weight / sum(weights.values()), 4),
                "conversations": held[name],
            }
            for name, weight in sorted(weights.items())
        },
        "strata": _strata(suite.spec.personas.stratify, rows, mine),
        "facts": {
            name: {
                "reveal": str(fact.reveal),
                "by": {each: _rule(fact, suite.dispositions[each]) for each in sorted(weights)},
                "rows_without": sum(value_text(row.row[name]) is None for row in rows),
            }
            for name, fact in case.facts.items()
        },
    }


def _rule(fact: FactSpec, disposition: Disposition) -> str | None:
    if disposition.impersonates and fact.reveal.kind != "at once":
        return None
    return str(disposition.shift(fact.reveal))


def _strata(column: str | None, rows: Sequence[Persona], mine: Sequence[Planned]) -> list[dict[str, Any]]:
    """Each stratum of a case, the largest first; the value of NULL and of blank text is None."""
    if column is None:
        return []
    sizes = Counter(stratum_of(row, column) for row in rows)
    held = Counter(stratum_of(one.persona, column) for one in mine)
    return [
        {"value": value or None, "rows": size, "conversations": held[value]}
        for value, size in sorted(sizes.items(), key=lambda each: (-each[1], each[0]))
    ]


def _conversation(one: Planned, suite: Suite) -> dict[str, Any]:
    script = suite.script_of(one)
    return {
        "id": one.id,
        "case": one.case,
        "persona": one.persona.key,
        "disposition": one.disposition,
        "claims": one.claims.key if one.claims else None,
        "seed": one.seed,
        "repetition": one.repetition,
        "facts": {fact.name: str(fact.reveal) for fact in script.facts},
        "without": list(script.missing),
    }
