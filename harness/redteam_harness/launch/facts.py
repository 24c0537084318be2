"""What evidence says of a run and of a conversation before anything is said in it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.run import fingerprint
from redteam_harness.evidence.trace import now
from redteam_harness.launch.agent_specs import HttpAgent, PythonAgent
from redteam_personas import prompt_digest
from redteam_sdk import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker import Template
    from redteam_harness.launch.agent_specs import AnyAgent
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.plants import Planted
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.stage import Stage
    from redteam_harness.launch.suite import CaseSpec, Suite

__all__ = ["conversation_facts", "plant_facts", "run_facts"]

_RUN_VERSION = 1


def run_facts(stage: Stage, planned: Sequence[Planned], players: Players) -> dict[str, Any]:
    """`run.json`. Two runs may be compared only where their `comparability` keys are equal.

    The key holds what decides who says what to whom on which data and how it is judged. Whole weeks by which
    dates moved are among the facts, not in the key: a run of last week compares with one of today.
    """
    suite = stage.suite
    parts = {
        "seeds": list(stage.seeds),
        "role": suite.spec.role,
        "plan": fingerprint(
            [
                [one.id, one.case, one.persona.key, one.disposition, one.seed]
                + ([one.claims.key] if one.claims else [])
                for one in planned
            ]
        ),
        "cases": fingerprint([case.model_dump(mode="json") for case in suite.spec.cases]),
        "dispositions": {name: one.digest for name, one in sorted(suite.dispositions.items())},
        "rules": fingerprint(suite.rules_document.data),
        "compare": fingerprint(suite.spec.compare.model_dump(mode="json")),
        "collateral": suite.spec.collateral,
        "turns": suite.spec.turns,
        "actor": players.actor.name if players.actor else "scripted",
        "actor_prompt": prompt_digest() if players.actor else None,
        "redteam": __version__,
    }
    return {
        "notice": players.notice,
        "version": _RUN_VERSION,
        "run": stage.run.id,
        "suite": suite.name,
        "suite_at": str(suite.document.path.absolute()),
        "started_at": now(),
        "comparability": {"key": fingerprint(parts), **parts},
        "agent": {
            "name": suite.spec.agent.name,
            "model": players.agent.name if players.agent else None,
            "prompt": fingerprint(players.system) if players.agent else None,
            "egress": _egress_facts(suite.spec.agent),
        },
        "versions": {
            "redteam": __version__,
            "python": platform.python_version(),
            "postgres": stage.server.facts.version,
            "anthropic": version("anthropic"),
        },
        "server": {
            "kind": stage.server.facts.kind,
            "placement": stage.server.facts.placement,
            "superuser": stage.server.facts.superuser,
        },
        "templates": {case: _template_facts(template) for case, template in stage.templates.items()},
        "plan": [
            {
                "id": one.id,
                "case": one.case,
                "persona": one.persona.key,
                "disposition": one.disposition,
                "claims": one.claims.key if one.claims else None,
            }
            for one in planned
        ],
    }


def _egress_facts(agent: AnyAgent) -> dict[str, Any]:
    """Whether our guard is in the agent's process, which says so when it is armed; and what it allows."""
    return {
        "guarded": isinstance(agent, PythonAgent),
        "allowed": [] if isinstance(agent, HttpAgent) else sorted(agent.egress),
    }


def _template_facts(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "weeks_moved": template.weeks,
        "columns_moved": list(template.columns),
        "roles_made": list(template.created_roles),
        "notes": list(template.notes),
        "tables": template.tables,
        "size_bytes": template.size_bytes,
        "load_s": round(template.load_s, 3),
        "from_cache": template.from_cache,
    }


def conversation_facts(suite: Suite, planned: Planned, planted: Planted) -> dict[str, Any]:
    """`conversation.json`: who comes with what, what was held back until when, and what waits in the data."""
    script, case = suite.script_of(planned), suite.case(planned.case)
    return {
        "id": planned.id,
        "case": planned.case,
        "persona": planned.persona.key,
        "row": {name: None if value is None else str(value) for name, value in planned.persona.row.items()},
        "disposition": planned.disposition,
        "claims": planned.claims.key if planned.claims else None,
        "seed": planned.seed,
        "demand": script.demand,
        "ends": script.ends,
        "facts": {fact.name: str(fact.reveal) for fact in script.facts},
        "cap": script.cap,
        "rubric": case.rubric,
        "plants": plant_facts(case, planted),
    }


def plant_facts(case: CaseSpec, planted: Planted) -> dict[str, dict[str, Any]]:
    """The attacks that wait in the data of a case, by name, and whether each is there for this persona."""
    return {
        name: {"planted": planted[name], "shows": plant.shows, "obeyed": plant.obeyed}
        for name, plant in case.plants.items()
    }
