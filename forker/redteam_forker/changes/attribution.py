"""Which tool call wrote a row: transaction ids lie inside the span of ids that a call saw. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker.changes.changeset import ChangeSet

__all__ = ["CallSpan", "attributed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """One tool call, and the transaction ids that the server gave out while it ran.

    Attributes:
        call: its id in the trace.
        first: the server's next transaction id before the call; None: not known.
        end: the same after it; None: not known, or the call never ended.
    """

    call: str
    first: int | None
    end: int | None


def attributed(changes: ChangeSet, calls: Sequence[CallSpan]) -> ChangeSet:
    """The same change set with `by` filled in, for every row and every write.

    A transaction id names the calls in whose span it lies. An id in no span was written outside any call, and
    says so only if no call's span is unknown: otherwise it may have been that call's.
    """
    known = [(span.call, span.first, span.end) for span in calls if span.first is not None]
    complete = all(span.first is not None and span.end is not None for span in calls)

    def by(xid: int | None) -> tuple[str, ...] | None:
        if xid is None:
            return None
        found = tuple(call for call, first, end in known if first <= xid and (end is not None and xid < end))
        return found if found or complete else None

    return replace(
        changes,
        tables=tuple(
            replace(table, rows=tuple(replace(row, by=by(row.xid)) for row in table.rows))
            for table in changes.tables
        ),
        writes=tuple(replace(write, by=by(write.xid)) for write in changes.writes),
    )
