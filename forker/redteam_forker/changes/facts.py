"""What a baseline is like: it never changes, so it is read once in a process."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redteam_forker.changes.catalog import read_catalog
from redteam_forker.changes.objects import watched_catalogs
from redteam_forker.changes.pages import read_maps, read_stamps
from redteam_forker.changes.scan import array, count_rows
from redteam_forker.changes.sequences import read_sequences, sequence_values
from redteam_forker.changes.snapshot import snapshot

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Sequence

    import asyncpg

    from redteam_forker.changes.catalog import Catalog, Part
    from redteam_forker.changes.objects import SchemaObject
    from redteam_forker.changes.pages import HeapMaps
    from redteam_forker.changes.sequences import SequenceRef
    from redteam_forker.servers.server import Server

__all__ = ["Baseline", "Facts", "facts_of"]

# Keyed by the cluster's system identifier and the database's oid: neither is ever used twice, so a template
# that is built again under its old name is another baseline. Collections that start at once may each read
# the facts; what they read is equal.
_KNOWN: OrderedDict[tuple[int, int], Facts] = OrderedDict()
_KEPT = 16
# Pages up to which a catalog is compared by their stamps.
_SMALL_CATALOG = 8

_HEAP_CATALOG = re.compile(r"pg_catalog\.[a-z_]+\Z")
_OIDS = """
SELECT c.oid, c.relname AS name FROM pg_class c
WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relname = ANY ($1::text::text[]) AND NOT c.relisshared
"""


@dataclass(slots=True, kw_only=True)
class Facts:
    """A baseline, as far as it was ever asked for.

    Attributes:
        catalog: its tables.
        watched: sources of rows that every change of the schema writes to, with the oid of those that are a
            catalog.
        schema_counts: rows of each of them.
        sequences: each with its value.
        maps: visibility maps of heaps and catalogs; None: pages cannot be read here.
        refused: why not.
        small_catalogs: oids of catalogs that cost less to compare, by their stamps, than to count.
        stamps: of all pages of these catalogs by oid, and of other heaps once a fork's had to be compared.
        counts: rows of each part, by the part's oid; read only where pages could not be.
        objects: read only when some fork's schema was touched.
    """

    catalog: Catalog
    watched: list[tuple[str, int | None]]
    schema_counts: list[int]
    sequences: dict[SequenceRef, str | None]
    maps: HeapMaps | None
    refused: str | None
    small_catalogs: set[int] = field(default_factory=set)
    stamps: dict[int, bytes] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    objects: list[SchemaObject] | None = None

    @property
    def mapped(self) -> list[int]:
        """Oids of the heaps, and of the catalogs that have a visibility map: a template's have none."""
        catalogs = [oid for _, oid in self.watched if oid is not None]
        if self.maps is not None:
            catalogs = [oid for oid in catalogs if self.maps.of[oid].stamps]
        return catalogs + [part.oid for table in self.catalog.values() for part in table.parts if part.heap]


@dataclass(slots=True)
class Baseline:
    """The baseline's session, opened when something has to be read from it: often its facts will do."""

    server: Server
    database: str
    stack: contextlib.AsyncExitStack
    _connection: asyncpg.Connection | None = field(default=None)

    async def session(self) -> asyncpg.Connection:
        """The same one every time, in one transaction."""
        if self._connection is None:
            look = await self.stack.enter_async_context(snapshot(self.server, self.database))
            self._connection = look.connection
        return self._connection

    async def count(self, facts: Facts, parts: list[Part]) -> None:
        """See that the facts have the number of rows of these parts."""
        missing = [part for part in parts if part.oid not in facts.counts]
        if missing:
            counted = await count_rows(await self.session(), [part.source for part in missing], None)
            facts.counts.update({part.oid: count.all for part, count in zip(missing, counted, strict=True)})

    async def stamp(self, facts: Facts, oids: Sequence[int]) -> None:
        """See that the facts have the stamps of these parts."""
        missing = [oid for oid in oids if oid not in facts.stamps]
        if missing:
            async with snapshot(self.server, self.database, pages=True) as look:
                if look.reader is not None:
                    facts.stamps.update(await read_stamps(look, missing))


async def facts_of(identity: tuple[int, int], server: Server, database: str) -> Facts:
    """Read them, or have them.

    Args:
        identity: of the cluster and of the database in it.
        server: where it is.
        database: its name.
    """
    known = _KNOWN.get(identity)
    if known is None:
        async with snapshot(server, database, pages=True) as look:
            session = look.connection
            sources = watched_catalogs()
            names = [source.rpartition(".")[2] for source in sources if _HEAP_CATALOG.match(source)]
            oids = {
                f"pg_catalog.{row['name']}": row["oid"] for row in await session.fetch(_OIDS, array(names))
            }
            sequences = await read_sequences(session)
            known = Facts(
                catalog=await read_catalog(session),
                watched=[(source, oids.get(source)) for source in sources],
                schema_counts=[],
                sequences=await sequence_values(session, sequences),
                maps=None,
                refused=look.refused,
            )
            if look.reader is not None:
                known.maps = await read_maps(look, known.mapped)
                catalogs = [oid for _, oid in known.watched if oid is not None]
                known.small_catalogs = {
                    oid for oid in catalogs if known.maps.of[oid].blocks <= _SMALL_CATALOG
                }
                known.stamps = await read_stamps(look, list(known.small_catalogs))
            # Without the functions that were made for this look.
            own = await session.fetchval("SELECT pg_current_xact_id_if_assigned()::text::int8")
            known.schema_counts = [count.all for count in await count_rows(session, sources, None, own=own)]
        _KNOWN[identity] = known
        while len(_KNOWN) > _KEPT:
            _KNOWN.popitem(last=False)
    return known
