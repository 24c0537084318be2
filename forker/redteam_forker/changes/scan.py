"""Finds the rows of one table that may differ between baseline and fork.

Two ways. `written_rows` reads what the fork's transactions wrote, by xmin, and `vanished_rows` the baseline's
rows that are no longer in their place, by ctid: rows of a clone do not move unless the table's file is new.
`all_rows` reads both sides whole, sorted by a hash of each row, and holds on to what only one side has (P76).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.pairing import Image
from redteam_forker.changes.values import parse_record
from redteam_forker.names import quote_ident, quote_literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import asyncpg

    from redteam_forker.changes.catalog import Part, Table
    from redteam_forker.changes.pairing import Shape

__all__ = ["Counts", "Epoch", "all_rows", "count_rows", "rows_by_key", "vanished_rows", "written_rows"]

_ARMS = 100
_PREFETCH = 1000
_BLOCKS = 16384  # 128 MB of table: at most a few MB of row places in memory
_TIDS = 20_000
_TID_BYTES = 6
# Key types whose equality needs no operator of an extension or of the seed.
_PLAIN = re.compile(r"(?:smallint|integer|bigint|uuid|date|text|character varying(?:\(\d+\))?)\Z")
_XID_SPACE = 1 << 32


class Epoch:
    """The fork's time: its first transaction id, and how old that is in the current transaction.

    A row that was only touched has a new xmin too, so it finds candidates only (P65, P66). It has 32 bits,
    and `age()` compares them around the circle, which is right for two billion transactions.
    """

    def __init__(self, *, watermark: int, window: int) -> None:
        self.watermark = watermark
        # Zero is the age of a transaction that has not begun; below it there is only what wrapped around.
        self.window = window

    @property
    def is_new(self) -> str:
        """SQL: the row was written since the fork began."""
        return f"pg_catalog.age(xmin) BETWEEN 0 AND {self.window}"

    def full_xid(self, xmin: int) -> int | None:
        """The 64-bit id for a row's xmin; None for a row that is older than the fork."""
        since = (xmin - self.watermark) % _XID_SPACE
        return self.watermark + since if since <= self.window else None


class Counts:
    """Rows of one part: those written since the fork began, and all."""

    __slots__ = ("all", "new")

    def __init__(self, *, new: int, all_: int) -> None:
        self.new = new
        self.all = all_


async def count_rows(
    connection: asyncpg.Connection, sources: Sequence[str], epoch: Epoch | None
) -> list[Counts]:
    """Count in one query per hundred sources; `epoch` None counts all only."""
    new = f"count(*) FILTER (WHERE {epoch.is_new})" if epoch else "0"
    counts: list[Counts] = []
    for start in range(0, len(sources), _ARMS):
        arms = [
            f"SELECT {place} AS place, {new} AS new, count(*) AS all_ FROM {source}"
            for place, source in enumerate(sources[start : start + _ARMS])
        ]
        rows = await connection.fetch(" UNION ALL ".join(arms) + " ORDER BY place")
        counts.extend(Counts(new=row["new"], all_=row["all_"]) for row in rows)
    return counts


async def written_rows(
    fork: asyncpg.Connection, table: Table, touched: Sequence[tuple[Part, Counts]], epoch: Epoch
) -> list[Image]:
    """The fork's rows that were written since it began."""
    images = []
    for part, counts in touched:
        if counts.new:
            query = f"SELECT xmin, {table.row} AS image FROM {part.source} WHERE {epoch.is_new}"
            images += [
                _image(table, row["image"], epoch.full_xid(row["xmin"])) for row in await fork.fetch(query)
            ]
    return images


async def vanished_rows(
    baseline: asyncpg.Connection,
    fork: asyncpg.Connection,
    table: Table,
    parts: tuple[Part, Part],
    epoch: Epoch,
) -> list[Image]:
    """The baseline's rows whose place no longer holds an old row in the fork: deleted there, or updated.

    Args:
        baseline: its session.
        fork: its session.
        table: as the baseline has it.
        parts: one part of it in the baseline, and the same in the fork, where its name may be another.
        epoch: of the fork.
    """
    part, now = parts
    blocks = await baseline.fetchval(
        "SELECT pg_relation_size($1::oid::regclass) / current_setting('block_size')::int8", part.oid
    )
    images: list[Image] = []
    for low in range(0, blocks, _BLOCKS):
        span = f"ctid >= '({low},0)'::tid AND ctid < '({low + _BLOCKS},0)'::tid"
        packed = "coalesce(string_agg(tidsend(ctid), ''::bytea), ''::bytea)"
        before: bytes = await baseline.fetchval(f"SELECT {packed} FROM {part.source} WHERE {span}")
        after: bytes = await fork.fetchval(
            f"SELECT {packed} FROM {now.source} WHERE {span} AND NOT ({epoch.is_new})"
        )
        if before == after:
            continue
        gone = _missing(before, after)
        for start in range(0, len(gone), _TIDS):
            query = f"SELECT {table.row} AS image FROM {part.source} WHERE ctid = ANY($1::tid[])"
            tids = [
                (int.from_bytes(tid[:4], "big"), int.from_bytes(tid[4:], "big"))
                for tid in gone[start : start + _TIDS]
            ]
            images += [_image(table, row["image"]) for row in await baseline.fetch(query, tids)]
    return images


