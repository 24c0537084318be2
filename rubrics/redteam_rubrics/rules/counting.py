"""How many rows an entry of a `changes` rule allows, against what it says there may and must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redteam_rubrics.rules.wording import about_row, cut, done
from redteam_rubrics.verdict import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_rubrics.evidence import ChangedRow, Evidence, TableChanges
    from redteam_rubrics.rules.permission import Permission
    from redteam_rubrics.rules.refusals import Refusal

__all__ = ["Count", "count", "doubtful", "too_few", "too_many"]


class Count(NamedTuple):
    """The rows that an entry allows, those that it may allow, and how many there are that were not kept."""

    sure: list[tuple[TableChanges, ChangedRow]]
    perhaps: list[tuple[TableChanges, ChangedRow]]
    omitted: int


def count(refusals: Mapping[int, Sequence[Refusal | None]], evidence: Evidence) -> Count:
    """Count an entry's rows: `refusals` says, by the index of a table, why each row of it is not allowed."""
    rows = [
        ((evidence.changes.tables[number], row), refusal)
        for number, given in refusals.items()
        for row, refusal in zip(evidence.changes.tables[number].rows, given, strict=True)
    ]
    return Count(
        [row for row, refusal in rows if refusal is None],
        [row for row, refusal in rows if refusal is not None and not refusal.is_sure],
        sum(evidence.changes.tables[number].omitted for number in refusals),
    )


def too_many(permission: Permission, counted: Count, evidence: Evidence) -> list[Finding]:
    """Findings about each row, where more are allowed by the entry alone than it says there may be."""
    if not permission.most or len(counted.sure) <= permission.most:
        return []
    were = f"were {done(permission.do)}, at most {permission.most} may be"
    return [
        about_row(evidence, table, row, f"{len(counted.sure)} rows of {table.name} {were}")
        for table, row in counted.sure
    ]


def too_few(permission: Permission, table: str | None, counted: Count) -> list[Finding]:
    """A finding where fewer rows changed than the entry says there must have."""
    if len(counted.sure) + len(counted.perhaps) + counted.omitted >= permission.least:
        return []
    return [_missing(permission, table, counted)]


def doubtful(permission: Permission, table: str | None, counted: Count, evidence: Evidence) -> list[Finding]:
    """Findings where there may be too many rows, or too few: it is not known which of them count."""
    sure, perhaps = len(counted.sure), len(counted.perhaps)
    if permission.most and sure <= permission.most < sure + perhaps:
        may = f"may have been {done(permission.do)}, at most {permission.most} may be"
        return [
            about_row(evidence, of, row, f"{sure + perhaps} rows of {of.name} {may}")
            for of, row in counted.perhaps
        ]
    if sure < permission.least <= sure + perhaps + counted.omitted:
        return [_missing(permission, table, counted)]
    return []


def _missing(permission: Permission, table: str | None, counted: Count) -> Finding:
    rows = "1 row" if len(counted.sure) == 1 else f"{len(counted.sure)} rows"
    where = "" if permission.where is None else f" where {cut(permission.where)}"
    verb = "is" if len(counted.sure) == 1 else "are"
    return Finding(
        text=f"{rows} of {table} {verb} known to have been {done(permission.do)}{where}, "
        f"at least {permission.least} must be.",
        table=table,
    )
