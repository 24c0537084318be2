"""Checks of a suite's SQL before it reaches a server: one SELECT, and conditions that are one expression.

The transaction that runs them is READ ONLY as well; these checks are there to say what is wrong, and where.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pglast import ast, parse_sql
from pglast.parser import ParseError, scan

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_condition", "check_select", "embeddable", "position"]

_WRITES = {
    ast.InsertStmt: "INSERT",
    ast.UpdateStmt: "UPDATE",
    ast.DeleteStmt: "DELETE",
    ast.MergeStmt: "MERGE",
}
_PREFIX = "SELECT ("
_LOCK_STRENGTHS = frozenset({"UPDATE", "SHARE", "NO", "KEY"})


def check_select(sql: str, *, what: str = "personas.select") -> None:
    """Check that a text is exactly one SELECT that writes nothing and locks nothing.

    Args:
        sql: the text.
        what: what it is called in messages.

    Raises:
        UsageError: says what stands where, by line and column.
    """
    try:
        statements: Any = parse_sql(sql)
    except ParseError as exc:
        raise _syntax(exc, sql, what, skip=0) from exc
    if not statements:
        raise UsageError(f"{what} is empty; write one SELECT")
    if len(statements) > 1:
        start = _first_token(sql, statements[1].stmt_location)
        raise UsageError(
            f"{what} holds {len(statements)} statements, the second {position(sql, start)}; keep one SELECT"
        )
    statement = statements[0].stmt
    if not isinstance(statement, ast.SelectStmt):
        kind = type(statement).__name__.removesuffix("Stmt")
        start = _first_token(sql, statements[0].stmt_location)
        raise UsageError(
            f"{what} must be one SELECT, but {kind} stands {position(sql, start)}; write a SELECT"
        )
    _refuse_effects(statement, sql, what, skip=0)


def check_condition(condition: str, *, what: str = "who") -> None:
    """Check that a text is one expression over the cast's columns, as after WHERE.

    Raises:
        UsageError: says what stands where, by line and column.
    """
    sql = f"{_PREFIX}{condition}\n)"
    skip = len(_PREFIX)
    try:
        _refuse_loose_brackets(condition, what)
        statements: Any = parse_sql(sql)
    except ParseError as exc:
        raise _syntax(exc, condition, what, skip=skip) from exc
    statement = statements[0].stmt
    (target,) = statement.targetList
    if isinstance(target.val, ast.RowExpr) or target.name is not None:
        raise UsageError(f"{what} must be one condition, such as `visits > 0`; join several with AND or OR")
    _refuse_effects(statement, condition, what, skip=skip)


def embeddable(sql: str) -> str:
    """A SELECT that `check_select` passed, as it can stand in brackets: blanks in place of semicolons."""
    marks = [token.start for token in scan(sql) if sql[token.start] == ";"]
    return "".join(" " if index in marks else letter for index, letter in enumerate(sql))


def position(sql: str, index: int) -> str:
    """`at line 2, column 7` for a place in a text, both from 1."""
    before = sql[: max(index, 0)]
    line = before.count("\n") + 1
    return f"at line {line}, column {len(before) - (before.rfind(chr(10)) + 1) + 1}"


def _syntax(exc: ParseError, sql: str, what: str, *, skip: int) -> UsageError:
    reason, index = exc.args[0], exc.args[1]
    place = len(sql) if index is None else min(index - skip, len(sql))
    return UsageError(f"{what} does not parse: {reason}, {position(sql, place)}; correct the SQL")


def _refuse_loose_brackets(condition: str, what: str) -> None:
    """A condition stands in brackets of ours; it must not close them, nor end the statement."""
    depth = 0
    for token in scan(condition):
        mark = condition[token.start : token.end + 1]
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0 or mark == ";":
            raise UsageError(
                f"{what} has a {mark!r} too many {position(condition, token.start)}; it must be one "
                "condition, such as `visits > 0`"
            )
    if depth:
        raise UsageError(f"{what} has {depth} unclosed '('; close it")


def _refuse_effects(statement: ast.SelectStmt, sql: str, what: str, *, skip: int) -> None:
    for node in _nodes(statement):
        if word := _WRITES.get(type(node)):
            start = _start(node.relation) - skip
            raise UsageError(f"{what} may only read, but {word} stands {position(sql, start)}; remove it")
        if isinstance(node, ast.IntoClause):
            start = _start(node.rel) - skip
            raise UsageError(f"{what} may only read, but INTO stands {position(sql, start)}; remove it")
        if isinstance(node, ast.LockingClause):
            raise UsageError(
                f"{what} may not lock rows ({_lock_position(sql)}); remove FOR UPDATE or FOR SHARE"
            )
        if isinstance(node, ast.ParamRef):
            start = _start(node) - skip
            raise UsageError(
                f"{what} takes no parameters, but ${node.number} stands {position(sql, start)}; remove it"
            )


def _nodes(tree: object) -> Iterator[Any]:
    """Every node of a tree, a parent before its children. Not recursive: a long sum is a deep tree."""
    parts = [tree]
    while parts:
        part = parts.pop()
        if isinstance(part, tuple):
            parts += reversed(part)
        elif isinstance(part, ast.Node):
            yield part
            parts += [getattr(part, name) for name in part]


def _start(node: Any) -> int:
    return int(node.location)


def _first_token(sql: str, start: int) -> int:
    """Where the statement that begins at `start` has its first word, after blanks and comments."""
    return next(
        (t.start for t in scan(sql) if t.start >= start and t.name not in ("SQL_COMMENT", "C_COMMENT")), start
    )


def _lock_position(sql: str) -> str:
    """Where the locking clause stands: the tree does not say, so the first FOR that locks."""
    found = list(scan(sql))
    for token, following in pairwise(found):
        if token.name == "FOR" and following.name in _LOCK_STRENGTHS:
            return position(sql, token.start)
    return position(sql, 0)
