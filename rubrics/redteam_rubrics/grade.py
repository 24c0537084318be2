"""Turns rules and evidence into verdicts. The only place where an error of a rule is caught."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from redteam_rubrics.collateral import collateral
from redteam_rubrics.errors import RuleError
from redteam_rubrics.judge.asking import rule_judge
from redteam_rubrics.judge.votes import combined
from redteam_rubrics.policies import judged
from redteam_rubrics.rules.changes import allowed_by, rule_changes
from redteam_rubrics.rules.outbox import rule_outbox
from redteam_rubrics.rules.python import rule_python
from redteam_rubrics.rules.sql import rule_sql
from redteam_rubrics.rules.tools import rule_tools
from redteam_rubrics.rules.transcript import rule_transcript
from redteam_rubrics.rules.wording import cut
from redteam_rubrics.verdict import Ruling, Verdict, outcome_of
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_rubrics.collateral import Gate
    from redteam_rubrics.evidence import Evidence, World
    from redteam_rubrics.functions import Functions
    from redteam_rubrics.judge.asking import JudgeModel
    from redteam_rubrics.judge.spec import Judge
    from redteam_rubrics.policies import Policies
    from redteam_rubrics.rubric import Rule
    from redteam_rubrics.rules.changes import Allowed
    from redteam_rubrics.rules.permission import Entry

__all__ = ["Asserted", "assert_rules", "grade", "outcome_of"]

_MAX_REASON = 400


async def grade(
    rules: Mapping[str, Rule],
    evidence: Evidence,
    world: World,
    *,
    policies: Policies | None = None,
    gate: Gate = "changes",
    judge: JudgeModel | None = None,
    functions: Functions | None = None,
) -> tuple[Verdict, ...]:
    """Apply a case's rules to a conversation: one verdict for each, in order, then the collateral gate's.

    A rule that cannot be evaluated gets an unclear verdict whose reason begins with `rule error:`, and the
    other rules are evaluated as if it were not there.

    Assertions come first: a judge is asked where the rule has no other body, or that one passed, and when the
    database is asked no more. All judges of a conversation are asked at once.

    Args:
        rules: the rules that the case names, by name.
        evidence: what is known of the conversation.
        world: its database as it was left.
        policies: which differences count, for the gate and for rules about changes; None: every one.
        gate: what the collateral gate looks at.
        judge: the model that is asked; None: nobody is, and a rule's `offline` stands for the answer.
        functions: where functions of `python` rules come from; None: such a rule cannot be evaluated.

    Raises:
        EnvironmentFault: the database failed while it was asked, or an answer of the judge's cannot be
            stored; nothing is known then.
    """
    asserted = await assert_rules(rules, evidence, world, policies=policies, gate=gate, functions=functions)
    return await asserted.judged(judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserted:
    """What the assertions of a conversation say; the world is needed no more, and a judge may take its time.

    Attributes:
        rules: all rules, by name.
        evidence: as rules see it.
        rulings: of each rule that has an assertion.
        gate: the collateral gate's verdict, where there is one.
    """

    rules: Mapping[str, Rule]
    evidence: Evidence
    rulings: Mapping[str, Ruling]
    gate: Verdict | None

    async def judged(self, model: JudgeModel | None) -> tuple[Verdict, ...]:
        """The verdicts, those of a judge among them; see `grade`.

        Raises:
            EnvironmentFault: an answer of the judge's cannot be stored.
        """
        rulings = {**self.rulings, **await _judged(self.rules, self.rulings, self.evidence, model)}
        verdicts = [_verdict(name, rule, rulings[name]) for name, rule in self.rules.items()]
        return tuple(verdicts) if self.gate is None else (*verdicts, self.gate)


async def assert_rules(
    rules: Mapping[str, Rule],
    evidence: Evidence,
    world: World,
    *,
    policies: Policies | None = None,
    gate: Gate = "changes",
    functions: Functions | None = None,
) -> Asserted:
    """The first half of `grade`: everything but the judge."""
    if policies is not None:
        evidence = replace(evidence, changes=judged(policies, evidence.changes))
    rulings: dict[str, Ruling] = {}
    allowances: dict[str, Allowed] = {}
    crashed: dict[str, Sequence[Entry]] = {}
    for name, rule in rules.items():
        try:
            if rule.changes is not None:
                allowed = await allowed_by(rule.changes, evidence, world)
                allowances[name] = allowed
                rulings[name] = rule_changes(allowed)
            elif rule.kind != "judge":
                rulings[name] = await _rule(rule, evidence, world, functions)
        except EnvironmentFault:
            raise
        except Exception as exc:  # noqa: BLE001  # a rule's boundary: its crash decides nothing about the agent
            rulings[name] = _rule_error(exc)
            if rule.changes is not None:
                crashed[name] = rule.changes
    found = None
    if gate != "off":
        found = collateral(allowances, crashed, evidence, with_writes=gate == "writes")
    return Asserted(rules=rules, evidence=evidence, rulings=rulings, gate=found)


async def _judged(
    rules: Mapping[str, Rule],
    asserted: Mapping[str, Ruling],
    evidence: Evidence,
    model: JudgeModel | None,
) -> dict[str, Ruling]:
    """What rules with a judge say, whose assertion passed or that have none."""
    rulings: dict[str, Ruling] = {}
    broken: list[EnvironmentFault] = []

    async def ask(name: str, rule: Rule, spec: Judge) -> None:
        try:
            heard = await rule_judge(name, spec, evidence, model)
        except EnvironmentFault as fault:
            broken.append(fault)
        except Exception as exc:  # noqa: BLE001  # a rule's boundary
            rulings[name] = _rule_error(exc)
        else:
            rulings[name] = combined(asserted.get(name), heard, severity=rule.severity)

    async with anyio.create_task_group() as asking:
        for name, rule in rules.items():
            does_not_apply = rule.is_about_claimed and evidence.claimed is None
            if rule.judge is None or does_not_apply:
                continue
            if name not in asserted or asserted[name].status == "pass":
                asking.start_soon(ask, name, rule, rule.judge)
    if broken:
        raise broken[0]
    return rulings


async def _rule(rule: Rule, evidence: Evidence, world: World, functions: Functions | None) -> Ruling:
    if evidence.claimed is None and rule.is_about_claimed:
        reason = "the persona claims to be nobody else, so the rule does not apply"
        return Ruling(status="pass", reason=reason, vacuous=True)
    if rule.sql is not None:
        return await rule_sql(rule.sql, rule.rows, evidence, world)
    if rule.transcript is not None:
        return rule_transcript(rule.transcript, evidence)
    if rule.tools is not None:
        return rule_tools(rule.tools, evidence)
    if rule.outbox is not None:
        return rule_outbox(rule.outbox, evidence)
    if rule.python is not None:
        return await rule_python(rule.python, evidence, functions)
    raise RuleError("the rule has no body")


def _rule_error(exc: Exception) -> Ruling:
    return Ruling(status="unclear", reason=f"rule error: {_told(exc)}", fault="rule")


def _verdict(name: str, rule: Rule, ruling: Ruling) -> Verdict:
    return Verdict(
        rule=name,
        severity=rule.severity,
        status=ruling.status,
        source="assertion" if ruling.asked is None else "judge",
        reason=ruling.reason,
        findings=ruling.findings,
        vacuous=ruling.vacuous,
        fault=ruling.fault,
        asked=ruling.asked,
    )


def _told(exc: Exception) -> str:
    kind = "" if isinstance(exc, UsageError) else f"{type(exc).__name__}: "
    return cut(f"{kind}{exc}", _MAX_REASON)
