"""Recorded conversations as a suite of their own: one case each, for the row that it belongs to. Pure.

It lies beside the suite whose data, agent and rules it has, so that it is launched, checked and replayed as
any other. Each case is like one of that suite: its rules and its setup, with the recorded demand and row.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from redteam_personas.persona import value_text
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.exchange.recording import Recorded
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Persona

__all__ = ["Placed", "condition_for", "suite_text"]

_MAX_NAME = 64
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_PLACE = re.compile(r"\{(?=[^\W\d]\w*\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A conversation with the row and the case that it belongs to.

    Attributes:
        name: of its case.
        recording: what was said and done.
        persona: its row.
        like: the case of the suite that it is like.
        because: how the row was found.
    """

    name: str
    recording: Recorded
    persona: Persona
    like: str
    because: str


def condition_for(key: str, persona: Persona) -> str:
    """A case's `who` that only this row fits, by the cast's key.

    Raises:
        UsageError: the key's value has no form in SQL that is surely its own.
    """
    value = persona.row[key]
    column = key if _IDENTIFIER.fullmatch(key) else '"' + key.replace('"', '""') + '"'
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{column} = {value}"
    text = value_text(value)
    if text is None or "\0" in text:
        raise UsageError(f"the key of row {persona.key!r} cannot be written in a condition")
    # The literal takes the column's type, whatever it is.
    return f"{column} = '" + text.replace("'", "''") + "'"


def suite_text(suite: Suite, name: str, placed: Sequence[Placed]) -> str:
    """suite.yaml of the imported conversations.

    Args:
        suite: whose data, agent and rules it has.
        name: of the import.
        placed: the conversations, in order.
    """
    data = copy.deepcopy(suite.document.data)
    assert isinstance(data, dict)
    longest = max(one.recording.turns for one in placed)
    data |= {
        "suite": f"{suite.name}.{name}"[:_MAX_NAME].rstrip("-._"),
        "count": len(placed),
        "repeat": 1,
        "turns": max(suite.turns, longest),
        "cases": [_case(suite, one) for one in placed],
    }
    data["personas"] = {
        part: value for part, value in data["personas"].items() if part not in ("stratify", "dispositions")
    }
    _keep_judging(data, {rule for case in data["cases"] for rule in case["rubric"]})
    head = (
        f"# Real conversations, imported into {suite.document.path.name}; `redteam import` wrote this file.\n"
        f"# Held anew by redteam launch; the recorded lines are said by redteam replay --level 2.\n"
    )
    return head + yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """SQL is kept as it was written, line by line."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _case(suite: Suite, placed: Placed) -> dict[str, Any]:
    like = suite.case(placed.like)
    facts: dict[str, Any] = {}
    for fact, spec in like.facts.items():
        # A real person's lines tell what they tell; what is held back in them is over.
        asked_by = list(spec.asked_by or ())
        facts[fact] = {"reveal": "at once", "asked_by": asked_by} if asked_by else "at once"
    case: dict[str, Any] = {
        "id": placed.name,
        "who": condition_for(suite.spec.personas.key, placed.persona),
        "demand": _PLACE.sub("{ ", placed.recording.lines[0]),
        "facts": facts,
        "ends": like.ends,
        "dispositions": {"cooperative": 1},
        "rubric": list(like.rubric),
    }
    if like.setup:
        case["setup"] = like.setup
    if like.nothing_to_do:
        case["nothing_to_do"] = True
    return case


def _keep_judging(data: dict[str, Any], judging: set[str]) -> None:
    """Take limits out of `gates` that are for rules which no case has any more."""
    gates = data.get("gates")
    if isinstance(gates, dict) and isinstance(gates.get("rules"), dict):
        limits: Mapping[str, Any] = gates["rules"]
        kept = {name: limit for name, limit in limits.items() if name in judging or name == "collateral"}
        data["gates"] = {**gates, "rules": kept} if kept else _without(gates, "rules")
        if not data["gates"]:
            del data["gates"]


def _without(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}
