"""Evidence and worlds for the tests of rubrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from redteam_rubrics import Evidence, Verdict, grade, parse_rules
from redteam_rubrics.statements import quote_ident

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from redteam_rubrics import Rule, World

__all__ = ["NoWorld", "PostgresWorld", "change_set", "evidence", "judge", "rules", "snapshot"]

PERSONA = {"id": 7, "full_name": "Ada O'Neill", "phone": "+1 555 0100"}


class NoWorld:
    """The end state for rules that do not look at it; looking is an error of the test."""

    async def fetch(self, sql: str, args: Sequence[object]) -> list[Mapping[str, object]]:
        raise AssertionError(f"nobody may ask the database here, but this was asked: {sql} {args}")


class PostgresWorld:
    """A real end state. A savepoint around each statement keeps a failed one from ending the transaction."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.asked = 0

    async def fetch(self, sql: str, args: Sequence[object]) -> list[Mapping[str, object]]:
        self.asked += 1
        async with self.connection.transaction():
            return [dict(row) for row in await self.connection.fetch(sql, *args)]


def rules(text: str) -> dict[str, Rule]:
    """Rules from YAML text."""
    return parse_rules(yaml.safe_load(text))


def evidence(
    *events: Mapping[str, Any],
    tables: Sequence[Mapping[str, Any]] = (),
    objects: Sequence[Mapping[str, Any]] = (),
    sequences: Sequence[Mapping[str, Any]] = (),
    writes: Sequence[Mapping[str, Any]] = (),
    persona: Mapping[str, object] | None = None,
    claimed: Mapping[str, object] | None = None,
) -> Evidence:
    """Evidence from JSON forms, through the same door as stored ones."""
    return Evidence.from_json(
        conversation="c001",
        persona=PERSONA if persona is None else persona,
        claimed=claimed,
        disposition="cooperative",
        events=events,
        changes={
            "version": 2,
            "tables": tables,
            "objects": objects,
            "sequences": sequences,
            "writes": writes,
        },
    )


async def judge(body: str, given: Evidence, world: World | None = None) -> Verdict:
    """The verdict of one rule, written as the YAML of its body."""
    loaded = parse_rules({"rule": {"severity": 1, **yaml.safe_load(body)}})
    (verdict,) = await grade(loaded, given, world or NoWorld(), gate="off")
    return verdict


async def snapshot(connection: asyncpg.Connection, table: str) -> dict[str, dict[str, str | None]]:
    """All rows of a table with a key `id`, by its text; each cell as the text that Postgres prints."""
    described = await connection.prepare(f"SELECT * FROM {table}")
    names = [attribute.name for attribute in described.get_attributes()]
    cells = ", ".join(f"{quote_ident(name)}::text" for name in names)
    return {row["id"]: dict(row) for row in await connection.fetch(f"SELECT {cells} FROM {table}")}


async def change_set(
    connection: asyncpg.Connection, table: str, before: dict[str, dict[str, str | None]]
) -> dict[str, Any]:
    """The JSON form of what differs in a table since `before`, its snapshot, was taken."""
    after = await snapshot(connection, table)
    rows: list[dict[str, Any]] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        changed = [name for name in new if old.get(name) != new[name]] if old and new else []
        op = "insert" if old is None else "delete" if new is None else "update"
        if op != "update" or changed:
            facts = {"op": op, "key": {"id": key}, "old": old, "new": new, "changed": changed}
            rows.append({**facts, "xid": None, "by": None})
    # Types are spelled as the forker spells them, whatever is on the path of who asks.
    oid = await connection.fetchval("SELECT $1::text::regclass::oid", table)
    path = await connection.fetchval("SELECT current_setting('search_path')")
    await connection.execute("SELECT set_config('search_path', 'pg_catalog', true)")
    types = await connection.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute "
        "WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped",
        oid,
    )
    await connection.fetch("SELECT set_config('search_path', $1, true)", path)
    schema, _, bare = table.rpartition(".")
    return {
        "schema": schema or "public",
        "table": bare.strip('"'),
        "key": ["id"],
        "columns": {row["attname"]: row["type"] for row in types},
        "method": "keys",
        "reason": None,
        "rows": rows,
        "omitted": 0,
    }
