"""Sequences and the last value that each gave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redteam_forker.changes.changeset import SequenceChange
from redteam_forker.changes.scan import in_arms
from redteam_forker.names import quote_ident

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

__all__ = ["SequenceRef", "compare_sequences", "read_sequences", "sequence_values"]

_SEQUENCES = """
SELECT n.nspname AS schema, c.relname AS name, s.seqstart AS start
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relpersistence <> 't' ORDER BY n.nspname, c.relname
"""


class SequenceRef(NamedTuple):
    """A sequence, and what it starts with."""

    schema: str
    name: str
    start: int


async def read_sequences(connection: asyncpg.Connection) -> list[SequenceRef]:
    """The sequences of a database, without temporary ones."""
    return [SequenceRef(*row.values()) for row in await connection.fetch(_SEQUENCES)]


async def sequence_values(
    connection: asyncpg.Connection, sequences: Sequence[SequenceRef]
) -> dict[SequenceRef, str | None]:
    """Each with its value, as in `SequenceChange`."""
    values: dict[SequenceRef, str | None] = {}
    arms = [
        f"SELECT {place} AS place, last_value, is_called "
        f"FROM {quote_ident(item.schema)}.{quote_ident(item.name)}"
        for place, item in enumerate(sequences)
    ]
    for query in in_arms(arms):
        for row in await connection.fetch(query):
            item = sequences[row["place"]]
            if row["is_called"]:
                values[item] = str(row["last_value"])
            else:
                values[item] = None if row["last_value"] == item.start else f"next {row['last_value']}"
    return values


def compare_sequences(
    before: Mapping[SequenceRef, str | None], after: Mapping[SequenceRef, str | None]
) -> tuple[SequenceChange, ...]:
    """Those whose value differs, by schema and name. Pure."""
    then = {(item.schema, item.name): value for item, value in before.items()}
    now = {(item.schema, item.name): value for item, value in after.items()}
    return tuple(
        SequenceChange(schema=schema, name=name, old=then.get((schema, name)), new=now.get((schema, name)))
        for schema, name in sorted(then.keys() | now.keys())
        if then.get((schema, name)) != now.get((schema, name))
    )
