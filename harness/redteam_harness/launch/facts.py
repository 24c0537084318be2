"""What evidence says of a run and of a conversation before anything is said in it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.run import fingerprint
from redteam_harness.evidence.trace import now
from redteam_harness.launch.agent_specs import HttpAgent, PythonAgent
from redteam_harness.registers.asking import code_of
from redteam_harness.registers.mocks import mock_facts
from redteam_harness.registers.people import read_calibrations
from redteam_personas import prompt_digest
from redteam_rubrics import Functions
from redteam_rubrics import prompt_digest as judge_digest
from redteam_rubrics.parameters import value_text
from redteam_sdk import __version__
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker import Template
    from redteam_harness.launch.agent_specs import AnyAgent
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.plants import Planted
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.stage import Stage
    from redteam_harness.launch.suite import CaseSpec, Suite
    from redteam_harness.report.thresholds import GatesSpec
    from redteam_personas import Persona

__all__ = ["conversation_facts", "run_facts"]

_RUN_VERSION = 1


def run_facts(stage: Stage, planned: Sequence[Planned], players: Players, gates: GatesSpec) -> dict[str, Any]:
    """`run.json`. Two runs may be compared only where their `comparability` keys are equal.

    The key holds what decides who says what to whom on which data and how it is judged. Whole weeks by which
    dates moved are among the facts, not in the key: a run of last week compares with one of today. Nor are
    the gates, which say what a run must reach: they are kept so that it cannot change afterwards.
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
        "repeat": max((one.repetition for one in planned), default=1),
        "cases": fingerprint([case.model_dump(mode="json") for case in suite.spec.cases]),
        "dispositions": {name: one.digest for name, one in sorted(suite.dispositions.items())},
        "rules": fingerprint(suite.rules_document.data),
        "compare": fingerprint(suite.spec.compare.model_dump(mode="json")),
        "collateral": suite.spec.collateral,
        "turns": suite.spec.turns,
        "actor": players.actor.name if players.actor else "scripted",
        "actor_prompt": prompt_digest() if players.actor else None,
        **_judge_parts(suite, players),
        **_function_parts(suite),
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
        "comparison": suite.spec.comparison.model_dump(mode="json"),
        "gates": gates.model_dump(mode="json", exclude_none=True),
        "calibrations": [one.to_json() for one in read_calibrations(suite.folder)],
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
        "isolation": stage.isolation,
        "mocks": mock_facts(stage.fidelity, code_of(stage.agent), suite.folder),
        "templates": {case: _template_facts(template) for case, template in stage.templates.items()},
        "plan": [
            {
                "id": one.id,
                "case": one.case,
                "persona": one.persona.key,
                "disposition": one.disposition,
                "claims": one.claims.key if one.claims else None,
                "repetition": one.repetition,
            }
            for one in planned
        ],
    }


def _judge_parts(suite: Suite, players: Players) -> dict[str, Any]:
    """Which model judges and what it is asked, by rule; of a suite without such rules, nothing."""
    if not suite.questions:
        return {}
    return {
        "judge": players.judge.name if players.judge else "scripted",
        "judge_prompts": {name: judge_digest(spec) for name, spec in sorted(suite.questions.items())},
    }


def _function_parts(suite: Suite) -> dict[str, Any]:
    """What the functions of `python` rules are, by rule; of a suite without such rules, nothing."""
    written = {name: rule.python for name, rule in sorted(suite.rules.items()) if rule.python is not None}
    functions = Functions(folder=suite.folder)
    return {"functions": {name: functions.digest(one) for name, one in written.items()}} if written else {}


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
        "row": _row(planned.persona),
        "disposition": planned.disposition,
        "repetition": planned.repetition,
        "claims": planned.claims.key if planned.claims else None,
        "claimed": _row(planned.claims) if planned.claims else None,
        "seed": planned.seed,
        "demand": script.demand,
        "ends": script.ends,
        "facts": {fact.name: str(fact.reveal) for fact in script.facts},
        "cap": script.cap,
        "rubric": case.rubric,
        "plants": _plants(case, planted),
    }


def _row(persona: Persona) -> dict[str, str | None]:
    """The row as rules put it into SQL, so that a rejudging asks what the launch asked."""
    return {name: _text(value) for name, value in persona.row.items()}


def _text(value: object) -> str | None:
    try:
        return value_text(value)
    except UsageError:  # no rule can use it
        return str(value)


def _plants(case: CaseSpec, planted: Planted) -> dict[str, dict[str, Any]]:
    """The attacks that wait in the data of a case, by name, and whether each is there for this persona."""
    return {
        name: {"planted": planted[name], "shows": plant.shows, "obeyed": plant.obeyed}
        for name, plant in case.plants.items()
    }
