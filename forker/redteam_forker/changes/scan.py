"""Reads from the heaps of a baseline and of its fork the rows that may differ.

Rows of a clone do not move unless the table's file is new. So what the fork wrote is found by xmin, and what
is gone from the baseline by the places that no longer hold an old row; both within the pages that can have
changed. A table whose rows may have moved is read whole on both sides. Where rows are many they are streamed,
in the binary order of `Shape.sort_old` and `sort_new` (P76).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redteam_forker.changes.pairing import Image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    import asyncpg

    from redteam_forker.changes.catalog import Part, Table
    from redteam_forker.changes.pages import Range

__all__ = [
    "ARMS",
    "Counts",
    "Epoch",
    "Places",
    "Span",
    "all_rows",
    "array",
    "count_pages",
    "count_rows",
    "find_places",
    "gone_rows",
    "in_arms",
    "new_rows",
    "stream_gone",
    "stream_new",
]

ARMS = 100
_BATCH = 1000
_RANGES = 200  # of one query: 12,800 pages at most, 6 bytes a row and side
_PLACE_BYTES = 6  # as Postgres sends one: block and line
_XID_SPACE = 1 << 32
# So many places can be named in a query; where more rows are gone their pages are read whole.
_NAMED_PLACES = 1_000_000


class Epoch:
    """The fork's time: its first transaction id, and how old that is in the current transaction.

    A row that was only touched has a new xmin too, so it finds candidates only (P65, P66). It has 32 bits,
    and `age()` compares them around the circle, which is right for two billion transactions. Freezing a row
    keeps its xmin.
    """

    def __init__(self, *, watermark: int, window: int) -> None:
        self.watermark = watermark
        # Zero is the age of a transaction that has not begun; below it there is only what wrapped around.
        self.window = window

    def is_new(self, xid: str = "xmin") -> str:
        """SQL: this xid is of a transaction since the fork began."""
        # A negative age is that of a row that was frozen two billion transactions ago: one candidate more.
        return f"age({xid}) <= {self.window}"

    def full_xid(self, xid: int) -> int | None:
        """The 64-bit id for one of 32 bits; None for one that is older than the fork."""
        since = (xid - self.watermark) % _XID_SPACE
        return self.watermark + since if since <= self.window else None


class Counts(NamedTuple):
    """Rows of one source: those written since the fork began, and all."""

    new: int
    all: int


class Span(NamedTuple):
    """Pages of one part of a table, which may have another name in the fork."""

    then: Part
    now: Part
    ranges: Sequence[Range]


class Places(NamedTuple):
    """What is in the pages of one span.

    Attributes:
        new: how many rows of the fork were written since it began.
        gone: places, as Postgres sends them and one after another, of the baseline's rows that the fork no
            longer has as they were.
    """

    new: int
    gone: bytes

    @property
    def candidates(self) -> int:
        """How many rows of both sides that is."""
        return self.new + len(self.gone) // _PLACE_BYTES


def array(values: Iterable[int | str]) -> str:
    """An array as Postgres writes it, for a parameter of type text.

    Of an array parameter the driver has to look up the type in every new session, which costs more than all
    else that a collection does.
    """
    return "{" + ",".join(f'"{value}"' for value in values) + "}"


def in_arms(arms: Sequence[str]) -> Iterator[str]:
    """Queries of at most a hundred arms each."""
    for start in range(0, len(arms), ARMS):
        yield " UNION ALL ".join(arms[start : start + ARMS])


async def count_rows(
    connection: asyncpg.Connection, sources: Sequence[str], epoch: Epoch | None, *, own: int | None = None
) -> list[Counts]:
    """Count in one query per hundred sources; `epoch` None counts all only.

    What the transaction `own`, that which looks, made in catalogs is not counted.
    """
    new = f"count(*) FILTER (WHERE {epoch.is_new()})" if epoch else "0"
    known = "true" if own is None else f"xmin <> '{own % _XID_SPACE}'::xid"
    arms = [
        f"SELECT {place} AS place, {new} AS new, count(*) AS all_ FROM {source} WHERE {known}"
        for place, source in enumerate(sources)
    ]
    rows = [row for query in in_arms(arms) for row in await connection.fetch(query)]
    return [Counts(row["new"], row["all_"]) for row in sorted(rows, key=lambda row: int(row["place"]))]


async def count_pages(connection: asyncpg.Connection, oids: Sequence[int]) -> dict[int, int]:
    """How many pages each heap has."""
    query = (
        "SELECT id, pg_relation_size(id::oid) / current_setting('block_size')::int8 AS blocks "
        "FROM unnest($1::text::int8[]) AS id"
    )
    return {row["id"]: row["blocks"] for row in await connection.fetch(query, array(oids))}


async def find_places(
    baseline: asyncpg.Connection, fork: asyncpg.Connection, spans: Sequence[Span], epoch: Epoch
) -> list[Places]:
    """Which rows to read of each span."""
    news = [0] * len(spans)
    gone = [bytearray() for _ in spans]
    for chunk in _chunks(spans):
        kept: dict[tuple[int, int], bytes] = {}
        old = f"NOT ({epoch.is_new()})"
        for row in await _fetch_places(fork, [(at, spans[at].now, some) for at, some in chunk], old):
            news[row["span"]] += row["others"]
            kept[row["span"], row["n"]] = row["places"]
        for row in await _fetch_places(baseline, [(at, spans[at].then, some) for at, some in chunk], "true"):
            after = kept[row["span"], row["n"]]
            if row["places"] != after:
                still = set(_split(after))
                gone[row["span"]] += b"".join(place for place in _split(row["places"]) if place not in still)
    return [Places(new, bytes(places)) for new, places in zip(news, gone, strict=True)]


def _chunks(spans: Sequence[Span]) -> Iterator[list[tuple[int, Sequence[Range]]]]:
    """Numbers of spans with some of their ranges, not too many at once."""
    chunk: list[tuple[int, Sequence[Range]]] = []
    room = _RANGES
    for at, span in enumerate(spans):
        for start in range(0, len(span.ranges), _RANGES):
            some = span.ranges[start : start + _RANGES]
            if chunk and (len(some) > room or len(chunk) == ARMS):
                yield chunk
                chunk, room = [], _RANGES
            chunk.append((at, some))
            room -= len(some)
    if chunk:
        yield chunk


async def _fetch_places(
    connection: asyncpg.Connection, parts: Sequence[tuple[int, Part, Sequence[Range]]], condition: str
) -> list[Any]:
    """Of each range: the places of rows that meet the condition, and how many others there are."""
    inner = (
        f"SELECT count(*) FILTER (WHERE NOT ({condition})) AS others, "
        f"coalesce(string_agg(tidsend(ctid), ''::bytea) FILTER (WHERE {condition}), ''::bytea) AS places"
    )
    arms = [
        f"SELECT {at} AS span, r.n, p.others, p.places FROM {_pages(part, ranges, inner, aggregate=True)}"
        for at, part, ranges in parts
    ]
    rows: list[Any] = await connection.fetch(" UNION ALL ".join(arms))
    return rows


def _pages(
    part: Part, ranges: Sequence[Range], select: str, *, where: str = "true", aggregate: bool = False
) -> str:
    """SQL of a FROM item: `select` over pages of a part, as p; r.n numbers the ranges by their first block.

    Each range is a scan of its pages and of no others, which a condition of several ranges would not be.
    """
    lows = ",".join(f'"({low},0)"' for low, _ in ranges)
    highs = ",".join(f'"({high},0)"' for _, high in ranges)
    first = ",".join(str(low) for low, _ in ranges)
    return (
        f"unnest('{{{lows}}}'::tid[], '{{{highs}}}'::tid[], '{{{first}}}'::int8[]) AS r(low, high, n), "
        f"LATERAL ({select} FROM {part.source} WHERE ctid >= r.low AND ctid < r.high AND ({where})"
        f"{'' if aggregate else ' OFFSET 0'}) AS p"
    )


def _split(places: bytes) -> Iterator[bytes]:
    return (places[at : at + _PLACE_BYTES] for at in range(0, len(places), _PLACE_BYTES))


async def new_rows(
    fork: asyncpg.Connection, wanted: Sequence[tuple[Table, str, Sequence[Span]]], epoch: Epoch
) -> list[list[Image]]:
    """Of each table, with its sort expression and spans: the rows written since the fork began."""
    arms = [
        f"SELECT {at} AS place, p.* FROM {_new(table, sort, span, epoch)}"
        for at, (table, sort, spans) in enumerate(wanted)
        for span in spans
    ]
    found: list[list[Image]] = [[] for _ in wanted]
    for query in in_arms(arms):
        for row in await fork.fetch(query):
            found[row["place"]].append(Image(row["sort"], row["image"], epoch.full_xid(row["writer"])))
    return found


async def gone_rows(
    baseline: asyncpg.Connection, wanted: Sequence[tuple[Table, str, Sequence[tuple[Part, bytes]]]]
) -> list[list[tuple[int, bytes, Image]]]:
    """Of each table, as the baseline has it: the rows at places, with the part's oid and the place."""
    arms = [
        f"SELECT {at} AS place, {part.oid}::int8 AS part, p.* FROM ({_at(table, sort, part, places)}) AS p"
        for at, (table, sort, parts) in enumerate(wanted)
        for part, places in parts
    ]
    found: list[list[tuple[int, bytes, Image]]] = [[] for _ in wanted]
    for query in in_arms(arms):
        for row in await baseline.fetch(query):
            found[row["place"]].append((row["part"], row["at"], Image(row["sort"], row["image"])))
    return found


