"""What differs between two databases, by reading every row of both: the plainest way, to judge quick ones by.

Nothing of the forker's own comparison is used. Rows come out of COPY, as the types' output functions print
them; whether two texts are one value is asked of Postgres, where a value has several texts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from support.databases import connected
from support.oracle_rows import pin, read_side
from support.oracle_values import Equality, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import asyncpg

    from redteam_forker.changes import ChangeSet, RowChange, TableChanges
    from redteam_forker.servers import Server
    from support.oracle_rows import Cells, Row, Side, Unit
    from support.oracle_values import Column

__all__ = ["Oracle"]


@dataclass(slots=True)
class Oracle:
    """Compares a baseline, read once, with any number of forks of it."""

    before: Side
    _types: dict[int, asyncpg.Record | None] = field(default_factory=dict)

    async def differences(self, server: Server, fork: str, told: ChangeSet) -> list[str]:
        """What a change set says otherwise than reading everything does, in words; empty: nothing."""
        after = await read_side(server, fork)
        async with connected(server, fork) as session:
            await pin(session)
            problems = await _Comparison(self.before, after, Equality(session, self._types)).tables(told)
        problems += _differ(
            "sequence",
            {(item.schema, item.name): (item.old, item.new) for item in told.sequences},
            _changed(self.before.sequences, after.sequences),
        )
        blobs = _changed(self.before.large_objects, after.large_objects)
        named = {int(item.name) for item in told.objects if item.kind == "large object"}
        # One that was only granted or given away is told too.
        problems += [f"large object {oid} differs and is not told" for oid in blobs.keys() - named]
        return problems


@dataclass(slots=True)
class _Comparison:
    before: Side
    after: Side
    equality: Equality

    async def tables(self, told: ChangeSet) -> list[str]:
        problems = []
        tables = {(table.schema, table.table): table for table in told.tables}
        if len(tables) != len(told.tables):
            problems.append("a table is told twice")
        for old, new in self._pairs():
            one = new or old
            assert one is not None
            table = tables.pop((one.schema, one.name), None)
            problems += [f"{one.schema}.{one.name}: {text}" for text in await self._table(old, new, table)]
        problems += [f"{schema}.{name} is told and is no table" for schema, name in tables]
        return problems

    def _pairs(self) -> Iterable[tuple[Unit | None, Unit | None]]:
        """The same oid is the same table; what was dropped and made again is told by its name."""
        made = {
            (unit.schema, unit.name): unit
            for oid, unit in self.after.units.items()
            if oid not in self.before.units
        }
        for oid, old in self.before.units.items():
            yield old, self.after.units.get(oid) or made.pop((old.schema, old.name), None)
        for new in made.values():
            yield None, new

    async def _table(self, old: Unit | None, new: Unit | None, told: TableChanges | None) -> list[str]:
        plan = _Plan.of(old, new)
        problems = []
        if told is None and old and new and old.columns == new.columns and old.rows == new.rows:
            return []
        if told is None:
            key = plan.keys[0] if plan.keys else None
        else:
            key = next((key for key in plan.keys if plan.names(key) == told.key), None)
            if told.key is not None and key is None:
                problems.append(f"{told.key} is told to be a key, and is none on both sides")
            if plan.must is not None and key != plan.must:
                problems.append(f"rows are matched by {told.key}, not by {plan.names(plan.must)}")
            if told.omitted:
                problems.append(f"{told.omitted} rows are omitted")
        if told is not None:
            wanted = {column.name: column.shown for column in plan.new}
            wanted |= {c.name: c.shown for c in plan.old if c.name not in wanted and plan.is_dropped(c)}
            if dict(told.columns) != wanted:
                problems.append(f"its columns are told as {dict(told.columns)}, and are {wanted}")
        rows = told.rows if told else ()
        olds, news = old.rows if old else (), new.rows if new else ()
        if key is None:
            return problems + await self._multiset(plan, olds, news, rows)
        return problems + await self._keyed(plan, key, olds, news, rows)

    async def _keyed(
        self,
        plan: _Plan,
        key: tuple[int, ...],
        olds: Sequence[Row],
        news: Sequence[Row],
        told: Sequence[RowChange],
    ) -> list[str]:
        key_at = [place for place, pair in enumerate(plan.compared) if pair.new.number in key]
        key_at.sort(key=lambda place: key.index(plan.compared[place].new.number))
        old_all, new_all = [plan.seen(row) for row in olds], [row.cells for row in news]
        # Only keys that are spelled as on no row of the other side may have to be found by value.
        found = {tuple(cells[at] for at in key_at) for cells in old_all}
        found &= {tuple(cells[at] for at in key_at) for cells in new_all}
        alone = [cells for cells in (*old_all, *new_all) if tuple(cells[at] for at in key_at) not in found]
        for place in key_at:
            await self.equality.unify(plan.compared[place], (cells[place] for cells in alone))
        before = {self._key(plan, key_at, cells): row for cells, row in zip(old_all, olds, strict=True)}
        after = {self._key(plan, key_at, cells): row for cells, row in zip(new_all, news, strict=True)}
        assert (len(before), len(after)) == (len(olds), len(news)), "a key is not unique"
        both = [
            place for place in before.keys() & after.keys() if plan.seen(before[place]) != after[place].cells
        ]
        for place, pair in enumerate(plan.compared):
            await self.equality.learn(
                pair, [(plan.seen(before[k])[place], after[k].cells[place]) for k in both]
            )
        true: Counter[_Change] = Counter()
        writers: dict[_Change, int] = {}
        for k in before.keys() - after.keys():
            true[plan.change("delete", before[k], None, key_at, ())] += 1
        for k in after.keys() - before.keys():
            change = plan.change("insert", None, after[k], key_at, ())
            true[change] += 1
            writers[change] = after[k].xmin
        for k in both:
            was, now = plan.seen(before[k]), after[k].cells
            changed = tuple(
                pair.new.name
                for place, pair in enumerate(plan.compared)
                if not self.equality.same(pair, was[place], now[place])
            )
            if changed:
                change = plan.change("update", before[k], after[k], key_at, changed)
                true[change] += 1
                writers[change] = after[k].xmin
        return _against(true, told) + [
            f"{row.op} of {dict(row.key or {})}: told writer {row.xid}, is {writers[_told(row)]}"
            for row in told
            if row.op != "delete"
            and row.xid is not None
            and _told(row) in writers
            and row.xid % (1 << 32) != writers[_told(row)]
        ]

    def _key(self, plan: _Plan, key_at: Sequence[int], cells: Cells) -> Cells:
        return tuple(self.equality.first_of(plan.compared[place], cells[place]) for place in key_at)

    async def _multiset(
        self, plan: _Plan, olds: Sequence[Row], news: Sequence[Row], told: Sequence[RowChange]
    ) -> list[str]:
        """Rows of equal value are alike, so each side is told by one spelling of each value."""
        gone = Counter(plan.seen(row) for row in olds)
        came = Counter(row.cells for row in news)
        gone, came = gone - came, came - gone
        said_gone = [plan.again(row.old) for row in told if row.op == "delete" and row.old is not None]
        said_came = [plan.anew(row.new) for row in told if row.op == "insert" and row.new is not None]
        for place, pair in enumerate(plan.compared):
            cells = (row[place] for row in (*gone, *said_gone, *came, *said_came))
            await self.equality.unify(pair, cells)

        def spelled(cells: Iterable[Cells]) -> Counter[Cells]:
            return Counter(
                tuple(
                    self.equality.first_of(pair, cell) for pair, cell in zip(plan.compared, row, strict=True)
                )
                for row in cells
            )

        gone, came = spelled(gone.elements()), spelled(came.elements())
        gone, came = gone - came, came - gone
        problems = [
            f"told as {row.op} without a key" for row in told if row.op == "update" or row.key is not None
        ]
        for op, true, said in (("delete", gone, spelled(said_gone)), ("insert", came, spelled(said_came))):
            problems += [f"{op} told {n} times too often: {cells}" for cells, n in (said - true).items()]
            problems += [f"{op} not told {n} times: {cells}" for cells, n in (true - said).items()]
        return problems


# op, key, old, new, changed
_Change = tuple[str, frozenset[tuple[str, str | None]], "_Named | None", "_Named | None", tuple[str, ...]]
_Named = frozenset[tuple[str, str | None]]


def _told(row: RowChange) -> _Change:
    return (
        row.op,
        frozenset((row.key or {}).items()),
        None if row.old is None else frozenset(row.old.items()),
        None if row.new is None else frozenset(row.new.items()),
        row.changed,
    )


def _against(true: Counter[_Change], told: Sequence[RowChange]) -> list[str]:
    said = Counter(_told(row) for row in told)
    return [f"told, and is not so: {_shown(change)}" for change in (said - true).elements()] + [
        f"not told: {_shown(change)}" for change in (true - said).elements()
    ]


def _shown(change: _Change) -> str:
    op, key, old, new, changed = change
    cells = [
        None if image is None else {name: cell and cell[:80] for name, cell in sorted(image)}
        for image in (old, new)
    ]
    return f"{op} {dict(key)}: {cells[0]} -> {cells[1]}, changed {changed}"


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """How two sides of one table are compared.

    Attributes:
        compared: the fork's columns. Of a table that is on one side only, that side's.
        keys: column numbers (the fork's) of each key that holds on both sides, the best first.
        must: the one that rows must be matched by, if there is such a one.
    """

    old: tuple[Column, ...]
    new: tuple[Column, ...]
    compared: tuple[Pair, ...]
    keys: tuple[tuple[int, ...], ...]
    must: tuple[int, ...] | None

    @classmethod
    def of(cls, old: Unit | None, new: Unit | None) -> _Plan:
        before, after = old or new, new or old
        assert before is not None
        assert after is not None
        same = before.oid == after.oid
        there = {(c.number if same else c.name): at for at, c in enumerate(before.columns)}
        pairs = []
        for at, column in enumerate(after.columns):
            was = there.get(column.number if same else column.name)
            pairs.append(Pair(column, at, None if was is None else before.columns[was], was))
        numbers = {pair.old.number: pair.new.number for pair in pairs if pair.old is not None}
        mapped = [tuple(numbers.get(number, -1) for number in key) for key in before.uniques]
        alike = {frozenset(key) for key in after.uniques}
        keys = tuple(key for key in mapped if frozenset(key) in alike)
        return cls(
            old=before.columns,
            new=after.columns,
            compared=tuple(pairs),
            keys=keys,
            must=keys[0] if keys and keys[0] == mapped[0] else None,
        )

    def is_dropped(self, column: Column) -> bool:
        return all(pair.old is not column for pair in self.compared)

    def names(self, key: Sequence[int]) -> tuple[str, ...]:
        names = {column.number: column.name for column in self.new}
        return tuple(names[number] for number in key)

    def seen(self, row: Row) -> Cells:
        """An old row, as the fork's columns show it."""
        return tuple(
            pair.new.missing if pair.old_at is None else row.cells[pair.old_at] for pair in self.compared
        )

    def again(self, image: Mapping[str, str | None]) -> Cells:
        return tuple(pair.new.missing if pair.old is None else image[pair.old.name] for pair in self.compared)

    def anew(self, image: Mapping[str, str | None]) -> Cells:
        return tuple(image[pair.new.name] for pair in self.compared)

    def change(
        self, op: str, old: Row | None, new: Row | None, key_at: Sequence[int], changed: tuple[str, ...]
    ) -> _Change:
        before = None if old is None else dict(zip((c.name for c in self.old), old.cells, strict=True))
        after = None if new is None else dict(zip((c.name for c in self.new), new.cells, strict=True))
        key: dict[str, str | None] = {}
        for place in key_at:
            pair = self.compared[place]
            if after is not None:
                key[pair.new.name] = after[pair.new.name]
            elif before is not None and pair.old is not None:
                key[pair.old.name] = before[pair.old.name]
        return (
            op,
            frozenset(key.items()),
            None if before is None else frozenset(before.items()),
            None if after is None else frozenset(after.items()),
            changed,
        )


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }


def _differ(what: str, told: Mapping[Any, Any], true: Mapping[Any, Any]) -> list[str]:
    return [
        f"{what} {key}: told {told.get(key)!r}, is {true.get(key)!r}"
        for key in sorted(told.keys() | true.keys(), key=str)
        if told.get(key) != true.get(key)
    ]
