"""Collects everything that a conversation changed, from its fork and the template's baseline."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redteam_forker._pg import translated
from redteam_forker.changes import pages
from redteam_forker.changes.candidates import Search
from redteam_forker.changes.catalog import read_catalog
from redteam_forker.changes.changeset import ChangeSet
from redteam_forker.changes.facts import Baseline, facts_of
from redteam_forker.changes.objects import compare_objects, is_schema_touched, read_objects
from redteam_forker.changes.pairing import Room
from redteam_forker.changes.scan import Epoch, count_rows
from redteam_forker.changes.sequences import compare_sequences, read_sequences, sequence_values
from redteam_forker.changes.snapshot import snapshot
from redteam_forker.changes.tables import TableComparison
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from redteam_forker.changes.changeset import ObjectChange
    from redteam_forker.changes.facts import Facts
    from redteam_forker.changes.pages import HeapMaps
    from redteam_forker.changes.snapshot import Snapshot
    from redteam_forker.servers.server import Server

__all__ = ["KEEP_ROWS", "collect_changes"]

KEEP_ROWS = 200_000
# age() compares 32-bit ids around the circle.
_OLDEST = 2_000_000_000

_MOMENT = """
SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::int8 - $2::int8) AS since,
  age(($2::int8 & 4294967295)::text::xid) AS window,
  pg_current_xact_id_if_assigned()::text::int8 AS own,
  (SELECT d.oid FROM pg_database d WHERE d.datname = $1) AS baseline,
  (SELECT system_identifier FROM pg_control_system()) AS cluster
"""


async def collect_changes(
    server: Server, *, baseline: str, fork: str, watermark: int, keep_rows: int = KEEP_ROWS
) -> ChangeSet:
    """Compare a fork with its baseline: rows, sequences, schema objects, and what was written on the way.

    Nobody may be writing to the fork any more; each side is read in one read-only transaction at one instant
    (P71). The template is sealed, so its baseline is read (P72). Row-level security hides nothing. Views and
    foreign tables are never read. Where our role is a superuser and the server has pageinspect, only the
    pages that the fork wrote to are read.

    Args:
        server: where both are.
        baseline: name of the template's baseline database.
        fork: name of the fork's database.
        watermark: 64-bit id of the first transaction that may have written to the fork.
        keep_rows: how many row changes to keep in memory, of all tables; the others are counted in
            `TableChanges.omitted`.

    Raises:
        EnvironmentFault: a database cannot be read, by a missing right or a lost server.
    """
    with translated(f"cannot collect the changes of fork {fork!r}", EnvironmentFault):
        async with contextlib.AsyncExitStack() as stack:
            there = await stack.enter_async_context(snapshot(server, fork, pages=True))
            moment = await there.connection.fetchrow(_MOMENT, baseline, watermark)
            if moment["baseline"] is None:
                raise EnvironmentFault(f"baseline {baseline!r} is gone, so fork {fork!r} cannot be compared")
            facts = await facts_of((moment["cluster"], moment["baseline"]), server, baseline)
            here = Baseline(server, baseline, stack)
            # A fork older than half the circle of ids: no row can be told to be new, so all are read.
            aged = not 0 <= moment["since"] < _OLDEST
            epoch = Epoch(watermark=watermark, window=-1 if aged else moment["window"])
            maps = None
            if there.reader is not None and facts.maps is not None:
                maps = await pages.read_maps(there, facts.mapped)
            touched = aged or await _is_schema_touched(there, facts, epoch, maps, own=moment["own"])
            catalog, sequences = facts.catalog, list(facts.sequences)
            objects: tuple[ObjectChange, ...] = ()
            if touched:
                if facts.objects is None:
                    facts.objects = await read_objects(await here.session())
                objects = compare_objects(facts.objects, await read_objects(there.connection))
                catalog, sequences = (
                    await read_catalog(there.connection),
                    await read_sequences(there.connection),
                )
            search = Search(
                version_num=server.facts.version_num,
                here=here,
                there=there,
                facts=facts,
                epoch=epoch,
                maps=maps,
            )
            comparison = TableComparison(search=search, aged=aged, room=Room(keep_rows))
            tables, writes = await comparison.run(catalog)
            return ChangeSet(
                tables=tables,
                sequences=compare_sequences(
                    facts.sequences, await sequence_values(there.connection, sequences)
                ),
                objects=objects,
                writes=writes,
            )


async def _is_schema_touched(
    there: Snapshot, facts: Facts, epoch: Epoch, maps: HeapMaps | None, *, own: int | None
) -> bool:
    """Whether any catalog was written to: those whose pages say that they were not need no counting."""
    untouched: set[int] = set()
    if maps is not None and facts.maps is not None:
        untouched = {oid for oid in maps.of if pages.is_untouched(maps, facts.maps, oid)}
        # A template's catalogs have no maps. Small ones cost less to compare than to count.
        small = [oid for _, oid in facts.watched if oid in facts.small_catalogs and oid not in untouched]
        stamps = await pages.read_stamps(there, small)
        untouched.update(oid for oid in small if stamps[oid] == facts.stamps[oid])
    suspect = [at for at, (_, oid) in enumerate(facts.watched) if oid not in untouched]
    counted = await count_rows(there.connection, [facts.watched[at][0] for at in suspect], epoch, own=own)
    return is_schema_touched(
        (count.new for count in counted),
        [count.all for count in counted],
        [facts.schema_counts[at] for at in suspect],
    )
