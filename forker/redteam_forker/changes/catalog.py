"""The tables of a database: what the comparison of rows needs to know of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.types import read_kinds
from redteam_forker.names import quote_ident

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import asyncpg

    from redteam_forker.changes.values import Kind

__all__ = ["UPKEEP", "Catalog", "Column", "Part", "Table", "build_catalog", "read_catalog"]

# SQL of what VACUUM and ANALYZE write about a heap in its row of pg_class; relallfrozen is PostgreSQL 18's.
UPKEEP = (
    "concat_ws(' ', c.relpages, c.reltuples, c.relallvisible, c.relfrozenxid, c.relminmxid, "
    "to_jsonb(c)->>'relallfrozen')"
)

_RELATIONS = f"""
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind, c.relfilenode AS filenode,
  c.relpersistence = 'u' AS unlogged, {UPKEEP} AS upkeep, coalesce(am.amname, '') AS method,
  CASE WHEN c.relispartition THEN
    (SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = c.oid) END AS parent
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am am ON am.oid = c.relam
WHERE c.relkind IN ('r', 'p', 'm') AND c.relispopulated AND c.relpersistence <> 't'
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY n.nspname, c.relname
"""

# The missing value of a column that was added without a rewrite is what old rows have in it.
_COLUMNS = """
WITH RECURSIVE domain AS (
  SELECT oid, typbasetype AS base FROM pg_type WHERE typtype = 'd'
  UNION ALL SELECT d.oid, t.typbasetype FROM domain d JOIN pg_type t ON t.oid = d.base AND t.typtype = 'd'
), root AS (
  SELECT d.oid, d.base FROM domain d JOIN pg_type t ON t.oid = d.base AND t.typtype <> 'd'
)
SELECT a.attrelid AS relation, a.attnum AS number, a.attname AS name,
  format_type(a.atttypid, a.atttypmod) AS type,
  coalesce(root.base, a.atttypid)::int8 AS base, a.attnotnull AS not_null,
  CASE WHEN a.attgenerated <> '' THEN
    a.attgenerated::text || pg_get_expr(d.adbin, d.adrelid) END AS generated,
  CASE WHEN a.atthasmissing THEN (a.attmissingval::text::text[])[1] END AS missing
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated <> ''
LEFT JOIN root ON root.oid = a.atttypid
WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't' AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY a.attrelid, a.attnum
"""

_KEYS = """
SELECT i.indrelid AS relation, (i.indkey::int2[])[0:i.indnkeyatts - 1] AS numbers
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY i.indrelid, i.indisprimary DESC, i.indnkeyatts, i.indexrelid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        number: its attribute number, which outlives a rename.
        type: as format_type says it, qualified.
        base: oid of the type, or of what its domain is of.
        kind: how its values are compared.
        not_null: whether it may be part of a key.
        generated: how and from what it is generated, if it is.
        missing: what rows hold that are older than the column.
    """

    number: int
    name: str
    type: str
    base: int
    kind: Kind
    not_null: bool
    generated: str | None
    missing: str | None

    @property
    def shape(self) -> tuple[int, str, str, str | None]:
        """What must be equal on both sides for a row's bytes to mean the same."""
        return (self.number, self.name, self.type, self.generated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One heap: a plain table, or one leaf of a partitioned table (P69). Foreign leaves are none (P77).

    Attributes:
        source: what to select from.
        heap: whether it is stored as one.
        upkeep: what `UPKEEP` gives for it.
    """

    oid: int
    source: str
    filenode: int
    heap: bool
    unlogged: bool
    upkeep: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table whose rows are compared; a partitioned table with its leaves, a materialized view.

    Attributes:
        oid: the same in every clone of a template.
        key: attribute numbers of the primary key, else of a unique index without NULLs; empty: there is none.
        uniques: every such set of attribute numbers.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    uniques: frozenset[frozenset[int]]
    parts: tuple[Part, ...]

    @property
    def row(self) -> str:
        """SQL of a whole row as one text."""
        return f"ROW({', '.join(quote_ident(column.name) for column in self.columns)})::text"

    def like(self, other: Table) -> Table:
        """The same table with its columns numbered by their names in another one."""
        numbers = {column.name: column.number for column in other.columns}
        # A number that the other table never had, for what only this one has.
        moved = {column.number: numbers.get(column.name, 10_000 + column.number) for column in self.columns}
        return replace(
            self,
            columns=tuple(replace(column, number=moved[column.number]) for column in self.columns),
            key=tuple(moved[number] for number in self.key),
            uniques=frozenset(frozenset(moved[number] for number in numbers) for numbers in self.uniques),
        )


Catalog = dict[int, Table]


async def read_catalog(connection: asyncpg.Connection) -> Catalog:
    """The tables of the database, by oid, without those of Postgres itself and without temporary ones."""
    return build_catalog(
        await connection.fetch(_RELATIONS),
        await connection.fetch(_COLUMNS),
        await connection.fetch(_KEYS),
        await read_kinds(connection),
    )


def build_catalog(
    relations: Iterable[Mapping[str, Any]],
    columns: Iterable[Mapping[str, Any]],
    keys: Iterable[Mapping[str, Any]],
    kinds: Mapping[int, Kind],
) -> Catalog:
    """The same, from the rows of the three queries and the kinds of types."""
    by_relation: dict[int, list[Column]] = defaultdict(list)
    for row in columns:
        base = row["base"]
        by_relation[row["relation"]].append(
            Column(
                number=row["number"],
                name=row["name"],
                type=row["type"],
                base=base,
                kind=kinds.get(base, "text"),
                not_null=row["not_null"],
                generated=row["generated"],
                missing=row["missing"],
            )
        )
    uniques: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for row in keys:
        not_null = {column.number for column in by_relation[row["relation"]] if column.not_null}
        if not_null.issuperset(row["numbers"]):
            uniques[row["relation"]].append(tuple(row["numbers"]))
    every = {row["oid"]: row for row in relations}
    children: dict[int, list[int]] = defaultdict(list)
    for row in every.values():
        if row["parent"] in every:
            children[row["parent"]].append(row["oid"])
    catalog: Catalog = {}
    for oid, row in every.items():
        if row["parent"] in every:
            continue
        parts = tuple(_parts(oid, every, children))
        leaves = [by_relation[part.oid] for part in parts if part.oid != oid]
        catalog[oid] = Table(
            oid=oid,
            schema=row["schema"],
            name=row["name"],
            columns=tuple(_with_missing(column, leaves) for column in by_relation[oid]),
            key=uniques[oid][0] if uniques[oid] else (),
            uniques=frozenset(frozenset(numbers) for numbers in uniques[oid]),
            parts=parts,
        )
    return catalog


def _with_missing(column: Column, leaves: Iterable[Iterable[Column]]) -> Column:
    """Of a partitioned table, only the leaves know what their old rows hold."""
    missing = (
        item.missing
        for leaf in leaves
        for item in leaf
        if item.name == column.name and item.missing is not None
    )
    return replace(column, missing=column.missing or next(missing, None)) if leaves else column


def _parts(
    oid: int, every: Mapping[int, Mapping[str, Any]], children: Mapping[int, list[int]]
) -> Iterable[Part]:
    row = every[oid]
    if row["kind"] != "p":
        yield Part(
            oid=oid,
            # ONLY: an inheritance child is a table of its own.
            source=f"ONLY {quote_ident(row['schema'])}.{quote_ident(row['name'])}",
            filenode=row["filenode"],
            heap=row["method"] == "heap",
            unlogged=row["unlogged"],
            upkeep=row["upkeep"],
        )
    for child in children.get(oid, ()):
        yield from _parts(child, every, children)
