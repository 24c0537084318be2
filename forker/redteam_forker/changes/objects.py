"""Compares two databases but for their rows: tables, functions, grants, settings, and so on."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Literal

from redteam_forker.changes.changeset import ObjectChange
from redteam_forker.changes.watched import is_schema_touched, watched_catalogs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

__all__ = ["SchemaObject", "compare_objects", "is_schema_touched", "read_objects", "watched_catalogs"]

_QUERIES = ("objects_relations.sql", "objects_code.sql", "objects_rights.sql")
# A column says of itself whether it is NOT NULL; the constraint is told if something else changed.
_SAID_BY_COLUMNS = "not-null constraint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaObject:
    """One object of a database.

    Attributes:
        kind: `table`, `column`, `policy`, `grant`, ...
        id: what a rename keeps; the same in every clone of a template.
        parent: id of the object that it belongs to, if any.
        name: qualified.
        definition: as SQL would say it.
    """

    kind: str
    id: str
    parent: str | None
    name: str
    definition: str


async def read_objects(connection: asyncpg.Connection) -> list[SchemaObject]:
    """All objects of a database but those of Postgres itself; of these what was granted on them.

    Large objects are read whole, by a hash of each. One that the session may not read has no hash.
    """
    found = [SchemaObject(**dict(row)) for name in _QUERIES for row in await connection.fetch(_framed(name))]
    if not any(item.kind == "large object" for item in found):
        return found
    if not await connection.fetchval("SELECT has_table_privilege('pg_largeobject', 'SELECT')"):
        return found
    contents = {
        row["id"]: f"{row['size']} bytes, sha256 {row['hash']}"
        for row in await connection.fetch(_text("objects_large.sql"))
    }
    return [
        replace(item, definition=f"{item.definition}, {contents.get(item.id, '0 bytes')}")
        if item.kind == "large object"
        else item
        for item in found
    ]


@functools.cache
def _framed(name: str) -> str:
    return _text("objects.sql").replace("-- arms", _text(name))


@functools.cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def compare_objects(
    before: Sequence[SchemaObject], after: Sequence[SchemaObject]
) -> tuple[ObjectChange, ...]:
    """What was made, removed or altered, by kind and name. Pure.

    The same name is the same object, also when it was dropped and made again; a new name under an old id is
    a rename. What belongs to an object that was itself made or removed is told with it; what belongs to an
    extension is, too, when the extension was altered.
    """
    olds = {(item.kind, item.name): item for item in before}
    news = {(item.kind, item.name): item for item in after}
    gone = {(item.kind, item.id): item for place, item in olds.items() if place not in news}
    made = [item for place, item in news.items() if place not in olds]
    renamed = [(gone.pop((item.kind, item.id)), item) for item in made if (item.kind, item.id) in gone]
    again = {(new.kind, new.name) for _, new in renamed}
    made = [item for item in made if (item.kind, item.name) not in again]
    altered = [
        (old, news[place])
        for place, old in olds.items()
        if place in news and news[place].definition != old.definition
    ]
    standing = {new.id for _, new in altered if new.kind == "extension"}
    changes = [
        _change("alter", new.kind, new.name, old.definition, new.definition)
        for old, new in altered
        if new.parent not in standing
    ]
    moved = {new.id for _, new in renamed}
    changes += [
        _change("alter", new.kind, new.name, f"{old.name}: {old.definition}", f"{new.name}: {new.definition}")
        for old, new in renamed
        # Those that bear another's name in their own are renamed with it.
        if not (new.parent in moved and new.definition == old.definition) and new.parent not in standing
    ]
    changes += [_change("create", item.kind, item.name, None, text) for item, text in _whole(made, standing)]
    changes += [
        _change("drop", item.kind, item.name, text, None)
        for item, text in _whole(list(gone.values()), standing)
    ]
    return tuple(sorted(changes, key=lambda change: (change.kind, change.name, change.op)))


def _whole(items: Sequence[SchemaObject], standing: set[str]) -> list[tuple[SchemaObject, str]]:
    """The objects that do not belong to another one of them, each defined with all that belongs to it."""
    ids: dict[str, SchemaObject] = {}
    for item in items:
        ids.setdefault(item.id, item)
    parts: dict[str, list[SchemaObject]] = defaultdict(list)
    whole = []
    for item in items:
        if item.kind == _SAID_BY_COLUMNS or item.parent in standing:
            continue
        if item.parent in ids:
            parts[_root(item, ids)].append(item)
        else:
            whole.append(item)
    # What an extension is made of goes with its version.
    return [
        (item, item.definition if item.kind == "extension" else _described(item, parts[item.id]))
        for item in whole
    ]


def _root(item: SchemaObject, ids: Mapping[str, SchemaObject]) -> str:
    while item.parent is not None and item.parent in ids:
        item = ids[item.parent]
    return item.id


def _described(item: SchemaObject, parts: Sequence[SchemaObject]) -> str:
    columns = [part for part in parts if part.kind == "column"]
    others = sorted(
        (part for part in parts if part.kind != "column"), key=lambda part: (part.kind, part.name)
    )
    texts = [f"{part.kind} {part.name.removeprefix(item.name + '.')} {part.definition}" for part in others]
    if columns and item.kind in ("table", "foreign table"):
        listed = ", ".join(
            f"{column.name.removeprefix(item.name + '.')} {column.definition}"
            for column in sorted(columns, key=lambda column: (len(column.id), column.id))
        )
        return "; ".join([f"({listed}) {item.definition}", *texts])
    return "; ".join([item.definition, *texts])


def _change(
    op: Literal["create", "drop", "alter"], kind: str, name: str, old: str | None, new: str | None
) -> ObjectChange:
    return ObjectChange(op=op, kind=kind, name=name, old=old, new=new)