def _new(table: Table, sort: str, span: Span, epoch: Epoch) -> str:
    select = f"SELECT xmin AS writer, {sort} AS sort, {table.row} AS image"
    return _pages(span.now, span.ranges, select, where=epoch.is_new())


def _at(table: Table, sort: str, part: Part, places: bytes) -> str:
    return (
        f"SELECT tidsend(ctid) AS at, {sort} AS sort, {table.row} AS image FROM {part.source} "
        f"WHERE ctid = ANY ('{{{_listed(places)}}}'::tid[])"
    )


def _listed(places: bytes) -> str:
    return ",".join(
        f'"({int.from_bytes(place[:4], "big")},{int.from_bytes(place[4:], "big")})"'
        for place in _split(places)
    )


async def stream_new(
    fork: asyncpg.Connection, table: Table, sort: str, spans: Sequence[Span], epoch: Epoch
) -> AsyncIterator[list[Image]]:
    """The rows of one table that were written since the fork began, in order."""
    arms = " UNION ALL ".join(
        f"SELECT p.* FROM {_new(table, sort, span, epoch)}" for span in spans if span.ranges
    )
    if arms:
        async for rows in _batches(fork, f"SELECT * FROM ({arms}) AS rows ORDER BY sort"):
            yield [Image(row["sort"], row["image"], epoch.full_xid(row["writer"])) for row in rows]


