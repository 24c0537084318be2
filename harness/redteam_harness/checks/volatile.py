"""Columns whose value changes whenever their row is touched, and that the suite has no policy for.

`updated_at` is the best known. A rule that lets `status` change must list it as well, or a policy says once
that it may take any new value. The judgement rests on what the database does: update triggers first, then
defaults; a name alone is the last resort, and the finding says so.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.checks.finding import Finding
from redteam_harness.checks.sources import assignments, moving_functions, moving_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import asyncpg

    from redteam_harness.checks.finding import Subject

__all__ = ["Column", "Volatile", "check_volatile", "read_volatile", "volatile_columns"]

_OWN = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'"

_COLUMNS = f"""
SELECT c.oid AS table_oid, n.nspname::text AS schema, c.relname::text AS table, a.attname::text AS column,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       CASE WHEN a.attgenerated = '' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END AS "default"
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND {_OWN}
ORDER BY n.nspname, c.relname, a.attnum
"""

# Row triggers before an update that are on: bits 1, 2 and 16 of tgtype. Those of partitions are copies.
_TRIGGERS = """
SELECT coalesce(pg_catalog.pg_partition_root(t.tgrelid)::oid, t.tgrelid) AS table_oid,
       t.tgargs AS arguments, p.proname::text AS function,
       CASE WHEN l.lanname = 'plpgsql' THEN pg_catalog.pg_get_functiondef(p.oid) END AS definition
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND t.tgenabled IN ('O', 'A') AND t.tgtype & 19 = 19
ORDER BY t.tgname
"""

_FUNCTIONS = f"""
SELECT p.proname::text AS name,
       string_agg(coalesce(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc), E';\\n') AS source
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE l.lanname IN ('sql', 'plpgsql') AND {_OWN}
GROUP BY p.proname
"""

_TIMES = ("timestamp", "date", "time")
_WHOLE = ("smallint", "integer", "bigint", "numeric")
_TOUCHED = frozenset({"changed", "lastmod", "modified", "mtime", "touched", "update", "updated", "upd"})
_VERSIONS = frozenset({"lock_version", "optlock", "row_version", "rowversion", "version"})
_MAX_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; `table` as rules write it."""

    table: str
    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Volatile:
    """A column whose values move by themselves.

    Attributes:
        column: which.
        why: what shows it.
        on_update: whether an update of its row moves it; otherwise only adding one does.
    """

    column: Column
    why: str
    on_update: bool


async def check_volatile(subject: Subject) -> list[Finding]:
    """Suggest policies for columns that move with every update and that have none."""
    found: dict[Column, Volatile] = {}
    every: dict[Column, None] = {}
    for template in subject.distinct_templates:
        connection = await subject.server.connect(template.baseline)
        try:
            columns, volatile = await read_volatile(connection)
        finally:
            await connection.close()
        every |= dict.fromkeys(columns)
        found |= {one.column: one for one in volatile}
    compare = subject.suite.spec.compare
    open_ones = [column for column in every if compare.of(column.table, column.name, column.type) is None]
    moving = [found[column] for column in open_ones if column in found and found[column].on_update]
    added = [found[column] for column in open_ones if column in found and not found[column].on_update]
    place = subject.suite.document.where(("compare", "columns"))
    return [*_suggestion(moving, open_ones, place, has_compare=bool(compare)), *_note(added, place)]


async def read_volatile(connection: asyncpg.Connection) -> tuple[list[Column], list[Volatile]]:
    """All columns of a database's tables, and those whose values differ from run to run, and why."""
    columns = await connection.fetch(_COLUMNS)
    triggers = await connection.fetch(_TRIGGERS)
    functions = {row["name"]: row["source"] for row in await connection.fetch(_FUNCTIONS)}
    volatile = volatile_columns(columns, triggers, functions)
    return [_column(row) for row in columns], volatile


