"""Which pages of a fork's heaps have been written to since it was copied.

A template is frozen, and a fork is its physical copy. Whatever writes to a row, or locks it, takes the
all-frozen bit from its page in the visibility map, and stamps the page with its position in the log. Only
VACUUM sets bits. So the bits that are gone name the pages; where a VACUUM may have set some again, the stamps
of the pages themselves are compared with the baseline's, which costs more and is as exact.

Every page of a map has a stamp too. Some releases set it with each change, some only when a bit is set; where
it is the baseline's, no bit was set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redteam_forker.changes.scan import array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_forker.changes.catalog import Part
    from redteam_forker.changes.snapshot import Snapshot

__all__ = [
    "HeapMap",
    "HeapMaps",
    "Range",
    "are_bits_true",
    "changed_pages",
    "is_untouched",
    "ranges_of",
    "read_maps",
    "read_stamps",
    "vacuumed",
    "whole",
    "written_pages",
]

_HEADER = 24
_STAMP = 8  # a page begins with the position in the log of its last logged change
_BLOCKS_A_BYTE = 4
_NO_STAMP = bytes(_STAMP)
# Two bits a block: all-visible, all-frozen. 1 for a byte that names a block without the second.
_NOT_FROZEN = bytes(0 if byte & 0xAA == 0xAA else 1 for byte in range(256))
# So many at once keeps what is held of one range small.
_RANGE_BLOCKS = 64
_HAS_MAINTAIN = 170000

_MAPS = """
SELECT h.id, h.blocks,
  (SELECT substring({page}('pg_catalog.pg_am', 'main', 0) FROM 1 FOR {stamp})) AS witness,
  coalesce(m.stamps, ''::bytea) AS stamps, substring(m.bits FROM 1 FOR ((h.blocks + 3) / 4)::int4) AS bits
FROM (
  SELECT p.id, pg_relation_size(p.id::oid) / s.size AS blocks,
    pg_relation_size(p.id::oid, 'vm') / s.size AS maps
  FROM unnest($1::text::int8[]) AS p(id), (SELECT current_setting('block_size')::int8 AS size) AS s
) AS h, LATERAL (
  SELECT string_agg(substring(r.page FROM 1 FOR {stamp}), ''::bytea ORDER BY r.n) AS stamps,
    string_agg(substring(r.page FROM {bits}), ''::bytea ORDER BY r.n) AS bits
  FROM (
    SELECT n, {page}(h.id::oid::regclass::text, 'vm', n) AS page FROM generate_series(0, h.maps - 1) AS n
  ) AS r
) AS m
WHERE h.blocks IS NOT NULL
"""

_STAMPS = """
SELECT h.id, (
  SELECT string_agg(substring(r.page FROM 1 FOR {stamp}), ''::bytea ORDER BY r.n) FROM (
    SELECT n, {page}(h.id::oid::regclass::text, 'main', n) AS page FROM generate_series(0, h.blocks - 1) AS n
  ) AS r
) AS stamps
FROM (
  SELECT p.id, pg_relation_size(p.id::oid) / current_setting('block_size')::int8 AS blocks
  FROM unnest($1::text::int8[]) AS p(id)
) AS h WHERE h.blocks IS NOT NULL
"""

# What a VACUUM leaves when it was let finish: counts of it, and in pg_class what it found. One that was not
# leaves nothing, so it counts that there was somebody who could have begun one: the server by itself, or a
# role that gets in and has the right. Superusers, which is us, are trusted to let it finish.
_VACUUMED = """
SELECT c.oid::int8 AS id
FROM unnest($1::text::int8[], $2::text::text[]) AS h(id, upkeep) JOIN pg_class c ON c.oid = h.id::oid,
  (SELECT d.*, current_setting('autovacuum')::bool
      OR age(d.datfrozenxid) > current_setting('autovacuum_freeze_max_age')::int8
      OR mxid_age(d.datminmxid) > current_setting('autovacuum_multixact_freeze_max_age')::int8 AS auto
    FROM pg_database d WHERE d.datname = current_database()) AS d
WHERE d.auto OR {upkeep} <> h.upkeep
  OR pg_stat_get_vacuum_count(c.oid) + pg_stat_get_autovacuum_count(c.oid) > 0
  OR EXISTS (
    SELECT FROM pg_roles r WHERE NOT r.rolsuper
      AND (r.rolname = d.datname OR r.rolcanlogin AND has_database_privilege(r.oid, d.oid, 'CONNECT'))
      AND (pg_has_role(r.oid, c.relowner, 'USAGE') OR pg_has_role(r.oid, d.datdba, 'USAGE') {maintain}))