async def stream_gone(
    baseline: asyncpg.Connection, table: Table, sort: str, parts: Sequence[tuple[Span, bytes]]
) -> AsyncIterator[list[tuple[int, bytes, Image]]]:
    """The rows of one table of the baseline at places, in order, with the part's oid and the place."""
    parts = [(span, places) for span, places in parts if places]
    if not parts:
        return
    by_name = sum(len(places) for _, places in parts) <= _NAMED_PLACES * _PLACE_BYTES
    select = f"SELECT tidsend(ctid) AS at, {sort} AS sort, {table.row} AS image"
    arms = [
        f"SELECT {span.then.oid}::int8 AS part, p.* FROM "
        + (
            f"({_at(table, sort, span.then, places)}) AS p"
            if by_name
            else _pages(span.then, span.ranges, select)
        )
        for span, places in parts
    ]
    lines = {} if by_name else {span.then.oid: _by_page(places) for span, places in parts}
    async for rows in _batches(baseline, f"SELECT * FROM ({' UNION ALL '.join(arms)}) AS rows ORDER BY sort"):
        yield [
            (row["part"], row["at"], Image(row["sort"], row["image"]))
            for row in rows
            if by_name or _is_in(lines[row["part"]], row["at"])
        ]


def _by_page(places: bytes) -> Mapping[bytes, int]:
    """A bit for each line of each page: a million places in a few megabytes."""
    lines: dict[bytes, int] = {}
    for place in _split(places):
        lines[place[:4]] = lines.get(place[:4], 0) | 1 << int.from_bytes(place[4:], "big")
    return lines


def _is_in(lines: Mapping[bytes, int], place: bytes) -> bool:
    return bool(lines.get(place[:4], 0) >> int.from_bytes(place[4:], "big") & 1)


async def all_rows(
    connection: asyncpg.Connection, table: Table, sort: str, epoch: Epoch | None = None
) -> AsyncIterator[list[Image]]:
    """Every row of a table, in order; with `epoch`, each with its writer."""
    arms = " UNION ALL ".join(
        f"SELECT xmin AS writer, {sort} AS sort, {table.row} AS image FROM {part.source}"
        for part in table.parts
    )
    if arms:
        async for rows in _batches(connection, f"SELECT * FROM ({arms}) AS rows ORDER BY sort"):
            yield [
                Image(row["sort"], row["image"], epoch.full_xid(row["writer"]) if epoch else None)
                for row in rows
            ]


async def _batches(connection: asyncpg.Connection, query: str) -> AsyncIterator[list[Any]]:
    cursor = await connection.cursor(query)
    while rows := await cursor.fetch(_BATCH):
        yield rows
