"""Asks Postgres whether a condition holds for the images of changed rows: one query for all of a table.

The images are cells as text, from the change set; `json_populate_record` reads them back with each column's
own input function, so the condition sees the types that the table has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_rubrics.errors import RuleError
from redteam_rubrics.parameters import bind
from redteam_rubrics.statements import quote_ident

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_rubrics.evidence import Cells, Evidence, TableChanges, World

__all__ = ["Shape", "holds_for", "shape_of"]

# A domain's own type says nothing of how its text is written, its base type does. A change set spells a type
# as it is found from pg_catalog alone; here others may be on the path, and are spelled without their schema.
_SHAPE = """
SELECT a.attname AS name,
       pg_catalog.concat(home.prefix, pg_catalog.format_type(a.atttypid, a.atttypmod)) AS type,
       pg_catalog.concat(home.prefix, pg_catalog.format_type(a.atttypid, NULL)) AS bare_type,
       (WITH RECURSIVE base AS (
            SELECT t.oid, t.typtype, t.typbasetype FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
            UNION ALL
            SELECT t.oid, t.typtype, t.typbasetype
            FROM base JOIN pg_catalog.pg_type t ON base.typtype = 'd' AND t.oid = base.typbasetype
        )
        SELECT base.oid IN ('pg_catalog.json'::regtype, 'pg_catalog.jsonb'::regtype)
        FROM base WHERE base.typtype <> 'd') AS is_json
FROM pg_catalog.pg_attribute a
CROSS JOIN LATERAL (
    SELECT CASE WHEN n.nspname <> 'pg_catalog' AND pg_catalog.pg_type_is_visible(t.oid)
                THEN pg_catalog.quote_ident(n.nspname) || '.' END AS prefix
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid = a.atttypid
) home
WHERE a.attrelid = pg_catalog.to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
"""

_HOLDS = """
SELECT "__rt_number" AS number, (
{condition}
) AS holds
FROM (
    SELECT ordinality AS "__rt_number", value AS "__rt_image"
    FROM pg_catalog.json_array_elements($1::json) WITH ORDINALITY
) AS "__rt_images"
CROSS JOIN LATERAL pg_catalog.json_populate_record(NULL::{table}, "__rt_image") AS {alias}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The columns that a table has at the end.

    Attributes:
        types: the spellings of each column's type, with and without its modifier.
        json: the columns whose text is JSON.
    """

    types: Mapping[str, tuple[str, str]]
    json: frozenset[str]

    def fits(self, table: TableChanges, image: Cells) -> bool:
        """Whether an image of the change set can be read as a row of the table as it is now."""
        return self.types.keys() == image.keys() and all(
            table.columns.get(name) in spellings for name, spellings in self.types.items()
        )


async def shape_of(world: World, schema: str, table: str) -> Shape | None:
    """The table's columns at the end, or None when it no longer exists."""
    rows = await world.fetch(_SHAPE, (_qualified(schema, table),))
    if not rows:
        return None
    return Shape(
        types={str(row["name"]): (str(row["type"]), str(row["bare_type"])) for row in rows},
        json=frozenset(str(row["name"]) for row in rows if row["is_json"]),
    )


async def holds_for(
    world: World,
    *,
    condition: str,
    table: TableChanges,
    shape: Shape,
    images: Sequence[Cells],
    evidence: Evidence,
) -> list[bool]:
    """Whether the condition holds for each image, in their order; NULL does not hold, as in WHERE.

    Raises:
        RuleError: the condition is not boolean.
        UsageError: the persona lacks a column that it refers to.
    """
    sql = _HOLDS.format(
        condition=bind(condition, evidence.persona, evidence.claimed),
        table=_qualified(table.schema, table.table),
        alias=quote_ident(table.table),
    )
    document = "[" + ",".join(_document(image, shape.json) for image in images) + "]"
    answers: dict[object, object] = {
        row["number"]: row["holds"] for row in await world.fetch(sql, (document,))
    }
    for answer in answers.values():
        if answer is not None and not isinstance(answer, bool):
            raise RuleError(f"`where` must be true or false, it gave a value of type {type(answer).__name__}")
    if len(answers) != len(images):
        raise RuleError("`where` must be about one row; it may not aggregate")
    return [answers[number] is True for number in range(1, len(images) + 1)]


def _document(image: Cells, json_columns: frozenset[str]) -> str:
    """A row image as a JSON object, built as text so that no digit of a JSON number is lost."""
    members = (
        f"{json.dumps(name)}:{cell if cell is not None and name in json_columns else json.dumps(cell)}"
        for name, cell in image.items()
    )
    return "{" + ",".join(members) + "}"


def _qualified(schema: str, table: str) -> str:
    return f"{quote_ident(schema)}.{quote_ident(table)}"
