"""Finds rules that decide nothing: whatever a conversation does, they never fail, or they never pass.

Only what is plain from the rules alone is found. That a rule passes an agent that does nothing is another
question, and only trying it answers that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_rubrics.certain import certain_answer, contradicts, holds_of_anything, never_holds
from redteam_rubrics.phrases import shown
from redteam_rubrics.problem import Problem
from redteam_rubrics.rules.outbox import EVERY_TOOL
from redteam_rubrics.rules.permission import placed
from redteam_rubrics.rules.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redteam_rubrics.phrases import Pattern
    from redteam_rubrics.rubric import Rule
    from redteam_rubrics.rules.outbox import Outbox
    from redteam_rubrics.rules.permission import Entry
    from redteam_rubrics.rules.tools import Tools
    from redteam_rubrics.rules.transcript import Transcript

__all__ = ["check_rules", "check_together"]

_EVERY_OPERATION = {"insert", "update", "delete"}


def check_rules(rules: Mapping[str, Rule]) -> Iterator[Problem]:
    """Find rules, or parts of them, that can never fail or never pass.

    Each problem's message contains `never fails`, `never passes` or `allows nothing`.

    Args:
        rules: the rules by name; each is looked at alone.
    """
    for name, rule in rules.items():
        if rule.sql is not None:
            certain = certain_answer(rule.sql, rule.rows)
            if certain is not None:
                yield Problem(loc=(name, "sql"), message=f"this rule {certain[0]}: {certain[1]}")
        if rule.changes is not None:
            yield from _changes((name, "changes"), rule.changes)
        if rule.transcript is not None:
            yield from _transcript((name, "transcript"), rule.transcript)
        if rule.tools is not None:
            yield from _tools((name, "tools"), rule.tools)
        if rule.outbox is not None:
            yield from _outbox((name, "outbox"), rule.outbox)


def check_together(rules: Mapping[str, Rule]) -> Iterator[Problem]:
    """Find rules of one case that contradict each other, so that no conversation can pass it.

    Args:
        rules: all rules that one case names, by name. The problem is at the rule that forbids.
    """
    owed: dict[str, str] = {}
    for name, rule in rules.items():
        if rule.tools is not None:
            for tool in (*rule.tools.called, *rule.tools.order):
                owed.setdefault(tool, name)
    for name, rule in rules.items():
        if rule.tools is None:
            continue
        zero = [tool for tool, limit in rule.tools.at_most.items() if limit == 0]
        for key, tools in (("never_called", rule.tools.never_called), ("at_most", zero)):
            for tool in tools:
                if tool in owed and owed[tool] != name:
                    message = f"a case with this rule never passes: {owed[tool]} demands a call of {tool}"
                    yield Problem(loc=(name, "tools", key), message=message)


def _changes(loc: tuple[str | int, ...], entries: Sequence[Entry]) -> Iterator[Problem]:
    for place, entry in placed(entries):
        permission = entry.permission
        if permission is not None and permission.where is not None and never_holds(permission.where):
            owed = "this rule never passes" if permission.least else "this entry allows nothing"
            message = f"{owed}: {cut(permission.where)} is never true"
            yield Problem(loc=(*loc, *place, entry.written, "where"), message=message)
    outside = [entry for entry in entries if not entry.any_of]
    ways = [(name, way) for entry in entries for name, way in entry.any_of.items()] or [("", ())]
    every = [entry for _, entry in placed(entries)]
    for name, way in ways:
        if _allows_all([*outside, *way], every):
            who = f"its alternative `{name}`" if name else "it"
            message = f"this rule never fails: {who} allows every change of everything that the rule names"
            yield Problem(loc=loc, message=message)


def _allows_all(entries: Sequence[Entry], every: Sequence[Entry]) -> bool:
    """Whether nothing that `every` names can change, or fail to change, so that `entries` do not allow it."""
    open_to: dict[str | None, set[str]] = {}
    for entry in entries:
        if entry.permission is not None and entry.permission.least:
            return False
        if entry.permission is not None and entry.permission.is_plain:
            open_to.setdefault(entry.table, set()).update(entry.permission.do)
    tables = {entry.table for entry in every if entry.table is not None}
    names_objects = any(entry.objects for entry in every)
    any_object = any("*" in entry.objects for entry in entries)
    return (any_object or not names_objects) and all(
        open_to.get(table) == _EVERY_OPERATION for table in tables
    )


def _transcript(loc: tuple[str | int, ...], spec: Transcript) -> Iterator[Problem]:
    yield from _said(loc, spec.agent_says, spec.never_says)
    for phrase in spec.user_says:
        if holds_of_anything(phrase):
            message = f"{shown(phrase)} matches whatever is said: this never fails once the user speaks"
            yield Problem(loc=(*loc, "user_says"), message=message)


def _said(
    loc: tuple[str | int, ...], wanted: Sequence[str | Pattern], banned: Sequence[str | Pattern]
) -> Iterator[Problem]:
    """Of what the agent must and must not say in the same part of a conversation."""
    for key, phrases, verdict in (("agent_says", wanted, "fails"), ("never_says", banned, "passes")):
        for phrase in phrases:
            if holds_of_anything(phrase):
                message = (
                    f"{shown(phrase)} matches whatever is said: it never {verdict} once the agent speaks"
                )
                yield Problem(loc=(*loc, key), message=message)
    for ban in banned:
        owed = next((phrase for phrase in wanted if contradicts(phrase, ban)), None)
        if owed is not None and not holds_of_anything(ban):
            message = f"this rule never passes: whoever says {shown(owed)} says {shown(ban)}"
            yield Problem(loc=(*loc, "never_says"), message=message)


def _tools(loc: tuple[str | int, ...], spec: Tools) -> Iterator[Problem]:
    for tool, limit in spec.at_most.items():
        if max(1 if tool in spec.called else 0, spec.order.count(tool)) > limit:
            message = f"this rule never passes: {tool} must be called, and may be at most {limit} times"
            yield Problem(loc=(*loc, "at_most", tool), message=message)
    for tool, arguments in spec.arguments.items():
        yield from _arguments((*loc, "arguments", tool), arguments)
    owed = {*spec.called, *spec.order}
    barred = {*spec.never_called, *(tool for tool, limit in spec.at_most.items() if limit == 0)}
    for tool, reads in spec.preceded_by.items():
        if set(reads.tools) == {tool}:
            message = f"a first call of {tool} never passes: only {tool} itself may come before it"
            yield Problem(loc=(*loc, "preceded_by", tool), message=message)
        elif tool in owed and set(reads.tools) <= barred:
            message = f"this rule never passes: what must come before {tool} may not be called"
            yield Problem(loc=(*loc, "preceded_by", tool), message=message)
    for tool, agreement in spec.confirmed.items():
        for phrase in (*agreement.agreed, *agreement.proposed):
            if holds_of_anything(phrase):
                message = f"{shown(phrase)} matches whatever is said, so this part of the rule never fails"
                yield Problem(loc=(*loc, "confirmed", tool), message=message)
    for tool, telling in spec.after_error.items():
        yield from _said((*loc, "after_error", tool), telling.agent_says, telling.never_says)


def _outbox(loc: tuple[str | int, ...], spec: Outbox) -> Iterator[Problem]:
    for index, sent in enumerate(spec.sent):
        if 0 in (spec.at_most.get(sent.tool), spec.at_most.get(EVERY_TOOL)):
            message = f"this rule never passes: {sent.tool} must be used, and may not be"
            yield Problem(loc=(*loc, "at_most"), message=message)
        yield from _arguments((*loc, "sent", index, "where"), sent.where)


def _arguments(loc: tuple[str | int, ...], expected: Mapping[str, object]) -> Iterator[Problem]:
    for name, wanted in expected.items():
        if holds_of_anything(wanted):
            message = (
                f"{wanted} matches any value that is not empty: this part of the rule never fails on one"
            )
            yield Problem(loc=(*loc, name), message=message)
