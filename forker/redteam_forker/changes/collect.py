"""Collects everything that a conversation changed, from its fork and the template's baseline."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from redteam_forker._pg import translated
from redteam_forker.changes.catalog import read_catalog
from redteam_forker.changes.changeset import ChangeSet, SequenceChange, TableChanges
from redteam_forker.changes.objects import compare_objects, is_schema_touched, read_objects, watched_catalogs
from redteam_forker.changes.pairing import pair, shape_of
from redteam_forker.changes.scan import Epoch, all_rows, count_rows, rows_by_key, vanished_rows, written_rows
from redteam_forker.changes.snapshot import snapshot
from redteam_forker.names import quote_ident
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    import asyncpg

    from redteam_forker.changes.catalog import Catalog, Column, Part, Table
    from redteam_forker.changes.changeset import ObjectChange
    from redteam_forker.changes.objects import SchemaObject
    from redteam_forker.changes.pairing import Image
    from redteam_forker.changes.scan import Counts
    from redteam_forker.servers.server import Server

__all__ = ["collect_changes"]

# age() compares 32-bit ids around the circle.
_OLDEST = 2_000_000_000

_MOMENT = """
SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::int8 - $2::int8) AS since,
  age(($2::int8 & 4294967295)::text::xid) AS window,
  (SELECT d.oid FROM pg_database d WHERE d.datname = $1) AS baseline,
  (SELECT system_identifier FROM pg_control_system()) AS cluster
"""

_SEQUENCES = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, s.seqstart AS start
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relpersistence <> 't' ORDER BY n.nspname, c.relname
"""


class _Sequence(NamedTuple):
    oid: int
    schema: str
    name: str
    start: int


@dataclass(slots=True, kw_only=True)
class _Facts:
    """What a baseline is like. It never changes, so it is read once in a process.

    Attributes:
        catalog: its tables.
        counts: rows of each part, by the part's oid.
        schema_counts: rows of each watched catalog.
        sequences: each with its value.
        objects: read only when some fork's schema was touched.
    """

    catalog: Catalog
    counts: dict[int, int]
    schema_counts: list[int]
    sequences: dict[_Sequence, str | None]
    objects: list[SchemaObject] | None = None


# Keyed by the cluster's system identifier and the database's oid: neither is ever used twice, so a template
# that is built again under its old name is another baseline. Collections that start at once may each read
# the facts; what they read is equal.
_KNOWN: OrderedDict[tuple[int, int], _Facts] = OrderedDict()
_KEPT = 16


@dataclass(slots=True)
class _Baseline:
    """The baseline's session, opened when something has to be read from it: often its facts will do."""

    server: Server
    database: str
    stack: contextlib.AsyncExitStack
    _connection: asyncpg.Connection | None = field(default=None)

    async def session(self) -> asyncpg.Connection:
        if self._connection is None:
            self._connection = await self.stack.enter_async_context(snapshot(self.server, self.database))
        return self._connection


async def collect_changes(server: Server, *, baseline: str, fork: str, watermark: int) -> ChangeSet:
    """Compare a fork with its baseline: rows, sequences and schema objects.

    Nobody may be writing to the fork any more; each side is read in one read-only transaction at one instant
    (P71). The template is sealed, so its baseline is read (P72). Row-level security hides nothing. Views and
    foreign tables are never read.

    Args:
        server: where both are.
        baseline: name of the template's baseline database.
        fork: name of the fork's database.
        watermark: 64-bit id of the first transaction that may have written to the fork.

    Raises:
        EnvironmentFault: a database cannot be read, by a missing right or a lost server.
    """
    with translated(f"cannot collect the changes of fork {fork!r}", EnvironmentFault):
        async with contextlib.AsyncExitStack() as stack:
            there = await stack.enter_async_context(snapshot(server, fork))
            moment = await there.fetchrow(_MOMENT, baseline, watermark)
            if moment["baseline"] is None:
                raise EnvironmentFault(f"baseline {baseline!r} is gone, so fork {fork!r} cannot be compared")
            here = _Baseline(server, baseline, stack)
            facts = await _facts((moment["cluster"], moment["baseline"]), here)
            # A fork older than half the circle of ids: no row can be told to be new, so all are read.
            aged = not 0 <= moment["since"] < _OLDEST
            epoch = Epoch(watermark=watermark, window=-1 if aged else moment["window"])
            return await _Collection(here, there, facts, epoch, aged=aged).run()


async def _facts(identity: tuple[int, int], here: _Baseline) -> _Facts:
    known = _KNOWN.get(identity)
    if known is None:
        session = await here.session()
        catalog = await read_catalog(session)
        parts = [part for table in catalog.values() for part in table.parts]
        sequences = await _read_sequences(session)
        known = _Facts(
            catalog=catalog,
            counts={
                part.oid: count.all
                for part, count in zip(
                    parts, await count_rows(session, [part.source for part in parts], None), strict=True
                )
            },
            schema_counts=[count.all for count in await count_rows(session, watched_catalogs(), None)],
            sequences=await _sequence_values(session, sequences),
        )
        _KNOWN[identity] = known
        while len(_KNOWN) > _KEPT:
            _KNOWN.popitem(last=False)
    return known


async def _read_sequences(connection: asyncpg.Connection) -> list[_Sequence]:
    return [_Sequence(*row.values()) for row in await connection.fetch(_SEQUENCES)]


async def _sequence_values(
    connection: asyncpg.Connection, sequences: list[_Sequence]
) -> dict[_Sequence, str | None]:
    values: dict[_Sequence, str | None] = {}
    if sequences:
        arms = [
            f"SELECT {place} AS place, last_value, is_called "
            f"FROM {quote_ident(item.schema)}.{quote_ident(item.name)}"
            for place, item in enumerate(sequences)
        ]
        rows = await connection.fetch(" UNION ALL ".join(arms))
        for row in rows:
            item = sequences[row["place"]]
            if row["is_called"]:
                values[item] = str(row["last_value"])
            else:
                values[item] = None if row["last_value"] == item.start else f"next {row['last_value']}"
    return values


