"""Turns old and new images of rows into inserts, updates and deletes. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, NamedTuple

from redteam_forker.changes.changeset import RowChange
from redteam_forker.changes.values import canonical

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from redteam_forker.changes.catalog import Column
    from redteam_forker.changes.values import Kind

__all__ = ["Image", "Shape", "pair", "shape_of"]


class Image(NamedTuple):
    """One row's cells in its table's order, and the 64-bit id of its writer, if the fork wrote it."""

    cells: list[str | None]
    xid: int | None = None


class _Compared(NamedTuple):
    name: str
    kind: Kind
    old_at: int | None
    new_at: int
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the rows of a table's two sides relate.

    Attributes:
        old: the baseline's columns.
        new: the fork's columns.
        compared: the fork's columns, each with its place on both sides. A column that the fork added is
            compared with what its old rows are given for it.
        key_old: places of the key's cells in an old row; empty: no key.
        key_new: the same in a new row.
    """

    old: tuple[Column, ...]
    new: tuple[Column, ...]
    compared: tuple[_Compared, ...]
    key_old: tuple[int, ...]
    key_new: tuple[int, ...]


def shape_of(old: Sequence[Column], new: Sequence[Column], key: Sequence[int]) -> Shape:
    """Relate columns by their attribute numbers, so that a renamed column stays itself.

    Args:
        old: the baseline's columns.
        new: the fork's columns.
        key: attribute numbers of a key that holds on both sides; empty for none.
    """
    old_at = {column.number: place for place, column in enumerate(old)}
    new_at = {column.number: place for place, column in enumerate(new)}
    compared = []
    for place, column in enumerate(new):
        before = old_at.get(column.number)
        # 1.00 the number and 1.00 the text are compared as texts.
        kind = column.kind if before is None or old[before].kind == column.kind else "text"
        compared.append(_Compared(column.name, kind, before, place, column.missing))
    return Shape(
        old=tuple(old),
        new=tuple(new),
        compared=tuple(compared),
        key_old=tuple(old_at[number] for number in key),
        key_new=tuple(new_at[number] for number in key),
    )


def pair(shape: Shape, olds: Iterable[Image], news: Iterable[Image]) -> tuple[RowChange, ...]:
    """Match images by key, else as multisets (P59). Images of equal value cancel: they are no change (P65).

    Args:
        shape: of the table.
        olds: rows of the baseline that may be gone or changed.
        news: rows of the fork that may be new or changed. A row in neither is the same on both sides.
    """
    rows = _by_key(shape, olds, news) if shape.key_new else _as_multiset(shape, olds, news)
    return tuple(sorted(rows, key=_order))


def _by_key(shape: Shape, olds: Iterable[Image], news: Iterable[Image]) -> list[RowChange]:
    kinds = [shape.compared[place].kind for place in shape.key_new]
    before: dict[Hashable, Image] = {_key(kinds, shape.key_old, old): old for old in olds}
    rows = []
    for new in news:
        old = before.pop(_key(kinds, shape.key_new, new), None)
        if old is None:
            rows.append(_insert(shape, new))
            continue
        changed = tuple(
            item.name
            for item, was, now in zip(
                shape.compared, _old_values(shape, old), _new_values(shape, new), strict=True
            )
            if was != now
        )
        if changed:
            rows.append(
                RowChange(
                    op="update",
                    key=_named_key(shape.new, shape.key_new, new),
                    old=_named(shape.old, old),
                    new=_named(shape.new, new),
                    changed=changed,
                    xid=new.xid,
                )
            )
    rows.extend(_delete(shape, old) for old in before.values())
    return rows


def _as_multiset(shape: Shape, olds: Iterable[Image], news: Iterable[Image]) -> list[RowChange]:
    gone: dict[Hashable, list[Image]] = defaultdict(list)
    for old in olds:
        gone[_old_values(shape, old)].append(old)
    rows = []
    for new in news:
        same = gone.get(_new_values(shape, new))
        if same:
            same.pop()
        else:
            rows.append(_insert(shape, new))
    rows.extend(_delete(shape, old) for left in gone.values() for old in left)
    return rows


def _insert(shape: Shape, new: Image) -> RowChange:
    key = _named_key(shape.new, shape.key_new, new)
    return RowChange(op="insert", key=key, old=None, new=_named(shape.new, new), xid=new.xid)


def _delete(shape: Shape, old: Image) -> RowChange:
    key = _named_key(shape.old, shape.key_old, old)
    return RowChange(op="delete", key=key, old=_named(shape.old, old), new=None)


def _key(kinds: Sequence[Kind], places: Sequence[int], image: Image) -> Hashable:
    return tuple(canonical(kind, image.cells[place]) for kind, place in zip(kinds, places, strict=True))


def _old_values(shape: Shape, image: Image) -> tuple[Hashable, ...]:
    return tuple(
        canonical(item.kind, item.missing if item.old_at is None else image.cells[item.old_at])
        for item in shape.compared
    )


def _new_values(shape: Shape, image: Image) -> tuple[Hashable, ...]:
    return tuple(canonical(item.kind, image.cells[item.new_at]) for item in shape.compared)


def _named(columns: Sequence[Column], image: Image) -> dict[str, str | None]:
    return {column.name: cell for column, cell in zip(columns, image.cells, strict=True)}


def _named_key(columns: Sequence[Column], places: Sequence[int], image: Image) -> dict[str, str] | None:
    # A key's columns are NOT NULL, so its cells are texts.
    return {columns[place].name: image.cells[place] or "" for place in places} if places else None


def _order(row: RowChange) -> tuple[object, ...]:
    """By key, numbers as numbers; without a key by the row's texts. A delete stands before an insert."""
    cells = row.key or row.new or row.old or {}
    return (tuple(_place(cell) for cell in cells.values()), row.op)


def _place(cell: str | None) -> tuple[int, Decimal, str]:
    if cell is None:
        return (0, Decimal(0), "")
    try:
        number = Decimal(cell)
    except InvalidOperation:
        return (2, Decimal(0), cell)
    return (1, number, cell) if number.is_finite() else (2, Decimal(0), cell)
