"""The changes of tables: chooses for each the cheapest way that is exact, and says which it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from redteam_forker.changes import scan
from redteam_forker.changes.candidates import Candidates, common_key
from redteam_forker.changes.changeset import TableChanges, Write
from redteam_forker.changes.merge import batch_of, merge
from redteam_forker.changes.pairing import Pairing, shape_of
from redteam_forker.changes.writes import VERSIONS, read_history

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from redteam_forker.changes.candidates import Search
    from redteam_forker.changes.catalog import Catalog, Column, Table
    from redteam_forker.changes.changeset import Method
    from redteam_forker.changes.pairing import Image, Op, Room
    from redteam_forker.changes.scan import Span
    from redteam_forker.changes.writes import History

__all__ = ["TableComparison"]

# Tables with no more candidates than this are read together, the others one by one in a stream.
_FEW = 5_000


class _Found(NamedTuple):
    changes: TableChanges | None
    writes: list[Write]


@dataclass(slots=True, kw_only=True)
class TableComparison:
    """The rows of a fork against its baseline's.

    Attributes:
        search: where to look.
        aged: the fork is too old to tell new rows by xmin.
        room: how many row changes may be kept.
    """

    search: Search
    aged: bool
    room: Room

    async def run(self, catalog: Catalog) -> tuple[tuple[TableChanges, ...], tuple[Write, ...]]:
        """All tables with a changed row, and what was written on the way.

        Args:
            catalog: the fork's tables.
        """
        whole: list[tuple[Table | None, Table | None, str]] = []
        same: list[tuple[Table, Table]] = []
        for before, after in _matched(self.search.facts.catalog, catalog):
            reason = self._why_whole(before, after)
            if reason is None:
                assert before is not None
                assert after is not None
                same.append((before, after))
            else:
                whole.append((before, after, reason))
        tasks = await self.search.find(same)
        history = await self._history(tasks)
        few = await self._few([task for task in tasks if task.candidates <= _FEW], history)
        # In one order, whatever the ways: what is kept of too many changes is the same for forks that ended
        # alike. A table that was dropped may have left its name to another.
        jobs: list[tuple[tuple[str, str, int], Candidates | tuple[Table | None, Table | None, str]]] = [
            (_place(task.now), task) for task in tasks
        ]
        jobs += [(_place(after or before), (before, after, reason)) for before, after, reason in whole]
        found = []
        for _, job in sorted(jobs, key=lambda job: job[0]):
            if isinstance(job, Candidates):
                found.append(await self._by_places(job, few.get(job.now.oid), history))
            else:
                found.append(await self._whole(*job))
        writes = sorted(
            (write for item in found for write in item.writes),
            key=lambda write: (write.xid, write.schema, write.table, write.op),
        )
        return tuple(item.changes for item in found if item.changes), tuple(writes)

    def _why_whole(self, before: Table | None, after: Table | None) -> str | None:
        """Why all rows must be read, or None (P67)."""
        if before is None:
            return "the table was created"
        if after is None:
            return "the table was dropped"
        if before.oid != after.oid:
            return "the table was dropped and made again"
        if self.aged:
            return "the fork is too old to tell new rows by xmin"
        if [column.shape for column in before.columns] != [column.shape for column in after.columns]:
            return "its columns changed"
        if {(part.oid, part.filenode) for part in before.parts} != {
            (part.oid, part.filenode) for part in after.parts
        }:
            return "it was rewritten, truncated, or its partitions changed"
        if not all(part.heap for part in after.parts):
            return "it is not stored as a heap"
        return None

    async def _history(self, tasks: list[Candidates]) -> History | None:
        """Versions in the pages of tables whose pages are known, unless they are too many."""
        if self.search.there.reader is None:
            return None
        mapped = [task for task in tasks if task.why is None]
        if sum(task.candidates for task in mapped) > VERSIONS:
            return None
        history = await read_history(self.search.there, [task.spans for task in mapped], self.search.epoch)
        if history is not None:
            for at, task in enumerate(mapped):
                task.history = at
        return history

    async def _few(
        self, tasks: list[Candidates], history: History | None
    ) -> dict[int, tuple[list[Image], list[Image]]]:
        """The candidates of tables that have few of them, by the table's oid, in a query for each side."""
        tasks = [task for task in tasks if task.candidates]
        with_new = [task for task in tasks if any(found.new for found in task.places)]
        news = await scan.new_rows(
            self.search.there.connection,
            [
                (
                    task.now,
                    task.shape.sort_new,
                    [s for s, f in zip(task.spans, task.places, strict=True) if f.new],
                )
                for task in with_new
            ],
            self.search.epoch,
        )
        with_gone = [task for task in tasks if any(found.gone for found in task.places)]
        olds: list[list[tuple[int, bytes, Image]]] = []
        if with_gone:
            olds = await scan.gone_rows(
                await self.search.here.session(),
                [
                    (
                        task.then,
                        task.shape.sort_old,
                        [(s.then, f.gone) for s, f in zip(task.spans, task.places, strict=True) if f.gone],
                    )
                    for task in with_gone
                ],
            )
        new_of = {task.now.oid: rows for task, rows in zip(with_new, news, strict=True)}
        old_of = {
            task.now.oid: [_deleted(task, history, row) for row in rows]
            for task, rows in zip(with_gone, olds, strict=True)
        }
        return {
            task.now.oid: (
                sorted(old_of.get(task.now.oid, []), key=_by_sort),
                sorted(new_of.get(task.now.oid, []), key=_by_sort),
            )
            for task in tasks
        }

    async def _by_places(
        self, task: Candidates, few: tuple[list[Image], list[Image]] | None, history: History | None
    ) -> _Found:
        pairing = Pairing(task.shape, self.room)
        if few is not None:
            await merge(pairing, batch_of(few[0]), batch_of(few[1]))
        elif task.candidates:
            both = list(zip(task.spans, task.places, strict=True))
            await merge(
                pairing,
                self._gone(task, [(span, found.gone) for span, found in both], history),
                scan.stream_new(
                    self.search.there.connection,
                    task.now,
                    task.shape.sort_new,
                    [span for span, found in both if found.new],
                    self.search.epoch,
                ),
            )
        written = pairing.written
        if task.history is not None and history is not None:
            written = history.written.get(task.history, Counter())
        method: Method = "xmin" if task.why else "pages"
        return _found(task.then, task.now, task.key, pairing, method, task.why, written)

    async def _gone(
        self, task: Candidates, parts: Sequence[tuple[Span, bytes]], history: History | None
    ) -> AsyncIterator[list[Image]]:
        session = await self.search.here.session()
        async for rows in scan.stream_gone(session, task.then, task.shape.sort_old, parts):
            yield [_deleted(task, history, row) for row in rows]

    async def _whole(self, before: Table | None, after: Table | None, reason: str) -> _Found:
        one = after or before
        assert one is not None
        old, new = before or one, after or one
        key = common_key(old, new)
        shape = shape_of(old.columns, new.columns, key)
        pairing = Pairing(shape, self.room)
        await merge(
            pairing,
            scan.all_rows(await self.search.here.session(), before, shape.sort_old)
            if before
            else batch_of([]),
            scan.all_rows(self.search.there.connection, after, shape.sort_new, self.search.epoch)
            if after
            else batch_of([]),
        )
        return _found(old, new, key, pairing, "keys" if key else "multiset", reason, pairing.written)


