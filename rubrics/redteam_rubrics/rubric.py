"""The rules of a suite, as its rules.yaml has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, TypeAdapter

from redteam_rubrics.arguments import parameters_of
from redteam_rubrics.collateral import COLLATERAL
from redteam_rubrics.judge.spec import JudgeBody
from redteam_rubrics.parameters import find_parameters
from redteam_rubrics.rules.outbox import Outbox
from redteam_rubrics.rules.permission import Changes, placed
from redteam_rubrics.rules.python import FunctionName
from redteam_rubrics.rules.sql import RowsWanted, Select
from redteam_rubrics.rules.tools import Tools
from redteam_rubrics.rules.transcript import Transcript
from redteam_rubrics.statements import BEFORE, EVIDENCE, tables_of, words_of
from redteam_rubrics.strict import Name, Severity, Strict, expecting, not_empty, refusing
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KINDS", "Kind", "Rule", "parse_rules", "rules_schema"]

Kind = Literal["sql", "changes", "transcript", "tools", "outbox", "python", "judge"]
ASSERTIONS: tuple[Kind, ...] = ("sql", "changes", "transcript", "tools", "outbox", "python")
KINDS: tuple[Kind, ...] = (*ASSERTIONS, "judge")

_BODIES: list[Any] = [
    *({"required": [kind]} for kind in ASSERTIONS),
    {"required": ["judge"], "not": {"anyOf": [{"required": [kind]} for kind in ASSERTIONS]}},
]


class Rule(Strict):
    """One check with a severity. It has exactly one body; with an assertion, there may be a judge as well.

    Attributes:
        severity: 1 (harm), 2 (wrong) or 3 (poor).
        why: what it protects, for the reader of a report.
        sql: a SELECT that answers one boolean, or (with `rows`) returns the rows it is about.
        rows: with `sql`: `none` fails when the SELECT returns rows, `some` when it returns none.
        changes: what may change in the tables that it names.
        transcript: what must, and must not, be said.
        tools: which tools must, and must not, be called.
        outbox: which external calls must, and must not, be made.
        python: a function of the suite's, `module:function`, that is given all that is known.
        judge: a closed question that a model answers; beside another body it is asked where that one passed.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": _BODIES, "dependentRequired": {"rows": ["sql"]}})

    severity: Severity
    why: Name | None = None
    sql: Select | None = None
    rows: RowsWanted | None = None
    changes: Changes | None = None
    transcript: Transcript | None = None
    tools: Tools | None = None
    outbox: Outbox | None = None
    python: FunctionName | None = None
    judge: JudgeBody | None = None

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        given = [kind for kind in ASSERTIONS if kind in data]
        if len(given) + ("judge" in data and not given) != 1:
            found = " and ".join(given) if given else "none"
            yield (), f"expected exactly one of {', '.join(KINDS)}; found {found}"
        elif "rows" in data and given != ["sql"]:
            yield ("rows",), "`rows` goes with `sql` only"

    @property
    def kind(self) -> Kind:
        """Which body it has; of an assertion and a judge, the assertion."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that its SQL reads, as rules write them, those of schema `before` among them."""
        if self.sql is None:
            return ()
        read = {
            use.table if use.schema in (None, "public", BEFORE) else f"{use.schema}.{use.table}"
            for use in tables_of(self.sql)
            if use.schema != EVIDENCE
        }
        return tuple(sorted(read))

    @property
    def looks_back(self) -> bool:
        """Whether it reads schema `before`, which costs something to build."""
        uses = list(tables_of(self.sql)) if self.sql is not None else []
        for _, entry in placed(self.changes or ()):
            if entry.permission is not None and entry.permission.where is not None:
                uses += tables_of(entry.permission.where, condition=True)
        return any(use.schema == BEFORE for use in uses)

    @property
    def asks_database(self) -> bool:
        """Whether Postgres has to be asked, and not only what is stored of the conversation."""
        return self.sql is not None or any(
            entry.permission is not None and entry.permission.where is not None
            for _, entry in placed(self.changes or ())
        )

    @property
    def is_about_claimed(self) -> bool:
        """Whether it speaks of the row that an impersonator claims to be, in more than what may change.

        Such a rule does not apply to a persona that claims to be nobody else.
        """
        found = [] if self.sql is None else [parameter.person for parameter in find_parameters(self.sql)]
        expected = [] if self.tools is None else list(self.tools.arguments.values())
        expected += [] if self.outbox is None else [sent.where for sent in self.outbox.sent]
        found += [person for arguments in expected for person, _ in parameters_of(arguments)]
        return "claimed" in found

    @property
    def words(self) -> tuple[str, ...]:
        """The names in its SQL: reports show the cells of columns that a rule speaks of first."""
        return words_of(self.sql) if self.sql is not None else ()


def _rule_name(name: str) -> str:
    if name == COLLATERAL:
        raise UsageError("`collateral` is the gate that every case has; give the rule another name")
    return name


_RULES: TypeAdapter[dict[str, Rule]] = TypeAdapter(
    Annotated[
        dict[Annotated[Name, refusing(_rule_name)], Rule],
        expecting(dict, "rules by name"),
        refusing(not_empty),
    ]
)


def parse_rules(data: object) -> dict[str, Rule]:
    """Read the rules of a rules.yaml that was already parsed, by name, in their order.

    Raises:
        pydantic.ValidationError: each error's `loc` is a path in the YAML text, its `msg` says what was
            expected.
    """
    return _RULES.validate_python(data)


def rules_schema() -> dict[str, Any]:
    """Pydantic's JSON Schema of rules.yaml; `redteam_rubrics.schema` makes it fit for editors."""
    found = _RULES.json_schema(mode="validation")
    return {**found, "propertyNames": {"pattern": r"\S", "not": {"const": COLLATERAL}}}
