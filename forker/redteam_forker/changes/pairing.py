"""Turns old and new images of rows into inserts, updates and deletes. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal, NamedTuple

from redteam_forker.changes.changeset import RowChange
from redteam_forker.changes.values import canonical, parse_record
from redteam_forker.names import quote_ident, quote_literal

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redteam_forker.changes.catalog import Column
    from redteam_forker.changes.values import Kind

__all__ = ["Image", "Op", "Pairing", "Room", "Shape", "shape_of"]

Op = Literal["insert", "update", "delete"]

_NUMERIC, _JSONB = 1700, 3802
_INTEGERS = frozenset({20, 21, 23})


class Image(NamedTuple):
    """One row.

    Attributes:
        sort: equal on both sides for rows that may be each other's; `Shape.sort_old` and `sort_new` make it.
        text: the row as Postgres prints it.
        xid: 64-bit id of a new row's writer, or of who deleted an old one; None: not known, or not the fork.
    """

    sort: bytes
    text: str
    xid: int | None = None

    def cells(self, columns: Sequence[Column]) -> list[str | None]:
        """In the order of its table's columns."""
        return parse_record(self.text)[: len(columns)]


@dataclass(slots=True)
class Room:
    """How many row changes may still be kept."""

    left: int


class _Compared(NamedTuple):
    name: str
    kind: Kind
    old_at: int | None
    new_at: int
    missing: str | None
    old_base: int | None
    new_base: int

    @property
    def is_sorted(self) -> bool:
        """Whether equal values sort alike, and others do not."""
        return self.kind == "text" or self.kind == "number"


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
        sort_old: SQL of `Image.sort` for an old row.
        sort_new: the same for a new row.
        is_same_shape: rows whose texts are equal are.
        is_plain: and rows whose texts differ are not.
        is_key_sorted: rows that sort alike have the same key.
    """

    old: tuple[Column, ...]
    new: tuple[Column, ...]
    compared: tuple[_Compared, ...]
    key_old: tuple[int, ...]
    key_new: tuple[int, ...]
    sort_old: str
    sort_new: str
    is_same_shape: bool
    is_plain: bool
    is_key_sorted: bool

    def old_values(self, old: Image) -> tuple[Hashable, ...]:
        """What an old row is compared by."""
        cells = old.cells(self.old)
        return tuple(
            canonical(item.kind, item.missing if item.old_at is None else cells[item.old_at])
            for item in self.compared
        )

    def new_values(self, new: Image) -> tuple[Hashable, ...]:
        """What a new row is compared by."""
        cells = new.cells(self.new)
        return tuple(canonical(item.kind, cells[item.new_at]) for item in self.compared)


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
        old_base = None if before is None else old[before].base
        compared.append(_Compared(column.name, kind, before, place, column.missing, old_base, column.base))
    same = [column.shape for column in old] == [column.shape for column in new]
    sorted_by = [compared[new_at[number]] for number in key] if key else compared
    return Shape(
        old=tuple(old),
        new=tuple(new),
        compared=tuple(compared),
        key_old=tuple(old_at[number] for number in key),
        key_new=tuple(new_at[number] for number in key),
        sort_old=_sort(
            [_old_term(item, old) for item in sorted_by if _term(item) is not None], is_key=bool(key)
        ),
        sort_new=_sort([_new_term(item) for item in sorted_by if _term(item) is not None], is_key=bool(key)),
        is_same_shape=same,
        is_plain=same and all(column.kind == "text" or column.base in _INTEGERS for column in new),
        is_key_sorted=bool(key) and all(item.is_sorted for item in sorted_by),
    )


def _sort(terms: Sequence[str], *, is_key: bool) -> str:
    row = f"textsend(ROW({', '.join(terms)})::text)"
    return row if is_key else f"sha256({row})"


def _term(item: _Compared) -> str | None:
    """SQL, for a value in {}, that is equal for equal values; None: Postgres itself has none."""
    bases = {item.new_base} if item.old_base is None else {item.old_base, item.new_base}
    if item.kind == "number":
        return "trim_scale({}::numeric)" if _NUMERIC in bases else "{}"
    if item.kind == "text":
        return "{}"
    return "jsonb_hash_extended({}::jsonb, 0)" if bases == {_JSONB} else None


def _old_term(item: _Compared, old: Sequence[Column]) -> str:
    if item.old_at is not None:
        value = quote_ident(old[item.old_at].name)
    else:
        value = "NULL::text" if item.missing is None else f"{quote_literal(item.missing)}::text"
    return (_term(item) or "").format(value)


def _new_term(item: _Compared) -> str:
    return (_term(item) or "").format(quote_ident(item.name))


class Pairing:
    """The changes of one table, fed group by group: all rows of both sides that may be each other's.

    Args:
        shape: of the table.
        room: how many row changes may still be kept, of all tables; those that are kept are taken off.
    """

    def __init__(self, shape: Shape, room: Room) -> None:
        self._shape = shape
        self._room = room
        self._rows: list[RowChange] = []
        self.omitted = 0
        # Live rows by writer and by what it seems to have done: also of rows that are as they were.
        self.written: Counter[tuple[int, Op]] = Counter()

    @property
    def rows(self) -> tuple[RowChange, ...]:
        """In the order of their keys."""
        return tuple(sorted(self._rows, key=_order))

    def feed(self, olds: Sequence[Image], news: Sequence[Image]) -> None:
        """Match images by key, else as multisets (P59). Images of equal value are no change (P65).

        Args:
            olds: rows of the baseline that may be gone or changed.
            news: rows of the fork that may be new or changed. A row in neither is the same on both sides.
        """
        shape = self._shape
        if len(olds) == len(news) == 1 and (shape.key_new == () or shape.is_key_sorted):
            self._both(olds[0], news[0])
        elif not olds:
            for new in news:
                self._insert(new)
        elif not news:
            for old in olds:
                self._delete(old)
        else:
            self._match(olds, news)

    def _match(self, olds: Sequence[Image], news: Sequence[Image]) -> None:
        shape = self._shape
        gone: dict[Hashable, list[Image]] = defaultdict(list)
        keyed = bool(shape.key_new)
        for old in olds:
            gone[_key(shape, shape.key_old, old.cells(shape.old)) if keyed else shape.old_values(old)].append(
                old
            )
        for new in news:
            same = gone.get(
                _key(shape, shape.key_new, new.cells(shape.new)) if keyed else shape.new_values(new)
            )
            if same:
                self._both(same.pop(), new)
            else:
                self._insert(new)
        for left in gone.values():
            for old in left:
                self._delete(old)

    def _both(self, old: Image, new: Image) -> None:
        shape = self._shape
        if shape.is_same_shape and old.text == new.text:
            self._wrote(new, "update")
            return
        if not shape.key_new:
            # Their order is that of their values, but for those that only Python can tell.
            if shape.old_values(old) == shape.new_values(new):
                self._wrote(new, "update")
            else:
                self._delete(old)
                self._insert(new)
            return
        self._wrote(new, "update")
        if not self._room.left and shape.is_plain:
            self.omitted += 1
            return
        changed = tuple(
            item.name
            for item, was, now in zip(
                shape.compared, shape.old_values(old), shape.new_values(new), strict=True
            )
            if was != now
        )
        if changed and self._is_kept():
            olds, news = old.cells(shape.old), new.cells(shape.new)
            self._rows.append(
                RowChange(
                    op="update",
                    key=_named_key(shape.new, shape.key_new, news),
                    old=_named(shape.old, olds),
                    new=_named(shape.new, news),
                    changed=changed,
                    xid=new.xid,
                )
            )

    def _insert(self, new: Image) -> None:
        self._wrote(new, "insert")
        if self._is_kept():
            cells = new.cells(self._shape.new)
            key = _named_key(self._shape.new, self._shape.key_new, cells)
            self._rows.append(
                RowChange(op="insert", key=key, old=None, new=_named(self._shape.new, cells), xid=new.xid)
            )

    def _delete(self, old: Image) -> None:
        if self._is_kept():
            cells = old.cells(self._shape.old)
            key = _named_key(self._shape.old, self._shape.key_old, cells)
            self._rows.append(
                RowChange(op="delete", key=key, old=_named(self._shape.old, cells), new=None, xid=old.xid)
            )

    def _is_kept(self) -> bool:
        if self._room.left:
            self._room.left -= 1
            return True
        self.omitted += 1
        return False

    def _wrote(self, new: Image, op: Op) -> None:
        if new.xid is not None:
            self.written[new.xid, op] += 1


def _key(shape: Shape, places: Sequence[int], cells: Sequence[str | None]) -> Hashable:
    kinds = (shape.compared[place].kind for place in shape.key_new)
    return tuple(canonical(kind, cells[place]) for kind, place in zip(kinds, places, strict=True))


def _named(columns: Sequence[Column], cells: Sequence[str | None]) -> dict[str, str | None]:
    return {column.name: cell for column, cell in zip(columns, cells, strict=True)}


def _named_key(
    columns: Sequence[Column], places: Sequence[int], cells: Sequence[str | None]
) -> dict[str, str] | None:
    # A key's columns are NOT NULL, so its cells are texts.
    return {columns[place].name: cells[place] or "" for place in places} if places else None


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
