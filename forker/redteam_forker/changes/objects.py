"""Compares the schema of two databases: tables, columns, functions, policies, grants and the rest."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.changeset import ObjectChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import asyncpg

__all__ = ["SchemaObject", "compare_objects", "is_schema_touched", "read_objects", "watched_catalogs"]

# Whatever DDL does to what we compare, it writes a row of these. Statistics are not among them: ANALYZE is no
# change.
_CATALOGS = (
    "pg_attrdef",
    "pg_attribute",
    "pg_cast",
    "pg_class",
    "pg_constraint",
    "pg_default_acl",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_index",
    "pg_inherits",
    "pg_largeobject_metadata",
    "pg_namespace",
    "pg_operator",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_publication_rel",
    "pg_rewrite",
    "pg_sequence",
    "pg_statistic_ext",
    "pg_trigger",
    "pg_type",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaObject:
    """One object of a schema.

    Attributes:
        kind: `table`, `column`, `policy`, `grant`, ...
        id: what a rename keeps; the same in every clone of a template.
        parent: oid of the relation that it belongs to (a table's own oid for the table).
        name: qualified.
        definition: as SQL would say it.
    """

    kind: str
    id: str
    parent: int | None
    name: str
    definition: str | None


def watched_catalogs() -> list[str]:
    """Sources to count rows of; see `is_schema_touched`."""
    return [f"pg_catalog.{name}" for name in _CATALOGS]


def is_schema_touched(new: Iterable[int], now: Sequence[int], then: Sequence[int]) -> bool:
    """Whether anything of the schema may differ, from rows counted in each of `watched_catalogs`.

    A clone's catalogs are copies too: an untouched one has no row that the fork wrote, and lacks none.

    Args:
        new: rows of the fork that were written since it began.
        now: all rows of the fork.
        then: all rows of the baseline.
    """
    return any(new) or list(now) != list(then)


@functools.cache
def _query() -> str:
    return resources.files(__package__).joinpath("objects.sql").read_text(encoding="utf-8")


async def read_objects(connection: asyncpg.Connection) -> list[SchemaObject]:
    """All objects of a database but those of Postgres itself and of extensions."""
    return [_object(row) for row in await connection.fetch(_query())]


def _object(row: Any) -> SchemaObject:
    return SchemaObject(**dict(row))


def compare_objects(
    before: Sequence[SchemaObject], after: Sequence[SchemaObject]
) -> tuple[ObjectChange, ...]:
    """What was made, removed or altered, by kind and name. Pure.

    The same name is the same object, also when it was dropped and made again; a new name under an old id is
    a rename. What belongs to a relation that was itself made or removed is told with it.
    """
    olds = {(item.kind, item.name): item for item in before}
    news = {(item.kind, item.name): item for item in after}
    changes = []
    gone = {(item.kind, item.id): item for place, item in olds.items() if place not in news}
    made = [item for place, item in news.items() if place not in olds]
    renamed = [(gone.pop((item.kind, item.id)), item) for item in made if (item.kind, item.id) in gone]
    kept = {item.id for _, item in renamed}
    made = [item for item in made if item.id not in kept]
    for place, old in olds.items():
        new = news.get(place)
        if new is not None and new.definition != old.definition:
            changes.append(_change("alter", new.kind, new.name, old.definition, new.definition))
    moved = {new.parent for _, new in renamed if new.kind == "table"}
    for old, new in renamed:
        if new.kind != "table" and new.parent in moved and new.definition == old.definition:
            continue  # renamed only by its table's name in its own
        changes.append(
            _change(
                "alter", new.kind, new.name, f"{old.name}: {old.definition}", f"{new.name}: {new.definition}"
            )
        )
    changes += [_change("create", item.kind, item.name, None, text) for item, text in _whole(made)]
    changes += [
        _change("drop", item.kind, item.name, text, None) for item, text in _whole(list(gone.values()))
    ]
    return tuple(sorted(changes, key=lambda change: (change.kind, change.name, change.op)))


def _whole(items: Sequence[SchemaObject]) -> list[tuple[SchemaObject, str | None]]:
    """The objects that do not belong to another one of them; a table's definition tells its columns."""
    tables = {item.parent for item in items if item.kind in ("table", "foreign table")}
    whole: list[tuple[SchemaObject, str | None]] = []
    for item in items:
        if item.kind in ("table", "foreign table"):
            columns = ", ".join(
                f"{column.name.removeprefix(item.name + '.')} {column.definition}"
                for column in sorted(items, key=lambda item: (len(item.id), item.id))
                if column.kind == "column" and column.parent == item.parent
            )
            whole.append((item, f"({columns}) {item.definition}"))
        elif item.parent is None or item.parent not in tables:
            whole.append((item, item.definition))
    return whole


def _change(op: Any, kind: str, name: str, old: str | None, new: str | None) -> ObjectChange:
    return ObjectChange(op=op, kind=kind, name=name, old=old, new=new)
