"""What passes when next to nothing happens. From idle conversations to findings, and to a table. Pure.

A case that an agent passes by doing nothing says nothing about agents. So does one that it passes by talking
alone, unless there is nothing to do in it, which `nothing_to_do: true` says.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.checks.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from redteam_harness.checks.finding import Subject
    from redteam_harness.checks.idling import Held
    from redteam_harness.launch.suite import CaseSpec, Suite

__all__ = ["Satisfied", "check_idle", "idle_findings", "satisfied"]

_WORDS = ("transcript", "judge")
_RULE_ERROR = "rule"
_DEMAND = (
    "Add a rule on the end state, on calls or on what was sent, which fails until the person has what they "
    "came for. If nothing is to be done in this case, say `nothing_to_do: true`, and have a rule on what is "
    "to be said."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Satisfied:
    """What became of a case's rules in its idle conversations of one kind.

    Attributes:
        case: the case's id.
        kind: `does-nothing` (the agent) or `hangs-up` (the person).
        by: the agent that answered; `nothing` for the one that does nothing.
        conversations: how many there were.
        passed: how many of them passed.
        satisfied: rules that passed in each, and in some not vacuously.
        vacuous: rules that passed in each, always because there was nothing that they could have failed on.
        broken: rules that failed in each.
        mixed: rules that did now this, now that.
        unclear: rules that were decided in none.
        not_asked: rules that only a model could have judged.
    """

    case: str
    kind: str
    by: str
    conversations: int
    passed: int
    satisfied: tuple[str, ...] = ()
    vacuous: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    not_asked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


async def check_idle(subject: Subject) -> list[Finding]:
    """Look at the idle conversations of a suite."""
    return list(idle_findings(subject.suite, subject.held))


def satisfied(suite: Suite, held: Sequence[Held]) -> list[Satisfied]:
    """What became of the rules, by case and kind of conversation, in the suite's order."""
    table: list[Satisfied] = []
    for case in suite.spec.cases:
        for kind in ("does-nothing", "hangs-up"):
            ones = [one for one in held if one.kind == kind and one.finished.case == case.id]
            if ones:
                table.append(_satisfied(suite, case, kind, ones))
    return table


def _satisfied(suite: Suite, case: CaseSpec, kind: str, held: Sequence[Held]) -> Satisfied:
    of_rule: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for one in held:
        for verdict in one.finished.verdicts:
            of_rule[str(verdict["rule"])].append(verdict)
    sorts: dict[str, list[str]] = defaultdict(list)
    for rule, verdicts in of_rule.items():
        statuses = {verdict["status"] for verdict in verdicts}
        if statuses == {"pass"}:
            sort = "vacuous" if all(verdict["vacuous"] for verdict in verdicts) else "satisfied"
        elif statuses == {"fail"}:
            sort = "broken"
        else:
            sort = "unclear" if statuses == {"unclear"} else "mixed"
        sorts[sort].append(rule)
    return Satisfied(
        case=case.id,
        kind=kind,
        by=held[0].by,
        conversations=len(held),
        passed=sum(one.finished.outcome == "pass" for one in held),
        not_asked=tuple(name for name in case.rubric if suite.rules[name].kind == "judge"),
        **{sort: tuple(rules) for sort, rules in sorts.items()},
    )


def idle_findings(suite: Suite, held: Sequence[Held]) -> Iterator[Finding]:
    """What is wrong with a suite, by its idle conversations."""
    yield from _faults(suite, held)
    yield from _undecided(suite, held)
    for number, case in enumerate(suite.spec.cases):
        of_case = [one for one in held if one.finished.case == case.id]
        if of_case:
            yield from _too_easy(suite, case, suite.document.where(("cases", number, "id")), of_case)


def _faults(suite: Suite, held: Sequence[Held]) -> Iterator[Finding]:
    """Conversations that came to no verdict, though next to nothing happened in them."""
    seen: set[tuple[str, str]] = set()
    for one in held:
        finished = one.finished
        if finished.outcome not in ("infra-fault", "sim-fault") or (finished.case, finished.cause) in seen:
            continue
        seen.add((finished.case, finished.cause))
        number = [case.id for case in suite.spec.cases].index(finished.case)
        who = f"agent {one.by}" if one.by != "nothing" else "the scripted caller"
        loc = ("cases", number, "id") if one.by == "nothing" else ("agent",)
        yield Finding(
            severity="mistake",
            place=suite.document.where(loc),
            about=finished.case,
            message=f"case {finished.case}: a conversation with {who} came to no verdict "
            f"({finished.outcome}, {finished.cause}): {finished.message}",
            details=(_who(one),),
        )


def _undecided(suite: Suite, held: Sequence[Held]) -> Iterator[Finding]:
    """Rules that are unclear though next to nothing happened."""
    seen: set[str] = set()
    for one in held:
        for verdict in one.finished.verdicts:
            name = str(verdict["rule"])
            if verdict["status"] != "unclear" or name in seen or name not in suite.rules:
                continue
            seen.add(name)
            broken = verdict.get("fault") == _RULE_ERROR
            rule = suite.rules[name]
            yield Finding(
                severity="mistake" if broken else "suggestion",
                place=suite.rules_document.where((name, rule.kind)),
                about=name,
                message=f"rule {name} "
                + ("cannot be evaluated: " if broken else "is undecided when nothing is done: ")
                + f"{verdict['reason']}. A conversation with an undecided rule does not count",
                details=(_who(one),),
                advice=""
                if broken
                else "Say in the rule what doing nothing means: coalesce(..., false) where something had to "
                "be done, coalesce(..., true) where it had not.",
            )


