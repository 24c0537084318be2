"""Sees to it that there is somebody to play: rows where a seed has none, policies that let them be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.drafting.owned import owned_by
from redteam_harness.drafting.rows import CannotInvent, inserts
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.drafting.owned import Owned
    from redteam_harness.drafting.people import Candidate
    from redteam_harness.drafting.schema import Schema, Table
    from redteam_harness.drafting.trial import Bench

__all__ = ["ADDED", "Peopled", "people_of"]

ADDED = "additions.sql"
"""The file that a drafted suite loads after its seed, where it must."""

_MAX_INVENTED = 6
_MAX_GUARDED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Peopled:
    """Whom a suite is about.

    Attributes:
        table: the table of people.
        additions: SQL to load after the seed; empty for none.
        invented: whether it holds people who were made up.
        notes: what to tell of it.
    """

    table: Table
    additions: str = ""
    invented: bool = False
    notes: tuple[str, ...] = ()


async def people_of(bench: Bench, schema: Schema, ranked: Sequence[Candidate]) -> Peopled:
    """The likeliest table of people that has some, or for which some can be made up.

    Raises:
        UsageError: all are empty, and the database takes no row that could be made up.
    """
    first = ranked[0].table
    refusal = ""
    if first.rows:
        guarded = _guarded(first, owned_by(first, schema), schema)
        return Peopled(table=first, additions=_policies(guarded), notes=_told_guarded(guarded))
    for table in [one.table for one in ranked][:_MAX_INVENTED]:
        owned = owned_by(table, schema)
        guarded = _guarded(table, owned, schema)
        near = [one for one in owned if one.row_key and one.score > -2][:1]
        for some, upsert in ((near, False), (near, True), ([], False), ([], True)):
            try:
                statements = inserts(table, some, schema, upsert=upsert)
            except CannotInvent as error:
                refusal = str(error)
                continue
            refused = await bench.refusal(statements)
            if refused is None:
                note = (
                    f"The seed holds no people: {ADDED} puts three into {table.rule_name}, plainly made up. "
                    "decide: put better ones there, or rows of your own into the seed."
                )
                return Peopled(
                    table=table,
                    additions=_invented(table, statements) + _policies(guarded),
                    invented=True,
                    notes=(note, *_told_guarded(guarded)),
                )
            refusal = refused
    names = ", ".join(one.table.rule_name for one in ranked[:_MAX_INVENTED])
    raise UsageError(
        f"every likely table of people ({names}) is empty, and no row could be made up ({refusal}); add a "
        "file with a few rows: redteam init DIR --seed SCHEMA --seed ROWS"
    )


def _guarded(person: Table, owned: Sequence[Owned], schema: Schema) -> list[Table]:
    """Tables with row-level security that the cases would touch."""
    near = [person, *(step.table for one in owned[:_MAX_GUARDED] for step in one.steps)]
    near += [schema.tables[key.target] for key in person.foreign_keys if key.target in schema.tables]
    return [table for table in {table.oid: table for table in near}.values() if table.guarded]


def _told_guarded(guarded: Sequence[Table]) -> tuple[str, ...]:
    if not guarded:
        return ()
    names = ", ".join(table.rule_name for table in guarded)
    return (
        f"Row-level security is on for {names}, and the stand-in agent logs in as nobody whom its policies "
        f"know: {ADDED} lets it see all rows. decide: name your application's `role`, have your agent say "
        "who it acts for, as it does in production, and take these policies out.",
    )


def _policies(guarded: Sequence[Table]) -> str:
    if not guarded:
        return ""
    lines = (
        "-- Row-level security as the seed has it knows nobody whom the stand-in agent could log in as.",
        "-- Take this out when suite.yaml names the role of your application.",
        *(
            f"CREATE POLICY redteam_stand_in ON {table.sql} USING (true) WITH CHECK (true);"
            for table in guarded
        ),
    )
    return "\n".join(lines) + "\n"


def _invented(table: Table, statements: Sequence[str]) -> str:
    lines = (
        f"-- The seed holds nobody to play. These people are made up: three in {table.rule_name},",
        "-- and what rows of other tables that takes. Put better ones here, or load rows of your own.",
        "",
        *statements,
        "",
        "",
    )
    return "\n".join(lines)
