"""Rubrics: rules, verdicts and the statistics over them.

A suite's rules.yaml becomes `Rule`s (`parse_rules`), `grade` applies them to the `Evidence` of a finished
conversation and to the `World` it left behind, and `outcome_of` says what the verdicts add up to.
"""

from __future__ import annotations

from redteam_rubrics.check import Problem, check_names, check_policies, check_rules, check_together
from redteam_rubrics.collateral import COLLATERAL, Gate
from redteam_rubrics.errors import RuleError
from redteam_rubrics.evidence import (
    ChangedRow,
    ChangeView,
    Evidence,
    ObjectChange,
    TableChanges,
    World,
    Write,
)
from redteam_rubrics.functions import Functions
from redteam_rubrics.grade import Asserted, assert_rules, grade
from redteam_rubrics.judge import Answer, Judge, JudgeModel, Reply, prompt_digest
from redteam_rubrics.policies import Policies
from redteam_rubrics.rubric import Rule, parse_rules
from redteam_rubrics.schema import editor_schema, schema
from redteam_rubrics.statistics import Interval, wilson
from redteam_rubrics.verdict import Asked, Fault, Finding, Outcome, Source, Status, Verdict, outcome_of

__all__ = [
    "COLLATERAL",
    "Answer",
    "Asked",
    "Asserted",
    "ChangeView",
    "ChangedRow",
    "Evidence",
    "Fault",
    "Finding",
    "Functions",
    "Gate",
    "Interval",
    "Judge",
    "JudgeModel",
    "ObjectChange",
    "Outcome",
    "Policies",
    "Problem",
    "Reply",
    "Rule",
    "RuleError",
    "Source",
    "Status",
    "TableChanges",
    "Verdict",
    "World",
    "Write",
    "assert_rules",
    "check_names",
    "check_policies",
    "check_rules",
    "check_together",
    "editor_schema",
    "grade",
    "outcome_of",
    "parse_rules",
    "prompt_digest",
    "schema",
    "wilson",
]
