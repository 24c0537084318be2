"""When a dataset is at home, and which of its columns are of that time, found in its dates."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.words import kind_of, words

if TYPE_CHECKING:
    from collections.abc import Collection

    from redteam_harness.drafting.schema import Column, Schema, Table

__all__ = ["Times", "read_times"]

_MOVABLE = ("date", "timestamp without time zone", "timestamp with time zone")
_WRITTEN = frozenset(
    (
        "added",
        "changed",
        "created",
        "entered",
        "inserted",
        "joined",
        "modified",
        "registered",
        "update",
        "updated",
        "written",
    )
)
_RECENT = dt.timedelta(days=730)
_FAR = dt.timedelta(days=3650)
_PLANNED = dt.timedelta(days=90)
_AT_ONCE = dt.timedelta(hours=1)
_MAX_TABLES = 300
_TABLE_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What dates say.

    Attributes:
        anchor: the newest day on which something was written; None where there are no dates.
        moves: columns that hold times of those years, as `seed.moves` wants them.
    """

    anchor: dt.date | None
    moves: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    table: Table
    column: Column
    oldest: dt.datetime
    newest: dt.datetime


async def read_times(
    connection: asyncpg.Connection, schema: Schema, *, near: Collection[int], today: dt.date
) -> Times:
    """Read the newest and oldest value of each date column, but of births and of what the load itself set.

    Args:
        connection: to the baseline.
        schema: of it.
        near: oids of the tables of people and of what is theirs; when a row of others was written does not
            matter.
        today: nothing later is taken for the past.
    """
    spans: list[_Span] = []
    filled = [table for table in schema.tables.values() if table.rows]
    for table in sorted(filled, key=lambda one: one.rows)[:_MAX_TABLES]:
        spans += await _spans(connection, table)
    spans = [span for span in spans if span.table.oid in near or not _says_written(span.column)]
    past = [span.newest for span in spans if span.newest.date() <= today]
    if not past:
        return Times(anchor=None, moves=())
    # What was written last tells the day better than what was planned; unless it was written long before.
    written = [span.newest for span in spans if span.newest in past and _says_written(span.column)]
    anchor = max(written) if written and max(past) - max(written) < _PLANNED else max(past)
    bound = {
        (table.oid, name)
        for table in schema.tables.values()
        for key in table.foreign_keys
        for name in key.columns
    }
    moves = [
        f"{span.table.rule_name}.{span.column.name}"
        for span in sorted(spans, key=lambda one: one.table.rule_name)
        if anchor - _RECENT <= span.newest <= anchor + _FAR
        and (span.table.oid, span.column.name) not in bound
    ]
    return Times(anchor=anchor.date() if moves else None, moves=tuple(moves))


async def _spans(connection: asyncpg.Connection, table: Table) -> list[_Span]:
    columns = [
        column
        for column in table.columns
        if column.base in _MOVABLE
        and not column.generated
        and kind_of(column.name, column.base) != "birth"
        and "." not in table.name + column.name
    ]
    if not columns:
        return []
    ends = ", ".join(
        f"{end}({name}::timestamp) FILTER (WHERE isfinite({name}) AND {name}::date < '9999-01-01' "
        f"AND {name}::date > '0100-01-01')"
        for name in (ident(column.name) for column in columns)
        for end in ("min", "max")
    )
    try:
        async with connection.transaction(readonly=True):
            await connection.execute(f"SET LOCAL statement_timeout = {_TABLE_MS}")
            row = await connection.fetchrow(f"SELECT {ends} FROM {table.sql}")
    except asyncpg.QueryCanceledError:
        return []  # too large to ask; its columns can be added by hand
    found = []
    for place, column in enumerate(columns):
        oldest, newest = row[2 * place], row[2 * place + 1]
        if newest is None or (_is_now(column) and newest - oldest < _AT_ONCE):
            continue
        found.append(_Span(table=table, column=column, oldest=oldest, newest=newest))
    return found


def _says_written(column: Column) -> bool:
    return _is_now(column) or not _WRITTEN.isdisjoint(words(column.name))


def _is_now(column: Column) -> bool:
    default = (column.default or "").lower()
    return "now()" in default or "current_" in default or "timestamp()" in default