def _found(
    old: Table,
    new: Table,
    key: tuple[int, ...],
    pairing: Pairing,
    method: Method,
    reason: str | None,
    written: Counter[tuple[int, Op]],
) -> _Found:
    writes = [
        Write(xid=xid, schema=new.schema, table=new.name, op=op, rows=rows)
        for (xid, op), rows in written.items()
    ]
    if not pairing.rows and not pairing.omitted:
        return _Found(None, writes)
    changes = TableChanges(
        schema=new.schema,
        table=new.name,
        key=_key_names(new, key),
        columns={column.name: column.type for column in (*new.columns, *_dropped(old, new))},
        method=method,
        reason=reason,
        rows=pairing.rows,
        omitted=pairing.omitted,
    )
    return _Found(changes, writes)


def _place(table: Table | None) -> tuple[str, str, int]:
    assert table is not None
    return (table.schema, table.name, table.oid)


def _by_sort(image: Image) -> bytes:
    return image.sort


def _deleted(task: Candidates, history: History | None, row: tuple[int, bytes, Image]) -> Image:
    part, place, image = row
    if history is None or task.history is None:
        return image
    return image._replace(xid=history.deleter(part, place, keyed=bool(task.key)))


def _matched(before: Catalog, after: Catalog) -> list[tuple[Table | None, Table | None]]:
    """The tables of both sides: the same oid is the same table, and what is left over is matched by name."""
    pairs: list[tuple[Table | None, Table | None]] = [
        (before[oid], after[oid]) for oid in before if oid in after
    ]
    made = {(table.schema, table.name): table for oid, table in after.items() if oid not in before}
    for oid, table in before.items():
        if oid not in after:
            again = made.pop((table.schema, table.name), None)
            pairs.append((table, again.like(table) if again else None))
    pairs.extend((None, table) for table in made.values())
    return pairs


def _key_names(table: Table, key: tuple[int, ...]) -> tuple[str, ...] | None:
    names = {column.number: column.name for column in table.columns}
    return tuple(names[number] for number in key) if key else None


def _dropped(old: Table, new: Table) -> list[Column]:
    kept = {column.number for column in new.columns}
    names = {column.name for column in new.columns}
    return [column for column in old.columns if column.number not in kept and column.name not in names]
