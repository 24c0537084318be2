"""What happened to a fork after an earlier look at it: one change set less another. Pure.

A suite's setup SQL writes to the fork before the conversation does. Collect once after the setup and once at
the end, both with the fork's own watermark; the difference is the conversation's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.changeset import (
    ChangeSet,
    ObjectChange,
    RowChange,
    SequenceChange,
    TableChanges,
)
from redteam_forker.changes.types import kind_named
from redteam_forker.changes.values import canonical
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from redteam_forker.changes.changeset import Write
    from redteam_forker.changes.values import Kind

__all__ = ["since"]

Cells = dict[str, str | None]
_Place = tuple[tuple[str, str | None], ...]


def since(changes: ChangeSet, earlier: ChangeSet) -> ChangeSet:
    """The changes that came after `earlier`, as if the fork had begun there.

    Cells of domains and composite types are compared by their text: a change set does not say what they are
    of.

    Args:
        changes: the fork against its baseline, now.
        earlier: the same fork against the same baseline, before.

    Raises:
        UsageError: both change a table, and one of them left rows of it out.
    """
    if earlier == ChangeSet():
        return changes
    tables = []
    then = {(table.schema, table.table): table for table in earlier.tables}
    now = {(table.schema, table.table): table for table in changes.tables}
    for place in sorted(then.keys() | now.keys()):
        rows = _rows(now.get(place), then.get(place))
        # If the earlier one has nothing of the table, all of it came after.
        omitted = now[place].omitted if place in now and place not in then else 0
        if rows or omitted:
            model = now.get(place) or then[place]
            tables.append(
                TableChanges(
                    schema=model.schema,
                    table=model.table,
                    key=model.key,
                    columns=model.columns,
                    method=model.method,
                    reason=model.reason,
                    rows=rows,
                    omitted=omitted,
                )
            )
    return ChangeSet(
        tables=tuple(tables),
        sequences=_sequences(changes.sequences, earlier.sequences),
        objects=_objects(changes.objects, earlier.objects),
        writes=_writes(changes.writes, earlier),
    )


def _writes(now: Sequence[Write], earlier: ChangeSet) -> tuple[Write, ...]:
    """Nothing was open at the earlier look, so what came after has higher ids than all that it saw."""
    seen = [write.xid for write in earlier.writes]
    seen += [row.xid for table in earlier.tables for row in table.rows if row.xid is not None]
    return tuple(write for write in now if write.xid > max(seen, default=-1))


def _rows(now: TableChanges | None, then: TableChanges | None) -> tuple[RowChange, ...]:
    if then is None:
        return now.rows if now else ()
    for table in (then, now):
        if table is not None and table.omitted:
            raise UsageError(
                f"{table.omitted} changed rows of {table.schema}.{table.table} were left out, so what came "
                "after the setup cannot be told; collect both change sets with a larger keep_rows"
            )
    if then.key is None or (now is not None and now.key != then.key):
        return _multiset(now, then)
    kinds = {name: kind_named(kind) for name, kind in (now or then).columns.items()}
    after = {_identity(row.key): row for row in (now.rows if now else ())}
    before = {_identity(row.key): row for row in then.rows}
    found = []
    for place in [*after, *(place for place in before if place not in after)]:
        row, was = after.get(place), before.get(place)
        # The state at the earlier look and the state now; a row that is in no set is as in the baseline.
        old = was.new if was else row.old if row else None
        new = row.new if row else was.old if was else None
        change = _change(kinds, (row or was).key, old, new, row.xid if row else None)  # type: ignore[union-attr]
        if change:
            found.append(change)
    return tuple(found)


def _change(
    kinds: Mapping[str, Kind], key: Any, old: Mapping[str, str | None] | None, new: Any, xid: int | None
) -> RowChange | None:
    if old is None:
        return RowChange(op="insert", key=key, old=None, new=new, xid=xid) if new is not None else None
    if new is None:
        return RowChange(op="delete", key=key, old=old, new=None, xid=xid)
    changed = tuple(
        name
        for name, cell in new.items()
        if canonical(kinds.get(name, "text"), cell) != canonical(kinds.get(name, "text"), old.get(name))
    )
    return RowChange(op="update", key=key, old=old, new=new, changed=changed, xid=xid) if changed else None


def _multiset(now: TableChanges | None, then: TableChanges) -> tuple[RowChange, ...]:
    net: Counter[_Place] = Counter()
    # Of each image, who made it and who took it away after the earlier look.
    images: dict[_Place, tuple[Cells, Counter[int | None], Counter[int | None]]] = {}
    for table, sign in ((now, 1), (then, -1)):
        for row in table.rows if table else ():
            for image, weight in ((row.old, -sign), (row.new, sign)):
                if image is not None:
                    place = tuple(image.items())
                    net[place] += weight
                    _, makers, takers = images.setdefault(place, (dict(image), Counter(), Counter()))
                    (makers if row.new is image else takers)[row.xid] += sign
    found: list[RowChange] = []
    for place, (image, makers, takers) in images.items():
        found += [
            RowChange(op="insert", key=None, old=None, new=image, xid=xid)
            for xid in _last(makers, net[place])
        ]
        found += [
            RowChange(op="delete", key=None, old=image, new=None, xid=xid)
            for xid in _last(takers, -net[place])
        ]
    return tuple(found)


def _last(xids: Counter[int | None], count: int) -> list[int | None]:
    """The latest so many, filled up with unknown ones."""
    latest = sorted(xids.elements(), key=lambda xid: -(xid or 0))[: max(count, 0)]
    return latest + [None] * (count - len(latest))


def _identity(key: Mapping[str, str] | None) -> Hashable:
    return tuple(key.values()) if key is not None else ()


def _sequences(now: Sequence[SequenceChange], then: Sequence[SequenceChange]) -> tuple[SequenceChange, ...]:
    before = {(item.schema, item.name): item for item in then}
    after = {(item.schema, item.name): item for item in now}
    found = []
    for place in sorted(before.keys() | after.keys()):
        was, item = before.get(place), after.get(place)
        old = was.new if was else item.old if item else None
        new = item.new if item else was.old if was else None
        if old != new:
            found.append(SequenceChange(schema=place[0], name=place[1], old=old, new=new))
    return tuple(found)


def _objects(now: Sequence[ObjectChange], then: Sequence[ObjectChange]) -> tuple[ObjectChange, ...]:
    before = {(item.kind, item.name): item for item in then}
    after = {(item.kind, item.name): item for item in now}
    found = []
    for kind, name in sorted(before.keys() | after.keys()):
        was, item = before.get((kind, name)), after.get((kind, name))
        old = was.new if was else item.old if item else None
        new = item.new if item else was.old if was else None
        if old != new:
            op: Any = "create" if old is None else "drop" if new is None else "alter"
            found.append(ObjectChange(op=op, kind=kind, name=name, old=old, new=new))
    return tuple(found)
