"""A part of a change set: of one table, or of some tool calls. It is a change set itself. Pure."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from redteam_forker.changes.render.model import table_name
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from redteam_forker.changes.changeset import ChangeSet

__all__ = ["of_calls", "of_table"]

_SHOWN_NAMES = 8


def of_calls(changes: ChangeSet, calls: Collection[str]) -> ChangeSet:
    """The rows that some tool calls may have written last, and all their writes.

    Sequences and schema objects have no author on record, so they are left out.
    """
    tables = (
        replace(table, rows=tuple(row for row in table.rows if _is_by(row.by, calls)), omitted=0)
        for table in changes.tables
    )
    return replace(
        changes,
        tables=tuple(table for table in tables if table.rows),
        sequences=(),
        objects=(),
        writes=tuple(write for write in changes.writes if _is_by(write.by, calls)),
    )


def of_table(changes: ChangeSet, name: str) -> ChangeSet:
    """What is of one table: its rows and its writes.

    Args:
        changes: all of it.
        name: the table's, with its schema if that is not `public`.

    Raises:
        UsageError: nothing of such a table is in the change set; says what is near, and what there is.
    """
    places = [(table.schema, table.table) for table in changes.tables]
    places += [(write.schema, write.table) for write in changes.writes]
    there = {place: table_name(*place) for place in places}
    found = [place for place, shown in there.items() if name in (shown, f"{place[0]}.{place[1]}")]
    found = found or [place for place in there if place[1] == name]
    if len(found) == 1:
        (place,) = found
        return replace(
            changes,
            tables=tuple(table for table in changes.tables if (table.schema, table.table) == place),
            sequences=(),
            objects=(),
            writes=tuple(write for write in changes.writes if (write.schema, write.table) == place),
        )
    if found:
        listed = ", ".join(sorted(there[place] for place in found))
        raise UsageError(f"several tables {name!r} changed, name one with its schema: {listed}")
    if not there:
        raise UsageError(f"nothing changed in a table {name!r}: no row of any table changed")
    near = get_close_matches(name, there.values(), n=1)
    said = f"did you mean {near[0]!r}? " if near else ""
    names = sorted(there.values())
    rest = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    raise UsageError(
        f"nothing changed in a table {name!r}; {said}Tables that changed: "
        f"{', '.join(names[:_SHOWN_NAMES])}{rest}"
    )


def _is_by(by: Collection[str] | None, calls: Collection[str]) -> bool:
    return by is not None and any(call in calls for call in by)