@dataclass(slots=True)
class _Collection:
    here: _Baseline
    there: asyncpg.Connection
    facts: _Facts
    epoch: Epoch
    aged: bool = field(kw_only=True)

    async def run(self) -> ChangeSet:
        counted = await count_rows(self.there, watched_catalogs(), self.epoch)
        touched = self.aged or is_schema_touched(
            (count.new for count in counted), [count.all for count in counted], self.facts.schema_counts
        )
        objects: tuple[ObjectChange, ...] = ()
        catalog, sequences = self.facts.catalog, list(self.facts.sequences)
        if touched:
            if self.facts.objects is None:
                self.facts.objects = await read_objects(await self.here.session())
            objects = compare_objects(self.facts.objects, await read_objects(self.there))
            catalog, sequences = await read_catalog(self.there), await _read_sequences(self.there)
        return ChangeSet(
            tables=await self._tables(catalog),
            sequences=self._sequences(await _sequence_values(self.there, sequences)),
            objects=objects,
        )

    def _sequences(self, now: dict[_Sequence, str | None]) -> tuple[SequenceChange, ...]:
        then = {(item.schema, item.name): value for item, value in self.facts.sequences.items()}
        after = {(item.schema, item.name): value for item, value in now.items()}
        return tuple(
            SequenceChange(
                schema=schema, name=name, old=then.get((schema, name)), new=after.get((schema, name))
            )
            for schema, name in sorted(then.keys() | after.keys())
            if then.get((schema, name)) != after.get((schema, name))
        )

    async def _tables(self, catalog: Catalog) -> tuple[TableChanges, ...]:
        quick: list[tuple[Table, Table]] = []
        found: list[TableChanges | None] = []
        for before, after in _matched(self.facts.catalog, catalog):
            reason = self._reason(before, after)
            if reason is None:
                assert before is not None
                assert after is not None
                quick.append((before, after))
            else:
                found.append(await self._in_full(before, after, reason))
        found += await self._by_xmin(quick)
        return tuple(
            sorted(
                (changes for changes in found if changes), key=lambda changes: (changes.schema, changes.table)
            )
        )

    def _reason(self, before: Table | None, after: Table | None) -> str | None:
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

    async def _in_full(self, before: Table | None, after: Table | None, reason: str) -> TableChanges | None:
        one = after or before
        assert one is not None
        old, new = before or one, after or one
        key = _common_key(old, new)
        shape = shape_of(old.columns, new.columns, key)
        olds, news = await all_rows(
            await self.here.session() if before else None,
            self.there if after else None,
            (before, after),
            shape,
            self.epoch,
        )
        rows = pair(shape, olds, news)
        if not rows:
            return None
        return TableChanges(
            schema=new.schema,
            table=new.name,
            key=_key_names(new, key),
            columns={column.name: column.type for column in (*new.columns, *_dropped(old, new))},
            method="keys" if key else "multiset",
            reason=reason,
            rows=rows,
        )

    async def _by_xmin(self, tables: list[tuple[Table, Table]]) -> list[TableChanges]:
        parts = [part for _, table in tables for part in table.parts]
        counted = await count_rows(self.there, [part.source for part in parts], self.epoch)
        counts = {part.oid: count for part, count in zip(parts, counted, strict=True)}
        found = []
        for before, table in tables:
            touched = [
                (part, counts[part.oid])
                for part in table.parts
                if counts[part.oid].new or counts[part.oid].all != self.facts.counts[part.oid]
            ]
            if not touched:
                continue
            news = await written_rows(self.there, table, touched, self.epoch)
            key = _common_key(before, table)
            olds = await self._olds(before, key, touched, news)
            rows = pair(shape_of(before.columns, table.columns, key), olds, news)
            if rows:
                found.append(
                    TableChanges(
                        schema=table.schema,
                        table=table.name,
                        key=_key_names(table, key),
                        columns={column.name: column.type for column in table.columns},
                        method="xmin",
                        reason="the pages that changed were not looked for",
                        rows=rows,
                    )
                )
        return found

    async def _olds(
        self, before: Table, key: tuple[int, ...], touched: list[tuple[Part, Counts]], news: list[Image]
    ) -> list[Image]:
        """The baseline's rows that are not in the fork as they were."""
        missing = {
            part.oid: self.facts.counts[part.oid] - (count.all - count.new)
            for part, count in touched
            if self.facts.counts[part.oid] != count.all - count.new
        }
        if not missing:
            return []
        session = await self.here.session()
        olds = await rows_by_key(session, before, key, news, sum(missing.values()))
        if olds is None:
            olds = []
            then = {part.oid: part for part in before.parts}
            for part, _ in touched:
                if part.oid in missing:
                    parts = (then[part.oid], part)
                    olds += await vanished_rows(session, self.there, before, parts, self.epoch)
        return olds


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


def _common_key(old: Table, new: Table) -> tuple[int, ...]:
    """A key that holds on both sides: an agent may have dropped one."""
    return old.key if frozenset(old.key) in new.uniques else ()


def _key_names(table: Table, key: tuple[int, ...]) -> tuple[str, ...] | None:
    names = {column.number: column.name for column in table.columns}
    return tuple(names[number] for number in key) if key else None


def _dropped(old: Table, new: Table) -> list[Column]:
    kept = {column.number for column in new.columns}
    names = {column.name for column in new.columns}
    return [column for column in old.columns if column.number not in kept and column.name not in names]
