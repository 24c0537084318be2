"""Reads what really changed on a fork, judges the conversation by its rules, and stores both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from redteam_forker import collect_changes
from redteam_forker.changes import CallSpan, attributed
from redteam_harness.evidence.storage import json_text, write_json, write_text
from redteam_harness.launch.world import open_world
from redteam_harness.models.judge import ConversationJudge
from redteam_rubrics import COLLATERAL, Evidence, Functions, assert_rules, outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redteam_forker import Fork, Server, Template
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import Suite
    from redteam_harness.models.judge import JudgeEndpoint
    from redteam_rubrics import Outcome, Rule

__all__ = ["Judged", "about_rule", "call_spans", "judge"]

_NO_CODE_RAN = "UnknownTool"


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
    run: RunDirectory,
    model: JudgeEndpoint | None,
    doing: Callable[[str], None],
) -> Judged:
    """Take the change set, run the rules, and write `changes.json` and `outbox.jsonl` into the evidence.

    Args:
        planned: the conversation.
        events: its trace.
        suite: whose rules.
        server: the fork's.
        template: what the fork is a clone of.
        fork: its database, at rest.
        run: the evidence; what a judge answers goes there, too.
        model: the judge, or None where nobody is asked.
        doing: told what is being done, in words.

    Raises:
        EnvironmentFault: the database failed; the conversation has no verdict.
        EvidenceFault: the evidence cannot be written.
    """
    doing("reading what changed")
    folder = run.conversation(planned.id)
    collected = await collect_changes(
        server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
    )
    change_set = attributed(collected, call_spans(events))
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
        claimed=None if planned.claims is None else planned.claims.row,
    )
    rules = suite.rules_of(planned.case)
    looks_back = any(rule.looks_back for rule in rules.values())
    doing("judging")
    async with open_world(server, fork, change_set, before=looks_back) as world:
        asserted = await assert_rules(
            rules,
            evidence,
            world,
            policies=suite.spec.compare,
            gate=suite.gate,
            functions=Functions(folder=suite.folder),
        )
    asked = None
    if model is not None:
        asking = partial(doing, "asking the judge")
        asked = ConversationJudge(endpoint=model, run=run, conversation=planned.id, asking=asking)
    verdicts = await asserted.judged(asked)
    outcome = outcome_of(verdicts)
    undecided = [f"{verdict.rule}: {verdict.reason}" for verdict in verdicts if verdict.status == "unclear"]
    return Judged(
        outcome=outcome,
        verdicts=[{**verdict.to_json(), **about_rule(verdict.rule, rules)} for verdict in verdicts],
        changes=changes,
        undecided="; ".join(undecided) if outcome == "judge-fault" else "",
    )


def call_spans(events: Sequence[Mapping[str, Any]]) -> list[CallSpan]:
    """The trace's tool calls with the transaction ids that the server gave out next, before and after each.

    A call of a tool that there is not is none: nothing of the agent's ran.
    """
    spans: dict[int, CallSpan] = {}
    running: dict[str, int] = {}
    for index, event in enumerate(events):
        match event["kind"]:
            case "tool_call":
                running[event["call"]] = index
                spans[index] = CallSpan(call=event["call"], first=event.get("xid"), end=None)
            case "tool_result" | "tool_error" if event["call"] in running:
                began = running.pop(event["call"])
                if event.get("type") == _NO_CODE_RAN and event.get("xid") is None:
                    del spans[began]
                else:
                    spans[began] = replace(spans[began], end=event.get("xid"))
    return list(spans.values())


def about_rule(name: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """What a report says beside a verdict: why the rule is there, and the tables that it reads."""
    rule = rules.get(name)
    if rule is None:
        return {"why": "Nothing may change that no rule of the case allows.", "kind": COLLATERAL}
    return {"why": rule.why or "", "kind": rule.kind, "tables": list(rule.tables), "words": list(rule.words)}