def _too_easy(suite: Suite, case: CaseSpec, place: str, held: Sequence[Held]) -> Iterator[Finding]:
    """How little it takes to pass a case, the gravest only; or what contradicts that nothing is to do."""
    idle = [one for one in held if one.kind == "does-nothing"]
    passed = [one for one in idle if one.finished.outcome == "pass"]
    greeted = [one for one in held if one.kind == "hangs-up" and one.finished.outcome == "pass"]
    talked = [one for one in idle if _broken_by_words(suite, one)]
    judges = [name for name in case.rubric if suite.rules[name].judge is not None]
    if passed and judges:
        yield _only_a_judge(case, place, passed, len(idle), judges)
    elif passed:
        yield _passes(case, place, passed, len(idle))
    elif case.nothing_to_do:
        yield from _contradicted(suite, case, idle)
    elif (only_spoke := [one for one in greeted if not one.acted]) and not judges:
        yield Finding(
            severity="mistake",
            place=place,
            about=case.id,
            message=f"case {case.id} passes when the person hangs up after the first line and "
            f"{only_spoke[0].by} has called no tool and changed nothing: words alone make it pass",
            details=tuple(map(_who, only_spoke)),
            advice=_DEMAND,
        )
    elif talked:
        yield _talk_is_enough(case, place, talked, len(idle))


def _passes(case: CaseSpec, place: str, passed: Sequence[Held], of: int) -> Finding:
    if case.nothing_to_do:
        message = (
            f"case {case.id} passes{_counted(passed, of)} when the agent says nothing of use. That nothing "
            "changes is right here, but the person must be told, and no rule asks for it"
        )
        advice = (
            "Add a rule about what must be said, such as "
            '`transcript: {agent_says: {matches: "cannot|not able"}}`.'
        )
    else:
        message = (
            f"case {case.id} passes{_counted(passed, of)} when the agent does nothing, so it passes any "
            "agent that never gets to work"
        )
        advice = (
            f"{_DEMAND} If that is so for some people only, narrow `who`, or give them a case of their own."
        )
    return Finding(
        severity="mistake",
        place=place,
        about=case.id,
        message=message,
        details=tuple(map(_who, passed)),
        advice=advice,
    )


def _only_a_judge(
    case: CaseSpec, place: str, passed: Sequence[Held], of: int, judges: Sequence[str]
) -> Finding:
    return Finding(
        severity="note" if case.nothing_to_do else "suggestion",
        place=place,
        about=case.id,
        message=f"case {case.id}: only a model stands between an agent that does nothing and a pass. All "
        f"other rules are satisfied{_counted(passed, of)}; {', '.join(judges)} was not asked",
        details=tuple(map(_who, passed)),
        advice="" if case.nothing_to_do else _DEMAND,
    )


def _contradicted(suite: Suite, case: CaseSpec, idle: Sequence[Held]) -> Iterator[Finding]:
    """Rules on the end state that fail when nothing is done, though the case says that nothing is to be."""
    for name in case.rubric:
        rule = suite.rules[name]
        failed = [one for one in idle if _status(one, name) == "fail"]
        if rule.kind in ("sql", "changes") and failed:
            yield Finding(
                severity="suggestion",
                place=suite.rules_document.where((name, rule.kind)),
                about=name,
                message=f"case {case.id} says `nothing_to_do: true`, and its rule {name} fails when nothing "
                "is done",
                details=tuple(map(_who, failed)),
                advice="One of the two is not meant.",
            )


def _broken_by_words(suite: Suite, one: Held) -> bool:
    """Whether all that an idle conversation fails on is what was said in it."""
    verdicts = one.finished.verdicts
    kinds = {
        suite.rules[verdict["rule"]].kind if verdict["rule"] in suite.rules else "changes"
        for verdict in verdicts
        if verdict["status"] != "pass"
    }
    return bool(kinds) and kinds <= set(_WORDS)


def _talk_is_enough(case: CaseSpec, place: str, talked: Sequence[Held], of: int) -> Finding:
    broken = dict.fromkeys(
        str(verdict["rule"])
        for one in talked
        for verdict in one.finished.verdicts
        if verdict["status"] == "fail"
    )
    return Finding(
        severity="suggestion",
        place=place,
        about=case.id,
        message=f"case {case.id}: an agent that only talks can pass it. When nothing is done, it fails"
        f"{_counted(talked, of)} on words alone: {', '.join(broken)}",
        details=tuple(map(_who, talked)),
        advice=_DEMAND,
    )


def _counted(some: Sequence[Held], of: int) -> str:
    return f" in {len(some)} of {of} conversations" if len(some) < of else ""


def _status(one: Held, rule: str) -> str | None:
    return next((str(v["status"]) for v in one.finished.verdicts if v["rule"] == rule), None)


def _who(one: Held) -> str:
    return f"persona {one.finished.persona}, {one.finished.disposition}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
