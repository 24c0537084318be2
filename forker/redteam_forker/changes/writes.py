"""Who wrote and who deleted which versions of rows, read from the pages that a fork changed.

A page keeps a row's older versions until somebody prunes them, each with the ids of the transactions that
made and ended it. So an update that was taken back is seen, and a deleted row names who deleted it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from redteam_forker.changes.scan import array, in_arms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker.changes.pairing import Op
    from redteam_forker.changes.scan import Epoch, Span
    from redteam_forker.changes.snapshot import Snapshot

__all__ = ["PAGES", "VERSIONS", "History", "read_history"]

# Beyond either, the writes of a collection are told from the rows that are left.
PAGES = 2_000
VERSIONS = 50_000

# Bits of a tuple's header, the same since 9.5.
_XMAX_EXCLUSIVE_LOCK, _XMAX_LOCK_ONLY = 0x0040, 0x0080
_XMAX_INVALID, _XMAX_IS_MULTI, _UPDATED = 0x0800, 0x1000, 0x2000
_KEYS_UPDATED = 0x2000  # in the second word of bits
_MOVED = b"\xff\xff\xff\xff\xff\xfd"  # in place of a successor: it is in another partition

_STATUS = """
SELECT xid, pg_xact_status(xid::text::xid8) = 'committed' AS committed FROM unnest($1::text::int8[]) AS xid
"""
# Those who only locked the row are in it too.
_UPDATERS = """
SELECT multi, m.xid
FROM unnest($1::text::int8[]) AS multi, LATERAL pg_get_multixact_members(multi::text::xid) AS m
WHERE m.mode IN ('nokeyupd', 'upd')
"""


class _Version(NamedTuple):
    """One version of a row: 64-bit ids of committed transactions since the fork began, None for any other."""

    made_by: int | None
    is_update: bool
    ended_by: int | None
    successor: bytes | None
    is_key_changed: bool


class History:
    """The versions in some pages.

    Attributes:
        written: by table, as numbered by the caller: versions by transaction and what it did.
    """

    def __init__(self) -> None:
        self.written: dict[int, Counter[tuple[int, Op]]] = {}
        self._versions: dict[int, dict[bytes, _Version]] = {}

    def add(self, table: int, part: int, place: bytes, version: _Version) -> None:
        """Take one version of a part of a table."""
        self._versions.setdefault(part, {})[place] = version
        written = self.written.setdefault(table, Counter())
        if version.made_by is not None:
            written[version.made_by, "update" if version.is_update else "insert"] += 1
        if version.ended_by is not None and version.successor is None:
            written[version.ended_by, "delete"] += 1

    def deleter(self, part: int, place: bytes, *, keyed: bool) -> int | None:
        """Who took a row of the baseline away; None: not known, because its versions were pruned.

        Args:
            part: oid of the part that it was in.
            place: where.
            keyed: the row is its key's: an update that left the key alone did not take it away.
        """
        versions = self._versions.get(part, {})
        version = versions.get(place)
        if version is None or version.made_by is not None:
            return None
        enders: list[tuple[int, bool]] = []
        while version.ended_by is not None:
            enders.append((version.ended_by, version.is_key_changed))
            if version.successor is None:
                return enders[-1 if keyed else 0][0]
            after = versions.get(version.successor)
            # The place may have been used again after what was there was pruned.
            if after is None or after.made_by != version.ended_by:
                return None if keyed else enders[0][0]
            version = after
        if not keyed:
            return enders[0][0] if enders else None
        return next((xid for xid, is_key_changed in enders if is_key_changed), None)


async def read_history(look: Snapshot, tables: Sequence[Sequence[Span]], epoch: Epoch) -> History | None:
    """The versions in the pages of each table; None: there are too many to look at."""
    assert look.reader is not None
    reader = look.reader
    spans = [(table, span) for table, some in enumerate(tables) for span in some if span.ranges]
    if sum(high - low for _, span in spans for low, high in span.ranges) > PAGES:
        return None
    arms = []
    for table, span in spans:
        blocks = ",".join(str(block) for low, high in span.ranges for block in range(low, high))
        arms.append(
            f"SELECT {table} AS tab, {span.now.oid}::int8 AS part, b.block, i.lp, i.t_xmin, i.t_xmax, "
            f"i.t_infomask, i.t_infomask2, tidsend(i.t_ctid) AS successor FROM (SELECT n AS block "
            f"FROM unnest('{{{blocks}}}'::int8[]) AS n, "
            # A VACUUM may have cut the heap's end off.
            f"(SELECT pg_relation_size({span.now.oid}) / current_setting('block_size')::int8 AS all_) AS h "
            f"WHERE n < h.all_ OFFSET 0) AS b, LATERAL "
            f"{reader.items}({reader.page}({span.now.oid}::oid::regclass::text, 'main', b.block)) AS i "
            f"WHERE i.lp_flags = 1 AND ({epoch.is_new('i.t_xmin')} "
            f"OR i.t_infomask & {_XMAX_INVALID | _XMAX_LOCK_ONLY} = 0)"
        )
    rows: list[Any] = []
    for query in in_arms(arms):
        rows += await look.connection.fetch(f"{query} LIMIT {VERSIONS + 1 - len(rows)}")
        if len(rows) > VERSIONS:
            return None
    return await _told(look, rows, epoch) if rows else History()


async def _told(look: Snapshot, rows: Sequence[Any], epoch: Epoch) -> History:
    items = [_Item(*row.values()) for row in rows]
    multis = {item.xmax for item in items if item.is_ended and item.mask & _XMAX_IS_MULTI}
    updaters: dict[int, int] = {}
    if multis:
        updaters = {row["multi"]: row["xid"] for row in await look.connection.fetch(_UPDATERS, array(multis))}
    enders = {
        item: epoch.full_xid(updaters.get(item.xmax, 0) if item.mask & _XMAX_IS_MULTI else item.xmax)
        for item in items
        if item.is_ended
    }
    makers = {item: epoch.full_xid(item.xmin) for item in items}
    xids = {xid for xid in (*enders.values(), *makers.values()) if xid is not None}
    committed = {row["xid"] for row in await look.connection.fetch(_STATUS, array(xids)) if row["committed"]}
    history = History()
    for item in items:
        maker, ender = makers[item], enders.get(item)
        if maker is not None and maker not in committed:
            continue
        place = item.block.to_bytes(4, "big") + item.line.to_bytes(2, "big")
        history.add(
            item.table,
            item.part,
            place,
            _Version(
                made_by=maker,
                is_update=bool(item.mask & _UPDATED),
                ended_by=ender if ender in committed else None,
                successor=None if item.successor in (place, _MOVED) else item.successor,
                is_key_changed=bool(item.mask2 & _KEYS_UPDATED),
            ),
        )
    return history


class _Item(NamedTuple):
    table: int
    part: int
    block: int
    line: int
    xmin: int
    xmax: int
    mask: int
    mask2: int
    successor: bytes

    @property
    def is_ended(self) -> bool:
        """Whether somebody updated or deleted it, or tried to; else it was only locked, if that."""
        locked = self.mask & (_XMAX_IS_MULTI | _XMAX_EXCLUSIVE_LOCK) == _XMAX_EXCLUSIVE_LOCK
        return not self.mask & (_XMAX_INVALID | _XMAX_LOCK_ONLY) and not locked and self.xmax != 0
