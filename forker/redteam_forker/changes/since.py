"""What happened to a fork after an earlier look at it: one change set less another. Pure.

A suite's setup SQL writes to the fork before the conversation does. Collect once after the setup and once at
the end, both with the fork's own watermark; the difference is the conversation's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.changeset import ChangeSet, ObjectChange, RowChange, SequenceChange, TableChanges
from redteam_forker.changes.values import canonical

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from redteam_forker.changes.values import Kind

__all__ = ["since"]

Cells = dict[str, str | None]
_Place = tuple[tuple[str, str | None], ...]


def since(changes: ChangeSet, earlier: ChangeSet) -> ChangeSet:
    """The changes that came after `earlier`, as if the fork had begun there.

    Args:
        changes: the fork against its baseline, now.
        earlier: the same fork against the same baseline, before.
    """
    if earlier == ChangeSet():
        return changes
    tables = []
    then = {(table.schema, table.table): table for table in earlier.tables}
    now = {(table.schema, table.table): table for table in changes.tables}
    for place in sorted(then.keys() | now.keys()):
        rows = _rows(now.get(place), then.get(place))
        if rows:
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
                )
            )
    return ChangeSet(
        tables=tuple(tables),
        sequences=_sequences(changes.sequences, earlier.sequences),
        objects=_objects(changes.objects, earlier.objects),
    )


def _rows(now: TableChanges | None, then: TableChanges | None) -> tuple[RowChange, ...]:
    if then is None:
        return now.rows if now else ()
    if then.key is None or (now is not None and now.key != then.key):
        return _multiset(now, then)
    kinds = {name: _kind(kind) for name, kind in (now or then).columns.items()}
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
        return RowChange(op="delete", key=key, old=old, new=None)
    changed = tuple(
        name
        for name, cell in new.items()
        if canonical(kinds.get(name, "text"), cell) != canonical(kinds.get(name, "text"), old.get(name))
    )
    return RowChange(op="update", key=key, old=old, new=new, changed=changed, xid=xid) if changed else None


def _multiset(now: TableChanges | None, then: TableChanges) -> tuple[RowChange, ...]:
    net: Counter[_Place] = Counter()
    images: dict[_Place, tuple[Cells, list[int | None]]] = {}
    for table, sign in ((now, 1), (then, -1)):
        for row in table.rows if table else ():
            for image, weight in ((row.old, -sign), (row.new, sign)):
                if image is not None:
                    place = tuple(image.items())
                    net[place] += weight
                    known = images.setdefault(place, (dict(image), []))
                    if row.new is image and sign > 0:
                        known[1].append(row.xid)
    found: list[RowChange] = []
    for place, (image, xids) in images.items():
        writers = sorted(xids, key=lambda xid: -(xid or 0))
        found.extend(
            RowChange(
                op="insert", key=None, old=None, new=image, xid=writers[at] if at < len(writers) else None
            )
            for at in range(net[place])
        )
        found.extend(RowChange(op="delete", key=None, old=image, new=None) for _ in range(-net[place]))
    return tuple(found)


def _identity(key: Mapping[str, str] | None) -> Hashable:
    return tuple(key.values()) if key is not None else ()


def _kind(type_name: str) -> Kind:
    if type_name in ("json", "jsonb"):
        return "json"
    return (
        "number"
        if type_name in ("smallint", "integer", "bigint") or type_name.startswith("numeric")
        else "text"
    )


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
