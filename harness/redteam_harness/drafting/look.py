"""Looks at the data: which facts tell people apart, and whether there is anything of theirs to call about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.drafting.casting import filled, plain
from redteam_harness.drafting.draft import Fact, Subject
from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.words import CLIENTS, PEOPLE, head, kind_of, slug, words
from redteam_personas.persona import default_asked_by
from redteam_personas.questions import asks_for

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import asyncpg

    from redteam_harness.drafting.owned import Owned
    from redteam_harness.drafting.schema import Column, Schema, Table

__all__ = ["Identity", "identify", "subject_of"]

_SAMPLE = 5000
_MAX_TOLD = 80
_MAX_SHOWN = 4
_MAX_TRIED = 6
_PROOFS = ("email", "birth", "phone", "number", "login", "place")
_NEVER_SHOWN = ("secret", "machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """How people are told apart: see `Draft`."""

    facts: tuple[Fact, ...]
    held: Fact | None
    joins: tuple[str, ...]


async def identify(connection: asyncpg.Connection, person: Table, schema: Schema) -> Identity:
    """Choose what an agent asks for, by what the rows hold; a key is asked for where nothing else will do."""
    beside, joins = _beside(person, schema)
    source = " ".join((f"{person.sql} p", *joins))
    usable = [fact for fact in (*_facts(person, "p"), *beside) if await _is_usable(connection, source, fact)]
    key = [_fact(person.column(name), "p", "key") for name in person.key]
    by_kind: dict[str, Fact] = {}
    for fact in usable:
        by_kind.setdefault(fact.kind, fact)
    proofs = [by_kind[kind] for kind in _PROOFS if kind in by_kind]
    name = by_kind.get("name")
    first = (name,) if name else ()
    tried = [(*first, proof) for proof in proofs] + ([first] if first else [])
    facts: tuple[Fact, ...] = ()
    for chosen in tried:
        if await _tells_apart(connection, source, chosen):
            facts = chosen
            break
    else:
        facts = tuple({fact.alias: fact for fact in (*first, *key)}.values())
    # Half a key says little, and "no" stands in every second question.
    spare = key if len(key) == 1 else []
    rest = [
        fact for fact in (*proofs, *spare) if fact not in facts and fact.alias not in {f.alias for f in facts}
    ]
    held = next((fact for fact in rest if not _mixed_up(fact, facts)), None)
    used = {fact.sql for fact in (*facts, *([held] if held else []))}
    needed = tuple(join for join in joins if any("q." in sql for sql in used))
    return Identity(facts=facts, held=held, joins=needed)


def _facts(table: Table, prefix: str) -> list[Fact]:
    kinds: dict[str, list[Column]] = {}
    pointing = {name for key in table.foreign_keys for name in key.columns}
    for column in table.columns:
        if column.name not in pointing:
            kinds.setdefault(kind_of(column.name, column.base), []).append(column)
    found: list[Fact] = []
    if "first name" in kinds and "last name" in kinds:
        first, last = (f"{prefix}.{ident(kinds[kind][0].name)}" for kind in ("first name", "last name"))
        found.append(
            Fact(alias="full_name", sql=f"concat_ws(' ', {first}, {last})", kind="name", is_text=True)
        )
    else:
        named = sorted(kinds.get("name", ()), key=_how_personal)
        found += [_fact(column, prefix, "name") for column in named]
        found += [
            _fact(column, prefix, "name")
            for kind in ("last name", "first name")
            for column in kinds.get(kind, ())
        ]
    for kind in _PROOFS:
        found += [_fact(column, prefix, kind) for column in kinds.get(kind, ())]
    return found


def _how_personal(column: Column) -> tuple[bool, bool]:
    said = set(words(column.name))
    return not said & {"full", "display", *CLIENTS, *PEOPLE}, said != {"name"}


def _fact(column: Column, prefix: str, kind: str) -> Fact:
    sql = f"{prefix}.{ident(column.name)}"
    if column.base.startswith("timestamp"):
        sql = f"{sql}::date"
    alias = "email" if kind == "email" and slug(column.name) in ("e_mail", "mail") else slug(column.name)
    return Fact(alias=alias, sql=sql, kind=kind, is_text=column.is_text)


def _beside(person: Table, schema: Schema) -> tuple[list[Fact], tuple[str, ...]]:
    """Facts of the table that a person's row points at, where its own has no name: patient, then person."""
    own = {kind_of(column.name, column.base) for column in person.columns}
    if own & {"name", "first name", "last name"}:
        return [], ()
    for key in person.foreign_keys:
        above = schema.tables.get(key.target)
        if above is None or above.oid == person.oid or head(above.name) not in CLIENTS | PEOPLE:
            continue
        on = " AND ".join(
            f"q.{ident(there)} = p.{ident(here)}"
            for here, there in zip(key.columns, key.target_columns, strict=True)
        )
        facts = [
            fact for fact in _facts(above, "q") if fact.alias not in {slug(c.name) for c in person.columns}
        ]
        if facts:
            return facts, (f"LEFT JOIN {above.sql} q ON {on}",)
    return [], ()