"""
_MAINTAIN = "OR has_table_privilege(r.oid, c.oid, 'MAINTAIN')"

Range = tuple[int, int]  # first block, block after the last


class HeapMap(NamedTuple):
    """A heap's length and its visibility map.

    Attributes:
        blocks: pages of the heap.
        stamps: the position in the log of each page of the map.
        bits: of all pages of the map.
    """

    blocks: int
    stamps: tuple[bytes, ...]
    bits: bytes


class HeapMaps(NamedTuple):
    """Those of one database.

    Attributes:
        of: by oid of the heap.
        witness: the stamp of a page that nobody changes: the same in a fork and its baseline, unless one of
            them was copied page by page through the log, which gives each page a new one.
    """

    of: Mapping[int, HeapMap]
    witness: bytes


async def read_maps(look: Snapshot, oids: Sequence[int]) -> HeapMaps:
    """The maps of heaps, in one query. One that does not exist is left out."""
    assert look.reader is not None
    query = _MAPS.format(page=look.reader.page, stamp=_STAMP, bits=_HEADER + 1)
    rows = await look.connection.fetch(query, array(oids))
    return HeapMaps(
        of={
            row["id"]: HeapMap(blocks=row["blocks"], stamps=_split(row["stamps"]), bits=row["bits"] or b"")
            for row in rows
        },
        witness=rows[0]["witness"] if rows else b"",
    )


async def read_stamps(look: Snapshot, oids: Sequence[int]) -> dict[int, bytes]:
    """The stamps of all pages of heaps, one after another, by oid: 3 microseconds a page."""
    assert look.reader is not None
    query = _STAMPS.format(page=look.reader.page, stamp=_STAMP)
    return {row["id"]: row["stamps"] or b"" for row in await look.connection.fetch(query, array(oids))}


async def vacuumed(look: Snapshot, parts: Sequence[Part], upkeep: str, *, version_num: int) -> set[int]:
    """Oids of those parts, as the baseline has them, that a VACUUM may have been over in the fork.

    Args:
        look: at the fork.
        parts: of the baseline.
        upkeep: SQL of `Part.upkeep`.
        version_num: of the server.
    """
    query = _VACUUMED.format(upkeep=upkeep, maintain=_MAINTAIN if version_num >= _HAS_MAINTAIN else "")
    oids, kept = array(part.oid for part in parts), array(part.upkeep for part in parts)
    return {row["id"] for row in await look.connection.fetch(query, oids, kept)}


def are_bits_true(now: HeapMap, then: HeapMap) -> bool:
    """Whether no bit of the map was set since the fork was copied, as its stamps prove. False: not known."""
    before = then.stamps + (_NO_STAMP,) * (len(now.stamps) - len(then.stamps))
    return now.blocks >= then.blocks and all(
        stamp == old for stamp, old in zip(now.stamps, before, strict=False)
    )


def is_untouched(now: HeapMaps, then: HeapMaps, oid: int) -> bool:
    """Whether no page of a heap was written to, as far as its map tells."""
    if now.witness != then.witness or oid not in now.of or oid not in then.of:
        return False
    new, old = now.of[oid], then.of[oid]
    if new.blocks != old.blocks or not are_bits_true(new, old):
        return False
    return next(iter(written_pages(new)), None) is None


def written_pages(now: HeapMap) -> Iterable[int]:
    """The blocks that are not all-frozen, in order; those that the map does not reach are not."""
    marked = now.bits.translate(_NOT_FROZEN)
    at = marked.find(1)
    while at >= 0:
        byte = now.bits[at]
        for place in range(_BLOCKS_A_BYTE):
            block = at * _BLOCKS_A_BYTE + place
            if not byte >> (2 * place + 1) & 1 and block < now.blocks:
                yield block
        at = marked.find(1, at + 1)
    yield from range(len(marked) * _BLOCKS_A_BYTE, now.blocks)


def changed_pages(now: bytes, then: bytes) -> Iterable[int]:
    """The blocks whose stamps differ, in order; those that only one side has differ."""
    for low in range(0, max(len(now), len(then)), _STAMP * _RANGE_BLOCKS):
        if now[low : low + _STAMP * _RANGE_BLOCKS] != then[low : low + _STAMP * _RANGE_BLOCKS]:
            for at in range(low, min(low + _STAMP * _RANGE_BLOCKS, max(len(now), len(then))), _STAMP):
                if now[at : at + _STAMP] != then[at : at + _STAMP]:
                    yield at // _STAMP


def ranges_of(blocks: Iterable[int]) -> list[Range]:
    """Blocks in order, as ranges of neighbours."""
    ranges: list[Range] = []
    first = last = -1
    for block in blocks:
        if block != last or block - first >= _RANGE_BLOCKS:
            if last > first:
                ranges.append((first, last))
            first = block
        last = block + 1
    if last > first:
        ranges.append((first, last))
    return ranges


def whole(blocks: int) -> list[Range]:
    """All of a heap, as ranges."""
    return [(low, min(low + _RANGE_BLOCKS, blocks)) for low in range(0, blocks, _RANGE_BLOCKS)]


def _split(stamps: bytes) -> tuple[bytes, ...]:
    return tuple(stamps[at : at + _STAMP] for at in range(0, len(stamps), _STAMP))
