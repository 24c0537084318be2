"""Reads what really changed on a fork, judges the conversation by its rules, and stores both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_forker import collect_changes
from redteam_harness.evidence.storage import json_text, write_json, write_text
from redteam_harness.launch.world import open_world
from redteam_rubrics import Evidence, grade, outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_forker import Fork, Server, Template
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import Suite
    from redteam_rubrics import Outcome

__all__ = ["Judged", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the rules said of a conversation, in JSON forms.

    Attributes:
        outcome: `pass`, `fail`, or `judge-fault` where a rule could not be decided.
        verdicts: one per rule.
        changes: the change set.
        undecided: why the outcome is `judge-fault`; empty otherwise.
    """

    outcome: Outcome
    verdicts: Sequence[Mapping[str, Any]]
    changes: Mapping[str, Any]
    undecided: str


async def judge(
    planned: Planned,
    events: Sequence[Mapping[str, Any]],
    *,
    suite: Suite,
    server: Server,
    template: Template,
    fork: Fork,
    folder: Path,
) -> Judged:
    """Take the change set, run the rules, and write `changes.json` and `outbox.jsonl` into `folder`.

    Raises:
        EnvironmentFault: the database failed; the conversation has no verdict.
        EvidenceFault: the evidence cannot be written.
    """
    change_set = await collect_changes(
        server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
    )
    changes = change_set.to_json()
    write_json(folder / "changes.json", changes)
    outbox = [event for event in events if event["kind"] == "external"]
    write_text(folder / "outbox.jsonl", "".join(json_text(event) + "\n" for event in outbox))
    evidence = Evidence.from_json(
        conversation=planned.id,
        persona=planned.persona.row,
        disposition=planned.disposition,
        events=events,
        changes=changes,
    )
    rules = suite.rules_of(planned.case)
    looks_back = any(rule.looks_back for rule in rules.values())
    async with open_world(server, fork, change_set, before=looks_back) as world:
        verdicts = await grade(rules, evidence, world, with_collateral=suite.spec.collateral)
    outcome = outcome_of(verdicts)
    undecided = [f"{verdict.rule}: {verdict.reason}" for verdict in verdicts if verdict.status == "unclear"]
    return Judged(
        outcome=outcome,
        verdicts=[{**verdict.to_json(), **_about(verdict.rule, suite)} for verdict in verdicts],
        changes=changes,
        undecided="; ".join(undecided) if outcome == "judge-fault" else "",
    )


def _about(name: str, suite: Suite) -> dict[str, Any]:
    """What a report says beside a verdict: why the rule is there, and the tables that it reads."""
    rule = suite.rules.get(name)
    if rule is None:
        return {"why": "Nothing may change that no rule of the case allows."}
    return {"why": rule.why or "", "tables": list(rule.tables), "words": list(rule.words)}
