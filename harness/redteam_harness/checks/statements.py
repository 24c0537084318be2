"""The SQL of rules, planned by Postgres on a fork of the template: columns, types, functions.

Nothing is run: EXPLAIN plans a statement without it. Conditions of `changes` are planned as well; no other
check reads them, because in a conversation they are only asked about rows that changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from redteam_forker import ChangeSet
from redteam_harness.checks.finding import Finding
from redteam_harness.launch.world import RuleQueryFailed, open_world
from redteam_rubrics import Evidence
from redteam_rubrics.evidence import ChangeView
from redteam_rubrics.parameters import bind
from redteam_rubrics.relations import with_evidence
from redteam_rubrics.rules.permission import placed
from redteam_rubrics.statements import quote_ident
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_harness.checks.finding import Subject
    from redteam_harness.launch.documents import Document
    from redteam_rubrics import Rule, World

__all__ = ["check_statements", "statement_line"]

_LIFETIME_S = 120.0
_CHECKOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    """SQL of a rule, ready to be planned.

    Attributes:
        rule: the rule's name.
        loc: where it is in rules.yaml.
        written: as it is there.
        before: what is put in front of it.
        sql: as it is put, on lines of its own.
        after: what is put behind it.
        args: of the whole.
    """

    rule: str
    loc: tuple[str | int, ...]
    written: str
    before: str
    sql: str
    after: str
    args: tuple[object, ...] = ()

    def line_of(self, error: BaseException | None) -> int:
        """The line of the SQL, from 0, in which Postgres saw the error; 0 where it does not say."""
        position = str(getattr(error, "position", None) or "")
        if not position.isdecimal():
            return 0
        within = int(position) - 1 - len(f"EXPLAIN {self.before}\n")
        last = self.written.strip("\n").count("\n")
        return min(self.sql.count("\n", 0, within), last) if within > 0 else 0


async def check_statements(subject: Subject) -> list[Finding]:
    """Have Postgres plan every statement of the rules, on each template whose cases use the rule."""
    findings: dict[tuple[str, str], Finding] = {}
    for template in subject.distinct_templates:
        cases = [case for case, one in subject.templates.items() if one.name == template.name]
        rules = {name: rule for case in cases for name, rule in subject.suite.rules_of(case).items()}
        evidence = _nothing(subject)
        statements = [one for name, rule in rules.items() for one in _statements(name, rule, evidence)]
        if not statements:
            continue
        pool = subject.pools[cases[0]]
        fork = await pool.checkout(lifetime_s=_LIFETIME_S, deadline_s=_CHECKOUT_S, label="check/statements")
        try:
            async with open_world(subject.server, fork, ChangeSet(), before=True) as world:
                for one in statements:
                    finding = await _planned(one, world, subject.suite.rules_document)
                    if finding is not None:
                        findings.setdefault((finding.place, finding.message), finding)
        finally:
            with anyio.CancelScope(shield=True):
                await pool.drop(fork)
    return list(findings.values())


def _nothing(subject: Subject) -> Evidence:
    """The evidence of a conversation in which nothing was said; somebody's row fills the parameters."""
    row = subject.cast.personas[0].row
    return Evidence(
        conversation="check", persona=row, claimed=row, disposition="", events=(), changes=ChangeView()
    )


def _statements(name: str, rule: Rule, evidence: Evidence) -> Iterator[_Statement]:
    person = (evidence.persona, evidence.claimed)
    try:
        if rule.sql is not None:
            head, select, args = with_evidence(rule.sql, evidence)
            # Without `rows` it has to be one boolean, which is what a condition is.
            before = f"{head}SELECT 1 WHERE (" if rule.rows is None else f"{head}SELECT FROM ("
            yield _Statement(
                rule=name,
                loc=(name, "sql"),
                written=rule.sql,
                before=before,
                sql=bind(select, *person),
                after=")" if rule.rows is None else ') AS "rule"',
                args=tuple(args),
            )
        for place, entry in placed(rule.changes or ()):
            permission = entry.permission
            if permission is None or permission.where is None or entry.table is None:
                continue
            schema, _, table = entry.table.rpartition(".")
            named = f"{quote_ident(schema or 'public')}.{quote_ident(table)}"
            yield _Statement(
                rule=name,
                loc=(name, "changes", *place, entry.written, "where"),
                written=permission.where,
                before=f"SELECT FROM {named} AS {quote_ident(table)} WHERE (",
                sql=bind(permission.where, *person),
                after=")",
            )
    except UsageError:
        return  # a column that the cast lacks: the check of names says so


async def _planned(one: _Statement, world: World, document: Document) -> Finding | None:
    try:
        await world.fetch(f"EXPLAIN {one.before}\n{one.sql}\n{one.after}", one.args)
    except RuleQueryFailed as error:
        line = statement_line(document, one.loc, one.written, one.line_of(error.__cause__))
        said, *more = str(error).splitlines()
        return Finding(
            severity="mistake",
            place=f"{document.path}:{line}",
            about=one.rule,
            message=f"rule {one.rule}: Postgres refuses its {one.loc[-1]}: {said}. In a launch the rule "
            "would decide nothing, and no conversation of its cases could pass",
            details=tuple(more),
        )
    return None


def statement_line(document: Document, loc: tuple[str | int, ...], written: str, number: int) -> int:
    """The line of rules.yaml, from 1, on which line `number` (from 0) of a text in it stands.

    It is looked for from the key on, because YAML folds and indents; where it is not found, the key's line.
    """
    start = document.line_of(loc)
    lines = written.splitlines()
    wanted = lines[number].strip() if number < len(lines) else ""
    if not wanted:
        return start
    held = document.path.read_text(encoding="utf-8").splitlines()
    for offset, text in enumerate(held[start - 1 : start + len(lines) + 1]):
        if wanted in text:
            return start + offset
    return start
