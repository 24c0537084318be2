"""Reads a database's schema, and what its statistics say of the data: a few queries, however many tables."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from redteam_harness.drafting.schema import Column, ForeignKey, Schema, Table

if TYPE_CHECKING:
    import asyncpg

__all__ = ["read_schema"]

_OWN = (
    "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%' "
    "AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't' "
    "AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend e WHERE e.classid = 'pg_catalog.pg_class'::regclass "
    "AND e.objid = c.oid AND e.deptype = 'e')"
)

_TABLES = f"""
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name, c.relrowsecurity AS guarded,
       pg_catalog.pg_table_is_visible(c.oid) AS visible, greatest(c.reltuples, 0)::bigint AS rows
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {_OWN} ORDER BY n.nspname, c.relname
"""

_COLUMNS = f"""
WITH RECURSIVE base AS (
  SELECT oid, oid AS root FROM pg_catalog.pg_type
  UNION ALL SELECT b.oid, t.typbasetype
  FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.root WHERE t.typtype = 'd'
)
SELECT c.oid, a.attname::text AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       pg_catalog.format_type(b.root, NULL) AS base, a.attnotnull AS not_null,
       a.attgenerated <> '' AS generated, a.attidentity::text AS identity,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS "default",
       CASE WHEN b.root IN (1042, 1043) AND a.atttypmod > 4 THEN a.atttypmod - 4 END AS length,
       ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e
             WHERE e.enumtypid = b.root ORDER BY e.enumsortorder) AS labels,
       s.n_distinct AS distinct, s.null_frac AS empty, s.most_common_vals::text::text[] AS common
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN base b ON b.oid = a.atttypid
JOIN pg_catalog.pg_type t ON t.oid = b.root AND t.typtype <> 'd'
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
LEFT JOIN LATERAL (
  SELECT * FROM pg_catalog.pg_stats s
  WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
  ORDER BY s.inherited DESC LIMIT 1
) s ON true
WHERE {_OWN} ORDER BY c.oid, a.attnum
"""

_CONSTRAINTS = f"""
SELECT k.conrelid AS oid, k.contype::text AS type, k.confrelid AS target,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u(n, o)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n
             ORDER BY u.o) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u(n, o)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n
             ORDER BY u.o) AS targets,
       CASE WHEN k.contype = 'c' THEN pg_catalog.pg_get_constraintdef(k.oid) END AS definition
FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype IN ('p', 'u', 'f', 'c') AND k.conparentid = 0 AND {_OWN}
ORDER BY k.conrelid, k.conname
"""

# Unique indexes without a constraint, on plain columns and all rows.
_INDEXES = f"""
SELECT i.indrelid AS oid,
       ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY u(n, o)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.n
             WHERE u.o <= i.indnkeyatts ORDER BY u.o) AS columns
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND {_OWN}
ORDER BY i.indrelid, i.indexrelid
"""


async def read_schema(connection: asyncpg.Connection) -> Schema:
    """Read every table that is not an extension's, with statistics as the template's ANALYZE left them."""
    columns: dict[int, list[Column]] = defaultdict(list)
    for row in await connection.fetch(_COLUMNS):
        columns[row["oid"]].append(_column(row))
    primary: dict[int, tuple[str, ...]] = {}
    unique: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    foreign: dict[int, list[ForeignKey]] = defaultdict(list)
    checks: dict[int, list[str]] = defaultdict(list)
    for row in await connection.fetch(_CONSTRAINTS):
        names = tuple(row["columns"])
        if row["type"] == "f":
            key = ForeignKey(columns=names, target=row["target"], target_columns=tuple(row["targets"]))
            foreign[row["oid"]].append(key)
        elif row["type"] == "c":
            checks[row["oid"]].append(row["definition"])
        else:
            unique[row["oid"]].append(names)
            if row["type"] == "p":
                primary[row["oid"]] = names
    for row in await connection.fetch(_INDEXES):
        names = tuple(row["columns"])
        if names not in unique[row["oid"]]:
            unique[row["oid"]].append(names)
    tables = [
        Table(
            oid=row["oid"],
            schema=row["schema"],
            name=row["name"],
            columns=tuple(columns[row["oid"]]),
            key=primary.get(row["oid"]) or _other_key(columns[row["oid"]], unique[row["oid"]]),
            unique=tuple(unique[row["oid"]]),
            foreign_keys=tuple(foreign[row["oid"]]),
            checks=tuple(checks[row["oid"]]),
            rows=row["rows"],
            visible=row["visible"],
            guarded=row["guarded"],
        )
        for row in await connection.fetch(_TABLES)
    ]
    return Schema(tables={table.oid: table for table in tables})


def _column(row: Any) -> Column:
    filled = row["default"] is not None or row["identity"] != "" or row["generated"]
    return Column(
        name=row["name"],
        type=row["type"],
        base=row["base"],
        not_null=row["not_null"],
        always=row["identity"] == "a",
        required=row["not_null"] and not filled,
        generated=row["generated"],
        default=row["default"],
        labels=tuple(row["labels"]),
        common=tuple(value for value in row["common"] or () if value is not None),
        distinct=row["distinct"] or 0.0,
        empty=row["empty"] or 0.0,
        length=row["length"],
    )


def _other_key(columns: list[Column], unique: list[tuple[str, ...]]) -> tuple[str, ...]:
    never_null = {column.name for column in columns if column.not_null}
    whole = [key for key in unique if key and never_null.issuperset(key)]
    return min(whole, key=len, default=())