def volatile_columns(
    columns: Sequence[Mapping[str, Any]],
    triggers: Sequence[Mapping[str, Any]],
    functions: Mapping[str, str],
) -> list[Volatile]:
    """Judge every column by what the database does to it. Pure.

    Args:
        columns: `table_oid`, `schema`, `table`, `column`, `type` and `default` of each.
        triggers: `table_oid`, `arguments`, `function` and `definition` (of one in PL/pgSQL) of
            each row trigger before an update.
        functions: source of each function in SQL or PL/pgSQL, by name.
    """
    own = moving_functions(functions)
    set_by: dict[tuple[int, str], str] = {}
    for trigger in triggers:
        for name, reason in _set_by(trigger, own):
            set_by.setdefault((trigger["table_oid"], name), reason)
    found: list[Volatile] = []
    for row in columns:
        column = _column(row)
        why = set_by.get((row["table_oid"], column.name))
        default = moving_part(row["default"], own) if row["default"] else None
        named = _says_touched(column)
        if why is None and named and default is not None:
            why = f"its default is {default}, and by its name the application keeps it current"
        elif why is None and named:
            why = "by its name only: no trigger and no default shows it"
        if why is not None:
            found.append(Volatile(column=column, why=why, on_update=True))
        elif default is not None and not default.startswith("nextval"):
            found.append(Volatile(column=column, why=f"default {default}", on_update=False))
    return found


def _column(row: Mapping[str, Any]) -> Column:
    table = row["table"] if row["schema"] == "public" else f"{row['schema']}.{row['table']}"
    return Column(table=table, name=row["column"], type=row["type"])


def _set_by(trigger: Mapping[str, Any], own: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The columns that a trigger moves, and in what way."""
    who = f"trigger function {trigger['function']}()"
    if trigger["function"] == "moddatetime":  # of the contrib module spi, written in C
        column = bytes(trigger["arguments"]).split(b"\0")[0].decode()
        yield column, f"{who} sets it to the time"
    for one in assignments(trigger["definition"] or ""):
        part = moving_part(one.expression, own)
        if part is not None:
            yield one.column, f"{who} sets it to {part}"
        elif one.counts_up:
            yield one.column, f"{who} counts it up"


def _says_touched(column: Column) -> bool:
    """Whether the name is that of a column that tells when, or how often, its row was touched."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name).lower()
    if column.type.startswith(_TIMES):
        return not _TOUCHED.isdisjoint(spaced.split("_"))
    return column.type.startswith(_WHOLE) and spaced in _VERSIONS


def _suggestion(
    moving: Sequence[Volatile], every: Sequence[Column], place: str, *, has_compare: bool
) -> list[Finding]:
    if not moving:
        return []
    tables_of: dict[str, list[str]] = defaultdict(list)
    for column in every:
        tables_of[column.name].append(column.table)
    by_name: dict[str, list[Volatile]] = defaultdict(list)
    for one in moving:
        by_name[one.column.name].append(one)
    lines: list[str] = []
    details: list[str] = []
    for name, ones in sorted(by_name.items()):
        everywhere = len(ones) > 1 and len(ones) == len(tables_of[name])
        keys = [name] if everywhere else [f"{one.column.table}.{name}" for one in ones]
        lines += [f"    {_yaml_key(key)}: any" for key in keys]
        reasons: dict[str, list[str]] = defaultdict(list)
        for one in ones:
            reasons[one.why].append(one.column.table)
        details += [f"{name} of {_shown(tables)}: {why}" for why, tables in reasons.items()]
    where = "under `compare`, `columns`" if has_compare else "into suite.yaml"
    plural = "column changes" if len(moving) == 1 else "columns change"
    return [
        Finding(
            severity="suggestion",
            place=place,
            message=f"{len(moving)} {plural} whenever a row is updated, and no policy says so: a rule with "
            f"`columns` must list each. To let them take any new value, paste {where}:",
            details=tuple(details),
            advice="\n".join(lines if has_compare else ["compare:", "  columns:", *lines]),
        )
    ]


def _note(added: Sequence[Volatile], place: str) -> list[Finding]:
    if not added:
        return []
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in added:
        reasons[one.column.name, one.why].append(one.column.table)
    plural = "column gets its" if len(added) == 1 else "columns get their"
    return [
        Finding(
            severity="note",
            place=place,
            message=f"{len(added)} {plural} value when a row is added. A row that is added is judged as a "
            "whole, so that needs no policy",
            details=tuple(f"{name} of {_shown(tables)}: {why}" for (name, why), tables in reasons.items()),
        )
    ]


def _shown(tables: Sequence[str]) -> str:
    shown = ", ".join(tables[:_MAX_SHOWN])
    return shown if len(tables) <= _MAX_SHOWN else f"{shown} and {len(tables) - _MAX_SHOWN} more"


def _yaml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name) else json.dumps(name, ensure_ascii=False)
