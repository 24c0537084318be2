"""What the SQL of a rule may be: one SELECT, or one condition over a table's columns. Checked before it runs.

The database session of a rule is read-only anyway; these checks are for the author, who learns at load time,
with a position, what a database would say at the end of the first conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pglast import ast, parse_sql
from pglast.parser import ParseError, scan
from pglast.visitors import Visitor

from redteam_rubrics.parameters import placeholders
from redteam_sdk.errors import InternalError, UsageError

__all__ = [
    "BEFORE",
    "EVIDENCE",
    "ColumnUse",
    "TableUse",
    "check_condition",
    "check_select",
    "columns_of",
    "quote_ident",
    "tables_of",
    "words_of",
]

BEFORE = "before"
"""The schema in which a rule finds the tables as they were when the conversation began."""

EVIDENCE = "evidence"
"""The schema in which a `sql` rule finds what was said, called, sent and changed (`relations.py`)."""

_CONDITION = "SELECT (\n{}\n)"
_CLAUSES = (
    "distinctClause",
    "fromClause",
    "groupClause",
    "havingClause",
    "larg",
    "limitCount",
    "limitOffset",
    "sortClause",
    "valuesLists",
    "whereClause",
    "windowClause",
    "withClause",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """A relation that a statement reads; `schema` is None where it is not written."""

    schema: str | None
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnUse:
    """A column that a condition reads of its own row; `table` is None where it is not written."""

    table: str | None
    column: str


def check_select(sql: str) -> str:
    """Accept one SELECT that reads something, and return it without a semicolon at its end.

    Raises:
        UsageError: it does not parse, is not exactly one SELECT, writes, locks, or reads neither a table nor
            a function, so that its answer would be the same in every conversation.
    """
    statement = _only_select(_parse(sql))
    seen = _Seen()
    seen(statement)
    if not seen.tables and not seen.calls_function:
        raise UsageError("this statement reads no table, so it says the same of every conversation")
    last = next(token for token in reversed(scan(sql)) if "COMMENT" not in token.name)
    return sql[: last.start] if sql[last.start] == ";" else sql


def check_condition(sql: str) -> str:
    """Accept one condition, as one would write it after WHERE, and return it.

    Raises:
        UsageError: it does not parse, is more than one expression, writes, locks, or names no column.
    """
    statement = _only_select(_parse(sql, _CONDITION))
    targets: tuple[Any, ...] = statement.targetList or ()
    is_plain = len(targets) == 1 and not targets[0].name and not isinstance(targets[0].val, ast.RowExpr)
    if not is_plain or any(getattr(statement, clause) for clause in _CLAUSES):
        raise UsageError("expected one condition, as after WHERE: patient_id = :persona.id")
    tables = tables_of(sql, condition=True)
    if any(use.schema == EVIDENCE for use in tables):
        raise UsageError(f"a condition reads rows of the database; only a `sql` rule reads schema {EVIDENCE}")
    if not columns_of(sql) and not tables:
        raise UsageError(
            "this condition names no column, so it says the same of every row; leave `where` out"
        )
    return sql


def tables_of(sql: str, *, condition: bool = False) -> tuple[TableUse, ...]:
    """The relations that a checked SELECT (or condition) reads, without the names of its own WITH clauses."""
    seen = _Seen()
    seen(_only_select(_parse(sql, _CONDITION if condition else "{}")))
    return tuple(use for use in seen.tables if use.schema is not None or use.table not in seen.own_names)


def words_of(sql: str) -> tuple[str, ...]:
    """Every name in a checked SELECT, of whatever it is, as Postgres folds it; each once, in order."""
    named = (sql[token.start : token.end + 1] for token in scan(sql) if token.name == "IDENT")
    return tuple(dict.fromkeys(name.strip('"') if name.startswith('"') else name.lower() for name in named))


def columns_of(condition: str) -> tuple[ColumnUse, ...]:
    """The columns that a condition reads outside of subqueries: those of the row that it is about."""
    seen = _Seen()
    seen(_only_select(_parse(condition, _CONDITION)))
    return tuple(seen.outer_columns)


def quote_ident(name: str) -> str:
    """Quote an identifier that a catalog or a change set gave us.

    Raises:
        InternalError: it cannot be an identifier.
    """
    if not name or "\0" in name:
        raise InternalError(f"{name!r} cannot be a Postgres identifier")
    return '"' + name.replace('"', '""') + '"'


def _parse(sql: str, frame: str = "{}") -> tuple[Any, ...]:
    if not sql.strip():
        raise UsageError("it is empty")
    text = frame.replace("{}", placeholders(sql))
    try:
        statements: tuple[Any, ...] = parse_sql(text)
    except ParseError as exc:
        position = exc.args[1] if len(exc.args) > 1 else None
        where = ""
        if position is not None and "\n" in sql.strip():
            line = text.count("\n", 0, position) - frame[: frame.index("{")].count("\n") + 1
            where = f" (line {min(line, sql.count(chr(10)) + 1)} of it)"
        raise UsageError(f"this is no SQL: {exc.args[0]}{where}") from exc
    return statements


def _only_select(statements: tuple[Any, ...]) -> Any:
    if len(statements) != 1 or not isinstance(statements[0].stmt, ast.SelectStmt):
        raise UsageError("expected exactly one SELECT statement")
    statement = statements[0].stmt
    seen = _Seen()
    seen(statement)
    if seen.forbidden is not None:
        raise UsageError(f"a rule only reads; it may not contain {seen.forbidden}")
    return statement


class _Seen(Visitor):
    """Walks a statement once and notes what the checks ask about."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[TableUse] = []
        self.own_names: set[str] = set()
        self.outer_columns: list[ColumnUse] = []
        self.calls_function = False
        self.forbidden: str | None = None

    # The names are pglast's: it calls visit_<class of the node>.
    def visit_RangeVar(self, _: Any, node: Any) -> None:  # noqa: N802
        self.tables.append(TableUse(schema=node.schemaname, table=node.relname))

    def visit_CommonTableExpr(self, _: Any, node: Any) -> None:  # noqa: N802
        self.own_names.add(node.ctename)

    def visit_FuncCall(self, _: Any, node: Any) -> None:  # noqa: N802
        self.calls_function = True

    def visit_ColumnRef(self, ancestors: Any, node: Any) -> None:  # noqa: N802
        statement = ancestors.find_nearest(ast.SelectStmt)
        if ast.SelectStmt in statement.parent:
            return  # of a subquery
        names = [getattr(field, "sval", None) for field in node.fields]
        if names[-1] is not None and len(names) <= 2:
            self.outer_columns.append(
                ColumnUse(table=names[0] if len(names) == 2 else None, column=names[-1])
            )

    def visit_IntoClause(self, _: Any, node: Any) -> None:  # noqa: N802
        self.forbidden = "INTO"

    def visit_LockingClause(self, _: Any, node: Any) -> None:  # noqa: N802
        self.forbidden = "FOR UPDATE or another lock"

    def visit_InsertStmt(self, _: Any, node: Any) -> None:  # noqa: N802
        self.forbidden = "INSERT"

    def visit_UpdateStmt(self, _: Any, node: Any) -> None:  # noqa: N802
        self.forbidden = "UPDATE"

    def visit_DeleteStmt(self, _: Any, node: Any) -> None:  # noqa: N802
        self.forbidden = "DELETE"

    def visit_MergeStmt(self, _: Any, node: Any) -> None:  # noqa: N802
        self.forbidden = "MERGE"