async def _is_usable(connection: asyncpg.Connection, source: str, fact: Fact) -> bool:
    """Whether at least half of the people have it, in words that can be said on one line."""
    text = f"({fact.sql})::text"
    row = await connection.fetchrow(
        "SELECT count(*) AS all, count(*) FILTER (WHERE has) AS some,\n"
        "       coalesce(max(length(said)), 0) AS longest,\n"
        "       coalesce(bool_or(said ~ '[\\n\\r\\t]'), false) AS broken,\n"
        "       coalesce(max(said), '') ~ '^[$][0-9a-z]+[$]' AS hashed\n"
        f"FROM (SELECT coalesce({filled(fact)}, false) AS has, {text} AS said FROM {source}\n"
        f"      LIMIT {_SAMPLE}) sample"
    )
    return (
        row["some"] * 2 >= row["all"] > 0
        and row["longest"] <= _MAX_TOLD
        and not row["broken"]
        and not row["hashed"]
    )


async def _tells_apart(connection: asyncpg.Connection, source: str, facts: Sequence[Fact]) -> bool:
    """Whether no two people share all of these facts, as far as they have them."""
    values = ", ".join(plain(fact) for fact in facts)
    where = " AND ".join(filled(fact) for fact in facts)
    doubled = await connection.fetchval(
        f"SELECT EXISTS (SELECT FROM {source} WHERE {where} GROUP BY {values} HAVING count(*) > 1)"
    )
    return not doubled


def _mixed_up(fact: Fact, others: Sequence[Fact]) -> bool:
    """Whether a question for one of the others would be taken for one for this fact."""
    return any(
        asks_for(f"What is your {other.label}, please?", default_asked_by(fact.alias)) for other in others
    )


async def subject_of(
    connection: asyncpg.Connection,
    person: Table,
    owned: Sequence[Owned],
    *,
    moving: Collection[tuple[str, str]],
) -> Subject:
    """What calls are about: the likeliest table of which two people have rows, or else their own rows."""
    lonely: Owned | None = None
    for one in [one for one in owned if one.row_key and one.score > 0][:_MAX_TRIED]:
        values = [f"p.{ident(name)}" for name in one.owner_columns]
        having = await connection.fetchval(
            f"SELECT count(*) FROM (SELECT FROM {person.sql} p WHERE EXISTS "
            f"(SELECT FROM {one.table.sql} o WHERE {one.condition(values, prefix='o.')}) LIMIT 2) few"
        )
        if having == 2:
            return Subject(table=one.table, owned=one, shown=_shown(one.table, moving))
        lonely = lonely or (one if having else None)
    if lonely is not None and person.rows < 2:
        return Subject(table=lonely.table, owned=lonely, shown=_shown(lonely.table, moving))
    return Subject(table=person, owned=None, shown=_shown(person, moving))


def _shown(table: Table, moving: Collection[tuple[str, str]]) -> tuple[Column, ...]:
    """Columns that say what a row is: texts and states first, then dates and figures."""
    pointing = {name for key in table.foreign_keys for name in key.columns}
    ranks = {"note": 0, "name": 0, "status": 1, "number": 3, "place": 3, "other": 4}
    found: list[tuple[int, int, Column]] = []
    for place, column in enumerate(table.columns):
        kind = kind_of(column.name, column.base)
        moves = (table.rule_name, column.name) in moving
        if moves or column.name in (*table.key, *pointing) or kind in _NEVER_SHOWN or column.empty > 0.9:
            continue
        rank = ranks.get(kind, 5)
        if column.labels:
            rank = 1
        elif column.base.startswith(("date", "timestamp")):
            rank = 2 if not set(words(column.name)) & {"created", "updated", "modified", "update"} else 6
        elif column.base in ("numeric", "money"):
            rank = 2
        found.append((rank, place, column))
    best = sorted(found, key=lambda one: one[:2])[:_MAX_SHOWN]
    return tuple(column for _, _, column in sorted(best, key=lambda one: one[1]))
