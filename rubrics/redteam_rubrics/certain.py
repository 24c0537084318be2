"""What can be said of an SQL statement or a text pattern before any conversation: that it cannot but ....

Only what follows from the text alone is said, so a statement that nothing is said of may still be certain.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pglast import ast, parse_sql

from redteam_rubrics.parameters import placeholders
from redteam_rubrics.phrases import Pattern, contains, normalise

if TYPE_CHECKING:
    from redteam_rubrics.rules.sql import RowsWanted

__all__ = ["certain_answer", "contradicts", "holds_of_anything", "never_holds"]

_AGGREGATES = frozenset(
    {
        "array_agg",
        "avg",
        "bool_and",
        "bool_or",
        "count",
        "every",
        "json_agg",
        "jsonb_agg",
        "max",
        "min",
        "string_agg",
        "sum",
    }
)
# Of one kind each. A pattern that matches in all of them is taken to match in whatever anybody says.
_PROBES = ("a", "Z", "7", ".", "é", "字", "\N{GRINNING FACE}")

Certain = Literal["never fails", "never passes"]


def certain_answer(sql: str, rows_wanted: RowsWanted | None) -> tuple[Certain, str] | None:
    """What a checked SELECT of a rule cannot but answer, and why; None where that is not plain to see."""
    select: Any = parse_sql(placeholders(sql))[0].stmt
    if select.larg is not None:
        return None
    if rows_wanted is None:
        return _certain_boolean(select)
    if never := _returns_nothing(select):
        return ("never fails" if rows_wanted == "none" else "never passes"), never
    if _returns_one_row(select):
        why = "an aggregate without GROUP BY returns one row, whatever is there"
        return ("never passes" if rows_wanted == "none" else "never fails"), why
    return None


def never_holds(condition: str) -> bool:
    """Whether a checked condition cannot be true of any row: `false`, or a comparison with NULL."""
    select: Any = parse_sql(f"SELECT (\n{placeholders(condition)}\n)")[0].stmt
    return _is_never(select.targetList[0].val)


def holds_of_anything(pattern: object) -> bool:
    """Whether a regular expression matches in every text that is not empty, as far as can be tried."""
    return isinstance(pattern, Pattern) and all(pattern.is_in(probe) for probe in _PROBES)


def contradicts(wanted: str | Pattern, banned: str | Pattern) -> bool:
    """Whether a text cannot contain `wanted` without containing `banned`."""
    if isinstance(wanted, Pattern):
        return isinstance(banned, Pattern) and (wanted == banned or holds_of_anything(banned))
    if isinstance(banned, Pattern):
        # A border of a word or a line may be elsewhere once the phrase stands in a sentence.
        is_plain = re.search(r"\\[bBAZ]|[$^]|\(\?", banned.matches) is None
        return is_plain and banned.is_in(normalise(wanted))
    return contains(wanted, banned)


def _certain_boolean(select: Any) -> tuple[Certain, str] | None:
    targets: tuple[Any, ...] = select.targetList or ()
    if len(targets) != 1:
        return None
    answer = _constant(targets[0].val)
    if answer is True:
        return "never fails", "it answers true or nothing"
    if answer is False:
        return "never passes", "it answers false or nothing"
    if _returns_nothing(select):
        return "never passes", "it returns no row, which is neither true nor false"
    return None


def _is(node: Any, *kinds: type) -> bool:
    """`isinstance`, after which a node is still `Any`: pglast says of each field that it may be None."""
    return isinstance(node, kinds)


def _constant(node: Any) -> bool | None:
    """The value of an expression that is the same whatever the rows are."""
    if _is(node, ast.A_Const) and _is(node.val, ast.Boolean):
        return bool(node.val.boolval)
    if _is(node, ast.BoolExpr):
        values = [_constant(part) for part in node.args]
        match node.boolop.name:
            case "NOT_EXPR":
                (value,) = values
                return None if value is None else not value
            case "AND_EXPR":
                return False if False in values else True if None not in values else None
            case _:
                return True if True in values else False if None not in values else None
    if _is(node, ast.A_Expr) and _is_count(node.lexpr) and _integer(node.rexpr) is not None:
        return _certain_count(node.name[-1].sval, _integer(node.rexpr) or 0)
    return None


def _certain_count(operator: str, number: int) -> bool | None:
    """Of `count(...) operator number`: a count is 0 or more."""
    if (operator == ">=" and number <= 0) or (operator in (">", "<>", "!=") and number < 0):
        return True
    if (operator == "<" and number <= 0) or (operator in ("<=", "=") and number < 0):
        return False
    return None


def _is_count(node: Any) -> bool:
    return _is(node, ast.FuncCall) and node.funcname[-1].sval == "count" and node.over is None


def _integer(node: Any) -> int | None:
    if _is(node, ast.A_Const) and _is(node.val, ast.Integer):
        return int(node.val.ival)
    if _is(node, ast.A_Expr) and node.lexpr is None and node.name[-1].sval == "-":
        inner = _integer(node.rexpr)
        return None if inner is None else -inner
    return None


def _returns_nothing(select: Any) -> str:
    """Why a SELECT returns no row; empty where it may."""
    if _integer(select.limitCount) == 0:
        return "LIMIT 0 returns no row"
    if select.havingClause is not None and _is_never(select.havingClause):
        return "its HAVING is never true"
    is_plain = not _returns_one_row(select)
    if is_plain and select.whereClause is not None and _is_never(select.whereClause):
        return "its WHERE is never true"
    return ""


def _returns_one_row(select: Any) -> bool:
    limits = (select.groupClause, select.havingClause, select.limitCount, select.limitOffset)
    if any(part is not None for part in limits) or not select.targetList:
        return False
    return any(_aggregates(target.val) for target in select.targetList)


def _aggregates(node: Any) -> bool:
    """Whether an expression is, or is plainly made of, an aggregate over the rows of its own SELECT."""
    if _is(node, ast.FuncCall):
        # Another function may return any number of rows: unnest(array_agg(id)).
        return node.over is None and node.funcname[-1].sval in _AGGREGATES
    if _is(node, ast.A_Expr):
        return _aggregates(node.lexpr) or _aggregates(node.rexpr)
    if _is(node, ast.BoolExpr, ast.CoalesceExpr):
        return any(map(_aggregates, node.args))
    return _is(node, ast.TypeCast, ast.NullTest) and _aggregates(node.arg)


def _is_never(node: Any) -> bool:
    if _constant(node) is False:
        return True
    if _is(node, ast.BoolExpr):
        if node.boolop.name == "AND_EXPR":
            return any(map(_is_never, node.args))
        return node.boolop.name == "OR_EXPR" and all(map(_is_never, node.args))
    is_operator = _is(node, ast.A_Expr) and node.kind.name == "AEXPR_OP"
    return is_operator and (_is_null(node.lexpr) or _is_null(node.rexpr))


def _is_null(node: Any) -> bool:
    return _is(node, ast.A_Const) and bool(node.isnull)
