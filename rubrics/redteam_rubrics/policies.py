"""Column policies: which differences between the old and the new value of a column count. Pure.

A suite declares them once, for the collateral gate and every `changes` rule. They decide what is judged,
never what is kept: the evidence has every difference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pglast import parse_sql
from pglast.parser import ParseError
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from redteam_rubrics.equality import alike_in_any_order, within
from redteam_rubrics.strict import Name, Strict
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_rubrics.evidence import ChangedRow, ChangeView, TableChanges

__all__ = ["Policies", "Policy", "Tolerance", "canonical_type", "judged"]

Word = Literal["exact", "ignore", "any", "set"]
_WORDS = ("exact", "ignore", "any", "set")


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise PydanticCustomError("number", "expected a number, as in {example}", {"example": "0.01"})
    # By its text: 0.01 is the hundredth that was written, not the float next to it.
    return Decimal(str(value))


class Tolerance(Strict):
    """Numbers count as different when they are further apart than this."""

    tolerance: Annotated[
        Decimal,
        BeforeValidator(_number),
        Field(gt=0, allow_inf_nan=False, description="In the column's own unit; above 0."),
    ]


def _policy(value: Any) -> Any:
    if isinstance(value, Tolerance) or (isinstance(value, str) and value in _WORDS):
        return value
    if isinstance(value, dict):
        return Tolerance.model_validate(value)
    expected = f"{', '.join(_WORDS)} or {{tolerance: 0.01}}"
    raise PydanticCustomError("policy", "expected {policies}", {"policies": expected})


Policy = Annotated[Word | Tolerance, BeforeValidator(_policy)]


@lru_cache(maxsize=1024)
def canonical_type(name: str) -> str:
    """One spelling of a type: `timestamptz` for `timestamp with time zone`, `numeric` for `numeric(12,2)`.

    Raises:
        UsageError: it is no type.
    """
    try:
        (statement,) = parse_sql(f"SELECT CAST(NULL AS {name})")
        select: Any = statement.stmt
        (target,) = select.targetList
        written = target.val.typeName
        names = [part.sval for part in written.names]
    except (ParseError, AttributeError, ValueError):
        raise UsageError(f"{name!r} is no type, as in numeric, timestamptz or text[]") from None
    system = names[0] in ("pg_catalog", "public") and len(names) > 1
    return ".".join(names[1:] if system else names) + ("[]" if written.arrayBounds else "")


def _bare(name: str) -> str:
    return name.removeprefix("public.")


class Policies(Strict):
    """Which differences count. `table.column` goes before `column`, and that before the type.

    The descriptions of the fields are for the JSON Schema of suite.yaml.
    """

    columns: dict[Name, Policy] = Field(
        default_factory=dict,
        description="By `table.column`, or by `column` alone: every column of that name.",
    )
    types: dict[Name, Policy] = Field(
        default_factory=dict, description="By type, for columns that `columns` does not name."
    )

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        for key, same in (("columns", _bare), ("types", canonical_type)):
            seen: dict[str, str] = {}
            written = data.get(key)
            for name in written if isinstance(written, dict) else ():
                try:
                    one = same(str(name))
                except UsageError as error:
                    yield (key, str(name)), str(error)
                    continue
                if one in seen:
                    yield (key, str(name)), f"{seen[one]} is the same, and has a policy already; keep one"
                seen[one] = str(name)

    def __bool__(self) -> bool:
        return bool(self.columns or self.types)

    def of(self, table: str, column: str, type_name: str) -> Word | Tolerance | None:
        """The policy that somebody declared for a column, or None.

        Args:
            table: as rules write it: bare in schema public.
            column: its name.
            type_name: its type as Postgres spells it.
        """
        for name in (f"{table}.{column}", f"public.{table}.{column}", column):
            if name in self.columns:
                return self.columns[name]
        wanted = canonical_type(type_name) if self.types else ""
        return next((one for name, one in self.types.items() if canonical_type(name) == wanted), None)


def judged(policies: Policies, changes: ChangeView) -> ChangeView:
    """The change set that rules judge: without differences that do not count, and rows that have no other."""
    if not policies:
        return changes
    tables, left_out = [], 0
    for table in changes.tables:
        own = {name: policies.of(table.name, name, kind) for name, kind in table.columns.items()}
        named = {name: policy for name, policy in own.items() if policy not in (None, "exact")}
        rows = _without_ignored_pairs(
            table, frozenset(n for n, policy in named.items() if policy == "ignore")
        )
        rows = tuple(_judged_rows(rows, named))
        left_out += len(table.rows) - len(rows)
        free = frozenset(name for name, policy in named.items() if policy == "any")
        tables.append(replace(table, rows=rows, free=free))
    return replace(changes, tables=tuple(tables), left_out=left_out)


def _judged_rows(rows: tuple[ChangedRow, ...], named: dict[str, Any]) -> Iterator[ChangedRow]:
    for row in rows:
        if row.op != "update":
            yield row
            continue
        old, new = row.old or {}, row.new or {}
        counting = tuple(
            name for name in row.changed if _counts(named.get(name), old.get(name), new.get(name))
        )
        if counting or not row.changed:
            yield replace(row, changed=counting)


def _counts(policy: Word | Tolerance | None, old: str | None, new: str | None) -> bool:
    match policy:
        case "ignore":
            return False
        case "set":
            return not alike_in_any_order(old, new)
        case Tolerance(tolerance=tolerance):
            return not within(old, new, tolerance)
        case _:
            return True


def _without_ignored_pairs(table: TableChanges, ignored: frozenset[str]) -> tuple[ChangedRow, ...]:
    """A table's rows without the pairs of a deleted and an added one that only ignored columns tell apart.

    In a table without a key an update is such a pair.
    """
    if not ignored or all(row.key is not None for row in table.rows):
        return table.rows

    def seen(cells: Any) -> tuple[tuple[str, str | None], ...]:
        return tuple(sorted((name, cell) for name, cell in cells.items() if name not in ignored))

    deleted = Counter(seen(row.old) for row in table.rows if row.op == "delete")
    added = Counter(seen(row.new) for row in table.rows if row.op == "insert")
    gone = {"delete": deleted & added, "insert": deleted & added}
    kept = []
    for row in table.rows:
        if row.op != "update":
            left = gone[row.op]
            image = seen(row.old if row.op == "delete" else row.new)
            if left[image] > 0:
                left[image] -= 1
                continue
        kept.append(row)
    return tuple(kept)
