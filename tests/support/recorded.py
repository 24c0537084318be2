"""Recorded conversations with known verdicts: `tests/unit/recorded/*.yaml`, each one failure of a checker.

A file says in `catches` which failure that is, and in `switched_off` what becomes of the outcome without what
protects from it: `without` some rules, `with` others in their place, or with another collateral `gate`.
`verdicts` has `vacuous` for a pass that supports nothing. With `replies`, a judge says these in turn, and the
last of them from then on. With `database`, the end state is that of a database that the SQL makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from redteam_rubrics import Policies, Reply, grade, outcome_of, parse_rules
from support.judges import SaidJudge
from support.rubrics import evidence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_rubrics import Evidence, Outcome, Verdict, World

__all__ = ["RECORDED", "graded", "outcome", "recording", "told", "varied"]

FOLDER = Path(__file__).parents[1] / "unit" / "recorded"
RECORDED = sorted(path.stem for path in FOLDER.glob("*.yaml"))

_KEYS = {"catches", "peer", "persona", "claimed", "database", "events", "changes", "objects", "writes"}
_KEYS |= {"rules", "compare", "gate", "replies", "verdicts", "outcome", "refused", "switched_off"}


def recording(name: str) -> dict[str, Any]:
    """One file."""
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8"))
    assert set(data) <= _KEYS, set(data) - _KEYS
    assert {"catches", "events", "rules", "verdicts", "outcome", "switched_off"} <= set(data)
    return dict(data)


def varied(data: Mapping[str, Any], off: Mapping[str, Any]) -> dict[str, Any]:
    """The recording as it would be judged without its protection."""
    assert set(off) <= {"without", "with", "gate", "outcome"}
    kept = {name: rule for name, rule in data["rules"].items() if name not in off.get("without", ())}
    return {**data, "rules": {**kept, **off.get("with", {})}, "gate": off.get("gate", data.get("gate"))}


async def graded(data: Mapping[str, Any], world: World) -> tuple[Verdict, ...]:
    """The verdicts of its rules."""
    replies = [Reply(text=text) for text in data.get("replies", ())]
    judge = SaidJudge(lambda _: replies.pop(0) if len(replies) > 1 else replies[0]) if replies else None
    return await grade(
        parse_rules(data["rules"]) if data["rules"] else {},
        _evidence(data),
        world,
        policies=Policies.model_validate(data["compare"]) if "compare" in data else None,
        gate=data.get("gate") or "changes",
        judge=judge,
    )


def told(verdicts: tuple[Verdict, ...]) -> dict[str, str]:
    """The verdicts as a file writes them."""
    return {verdict.rule: "vacuous" if verdict.vacuous else verdict.status for verdict in verdicts}


async def outcome(data: Mapping[str, Any], world: World) -> Outcome:
    """What its verdicts add up to."""
    return outcome_of(await graded(data, world))


def _evidence(data: Mapping[str, Any]) -> Evidence:
    return evidence(
        *data["events"],
        persona=data.get("persona", {}),
        claimed=data.get("claimed"),
        tables=[_table(table) for table in data.get("changes", ())],
        objects=data.get("objects", ()),
        writes=[{"schema": "public", **write} for write in data.get("writes", ())],
    )


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {
            "key": None,
            "old": None,
            "new": None,
            "changed": [
                name
                for name, value in row.get("new", {}).items()
                if row.get("old", {}).get(name, value) != value
            ],
            "by": None,
            **row,
        }
        for row in table["rows"]
    ]
    columns = {name: "text" for row in rows for image in (row["old"], row["new"]) for name in image or ()}
    return {"schema": "public", "columns": columns, "omitted": 0, **table, "rows": rows}
