"""What is wrong with rules by themselves: they decide nothing, nobody uses them, only a model decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_harness.checks.finding import Finding
from redteam_rubrics import check_rules, check_together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_harness.checks.finding import Severity, Subject
    from redteam_harness.launch.suite import Suite

__all__ = ["check_rules_alone", "futile", "lonely_judges", "too_few", "toothless", "unused"]


async def check_rules_alone(subject: Subject) -> list[Finding]:
    """Look at the rules, and at what each case makes of them, without any data."""
    suite = subject.suite
    return [*futile(suite), *lonely_judges(suite), *toothless(suite), *unused(suite), *too_few(suite)]


def futile(suite: Suite) -> Iterator[Finding]:
    """Rules that never fail or never pass, whatever happens; and rules of one case that cannot both hold."""
    used = {name: suite.rules[name] for case in suite.spec.cases for name in case.rubric}
    problems = list(check_rules(used))
    for case in suite.spec.cases:
        problems += check_together(suite.rules_of(case.id))
    seen: set[tuple[str, str]] = set()
    for problem in problems:
        place, rule = suite.rules_document.where(problem.loc), str(problem.loc[0])
        if (place, problem.message) not in seen:
            seen.add((place, problem.message))
            # Of an argument, "anything that is not empty" may be meant.
            severity: Severity = "suggestion" if {"arguments", "where"} & set(problem.loc[2:4]) else "mistake"
            yield Finding(
                severity=severity, place=place, about=rule, message=f"rule {rule}: {problem.message}"
            )


def lonely_judges(suite: Suite) -> Iterator[Finding]:
    """Severity 1 rules of which only a model decides: nothing passes one of those."""
    for name, rule in suite.rules.items():
        cases = [case.id for case in suite.spec.cases if name in case.rubric]
        if rule.kind == "judge" and rule.severity == 1 and cases:
            yield Finding(
                severity="mistake",
                place=suite.rules_document.where((name, "severity")),
                about=name,
                message=f"rule {name} has severity 1 and only a judge to decide it. A model's word alone "
                "never passes a rule of severity 1: it is unclear at best, and no conversation of "
                f"{', '.join(cases)} can pass",
                advice="Write what must hold as sql, changes, tools, outbox or transcript, with severity 1, "
                "and give the judge's question severity 2.",
            )


def toothless(suite: Suite) -> Iterator[Finding]:
    """Cases in which no rule speaks of harm or of something wrong."""
    for number, case in enumerate(suite.spec.cases):
        if all(suite.rules[name].severity == 3 for name in case.rubric):
            gate = "" if suite.gate == "off" else ", beside the collateral gate,"
            yield Finding(
                severity="suggestion",
                place=suite.document.where(("cases", number, "rubric")),
                about=case.id,
                message=f"case {case.id}{gate} has rules of severity 3 only: whatever the agent gets wrong, "
                "the report says that it was poor",
                advice="Give the rule that says what must have been done severity 1 or 2.",
            )


def unused(suite: Suite) -> Iterator[Finding]:
    """Rules that no case names."""
    used = {name for case in suite.spec.cases for name in case.rubric}
    for name in suite.rules:
        if name not in used:
            yield Finding(
                severity="suggestion",
                place=suite.rules_document.where((name,)),
                about=name,
                message=f"no case names rule {name}, so it is never asked",
                advice="Add it to the `rubric` of a case, or take it out of the file.",
            )


def too_few(suite: Suite) -> Iterator[Finding]:
    """A `count` that does not reach every case, or not the gate that wants so many verdicts."""
    spec = suite.spec
    left_out = [case.id for case in spec.cases[spec.count :]]  # cases take turns
    if left_out:
        yield Finding(
            severity="suggestion",
            place=suite.document.where(("count",)),
            message=f"a launch holds {spec.count} different conversations, so nobody comes to "
            f"{', '.join(left_out)}",
            advice=f"Set `count` to {len(spec.cases)} or more, or launch with --count.",
        )
    wanted, planned = spec.gates.min_judged, spec.count * spec.repeat
    if wanted is not None and wanted > planned:
        yield Finding(
            severity="suggestion",
            place=suite.document.where(("gates", "min_judged")),
            message=f"the gate min_judged wants {wanted} conversations with a verdict, and a launch holds "
            f"{planned}: it is red whatever the agent does",
            advice=f"Set `count` to {-(-wanted // spec.repeat)} or more, or launch with --count.",
        )