async def rows_by_key(
    baseline: asyncpg.Connection, table: Table, key: Sequence[int], news: Sequence[Image], missing: int
) -> list[Image] | None:
    """The baseline's rows under the keys of the fork's new rows, if they are all that vanished.

    A new row's key cannot be held by an old row that is still in place, so each one found has vanished. When
    their number is the number missing, no place has to be looked at.
    """
    columns = [(place, column) for place, column in enumerate(table.columns) if column.number in key]
    if not columns or missing > len(news) or not all(_PLAIN.match(column.type) for _, column in columns):
        return None
    cells = [[new.cells[place] for new in news] for place, _ in columns]
    wanted = ", ".join(f"${number}::text[]" for number in range(1, len(columns) + 1))
    names = ", ".join(quote_ident(column.name) for _, column in columns)
    values = ", ".join(f"wanted.c{number}::{column.type}" for number, (_, column) in enumerate(columns))
    listed = ", ".join(f"c{number}" for number in range(len(columns)))
    images: list[Image] = []
    for part in table.parts:
        query = (
            f"SELECT {table.row} AS image FROM {part.source} "
            f"WHERE ({names}) IN (SELECT {values} FROM unnest({wanted}) AS wanted({listed}))"
        )
        images += [_image(table, row["image"]) for row in await baseline.fetch(query, *cells)]
    return images if len(images) == missing else None


def _missing(before: bytes, after: bytes) -> list[bytes]:
    """Places in `before` and not in `after`; both are in order, so most of both is a common head and tail."""
    head, tail = _common(before, after, from_end=False), 0
    before, after = before[head:], after[head:]
    tail = _common(before, after, from_end=True)
    return sorted(_tids(before[: len(before) - tail]) - _tids(after[: len(after) - tail]))


def _common(one: bytes, other: bytes, *, from_end: bool) -> int:
    """How many bytes of whole places both have in common at one end, by bisection."""
    low, high = 0, min(len(one), len(other)) // _TID_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        size = middle * _TID_BYTES
        same = (
            one[len(one) - size :] == other[len(other) - size :] if from_end else one[:size] == other[:size]
        )
        low, high = (middle, high) if same else (low, middle - 1)
    return low * _TID_BYTES


def _tids(packed: bytes) -> set[bytes]:
    return {packed[at : at + _TID_BYTES] for at in range(0, len(packed), _TID_BYTES)}


def _image(table: Table, text: str, xid: int | None = None) -> Image:
    return Image(parse_record(text)[: len(table.columns)], xid)


async def all_rows(
    baseline: asyncpg.Connection | None,
    fork: asyncpg.Connection | None,
    tables: tuple[Table | None, Table | None],
    shape: Shape,
    epoch: Epoch,
) -> tuple[list[Image], list[Image]]:
    """Rows that only one side has, by their text; streamed, so that memory holds only what differs.

    Args:
        baseline: where the old rows are; None with the table, if there was none.
        fork: where the new rows are; None with the table, if it was dropped.
        tables: the table on both sides.
        shape: which columns are compared.
        epoch: of the fork.
    """
    before, after = tables
    old_terms = [
        _constant(item.missing) if item.old_at is None else quote_ident(shape.old[item.old_at].name)
        for item in shape.compared
    ]
    new_terms = [quote_ident(item.name) for item in shape.compared]
    olds = _Stream(_sorted(baseline, before, old_terms))
    news = _Stream(_sorted(fork, after, new_terms))
    only_old: list[Image] = []
    only_new: list[Image] = []
    old, new = await olds.next(), await news.next()
    while old is not None or new is not None:
        if new is None or (old is not None and old["hash"] < new["hash"]):
            assert old is not None
            assert before is not None
            only_old.append(_image(before, old["image"]))
            old = await olds.next()
        elif old is None or new["hash"] < old["hash"]:
            assert after is not None
            only_new.append(_image(after, new["image"], epoch.full_xid(new["writer"])))
            new = await news.next()
        else:
            old, new = await olds.next(), await news.next()
    return only_old, only_new


def _constant(text: str | None) -> str:
    return "NULL::text" if text is None else f"{quote_literal(text)}::text"


class _Stream:
    """Rows one by one, None at the end."""

    def __init__(self, rows: AsyncIterator[Any]) -> None:
        self._rows = rows

    async def next(self) -> Any:
        return await anext(self._rows, None)


async def _sorted(
    connection: asyncpg.Connection | None, table: Table | None, terms: Sequence[str]
) -> AsyncIterator[Any]:
    if connection is None or table is None or not table.parts:
        return
    arms = " UNION ALL ".join(
        f"SELECT sha256(textsend(ROW({', '.join(terms)})::text)) AS hash, {table.row} AS image, "
        f"xmin AS writer FROM {part.source}"
        for part in table.parts
    )
    async for row in connection.cursor(f"SELECT * FROM ({arms}) AS rows ORDER BY hash", prefetch=_PREFETCH):
        yield row
