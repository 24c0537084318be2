"""Whether two texts that Postgres printed are one value: asked of Postgres itself, for the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import asyncpg

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Column", "Equality", "Pair"]

_TYPE = """
SELECT t.typtype::text AS kind, t.typbasetype AS base, r.rngsubtype AS subtype, m.rngtypid AS range,
  CASE WHEN t.typlen = -1 AND t.typsubscript = 'array_subscript_handler'::regproc THEN t.typelem END
    AS element,
  (SELECT array_agg((quote_ident(a.attname), a.atttypid::int8) ORDER BY a.attnum) FROM pg_attribute a
     WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS fields,
  format_type(t.oid, NULL) AS sql
FROM pg_type t LEFT JOIN pg_range r ON r.rngtypid = t.oid LEFT JOIN pg_range m ON m.rngmultitypid = t.oid
WHERE t.oid = $1
"""

_NUMERIC, _JSON, _JSONB = 1700, 114, 3802
_COMMON = {20: _NUMERIC, 21: _NUMERIC, 23: _NUMERIC, _NUMERIC: _NUMERIC, _JSON: _JSONB, _JSONB: _JSONB}


class Column(NamedTuple):
    """One column; `missing` is what rows hold that are older than it."""

    number: int
    name: str
    sql: str
    type: int
    shown: str
    not_null: bool
    missing: str | None


class Pair(NamedTuple):
    """A column of the fork, and what it was; `old_at` None: it was not there."""

    new: Column
    new_at: int
    old: Column | None
    old_at: int | None


class Equality:
    """When two texts are one value: numbers and JSON by value, also inside other types; the rest by text."""

    def __init__(self, session: asyncpg.Connection, types: dict[int, asyncpg.Record | None]) -> None:
        self._session = session
        self._types = types
        self._expressions: dict[int, str | None] = {}
        self._known: dict[tuple[int, str, str], bool] = {}
        self._first: dict[
            tuple[int, str], str
        ] = {}  # of equal texts the lesser, if it is not the text itself

    def _type(self, pair: Pair) -> int:
        """The type that both are compared as; 0: as texts."""
        old, new = (pair.old or pair.new).type, pair.new.type
        if old == new:
            return new
        common = _COMMON.get(old, 0)
        return common if common == _COMMON.get(new) else 0

    async def unify(self, pair: Pair, texts: Iterable[str | None]) -> None:
        """Ask which of these are one value, each against each."""
        every = set(texts)
        await self.learn(pair, ((a, b) for a in every for b in every))

    async def learn(self, pair: Pair, texts: Iterable[tuple[str | None, str | None]]) -> None:
        """Ask Postgres about texts that differ."""
        kind = self._type(pair)
        if kind not in self._expressions:
            self._expressions[kind] = await self._same(kind, "a", "b", 0) if kind else None
        expression = self._expressions[kind]
        if expression is None:
            return
        asked = {
            (a, b)
            for a, b in texts
            if a is not None and b is not None and a != b and (kind, a, b) not in self._known
        }
        if not asked:
            return
        row = await self._describe(kind)
        query = (
            f"SELECT ta, tb, {expression} FROM (SELECT ta, tb, ta::{row['sql']} AS a, tb::{row['sql']} AS b "
            "FROM unnest($1::text[], $2::text[]) AS t(ta, tb)) AS x"
        )
        a, b = zip(*sorted(asked), strict=True)
        try:
            for one, other, same in await self._session.fetch(query, a, b):
                self._known[kind, one, other] = same
                if same:
                    self._join(kind, one, other)
        except asyncpg.DataError:
            pass  # an old text is no value of the type any more, so it is no equal one

    def same(self, pair: Pair, a: str | None, b: str | None) -> bool:
        if a is None or b is None or a == b:
            return a == b
        return self._known.get((self._type(pair), a, b), False)

    def first_of(self, pair: Pair, text: str | None) -> str | None:
        """One spelling for all texts of a value, of those that were learned."""
        if text is None:
            return None
        first = self._first.get((self._type(pair), text), text)
        return first if first == text else self.first_of(pair, first)

    def _join(self, kind: int, a: str, b: str) -> None:
        while (kind, a) in self._first:
            a = self._first[kind, a]
        while (kind, b) in self._first:
            b = self._first[kind, b]
        if a != b:
            self._first[kind, max(a, b)] = min(a, b)

    async def _describe(self, oid: int) -> asyncpg.Record:
        if oid not in self._types:
            self._types[oid] = await self._session.fetchrow(_TYPE, oid)
        row = self._types[oid]
        assert row is not None
        return row

    async def _same(self, oid: int, a: str, b: str, depth: int) -> str | None:
        """SQL that is true for equal values of a type; None: its texts tell."""
        inner = await self._inner(oid, a, b, depth)
        return inner and f"(CASE WHEN num_nulls({a}, {b}) > 0 THEN num_nulls({a}, {b}) = 2 ELSE {inner} END)"

    async def _inner(self, oid: int, a: str, b: str, depth: int) -> str | None:
        if oid == _JSON:
            return f"{a}::jsonb = {b}::jsonb"
        if oid in (_NUMERIC, _JSONB):
            return f"{a} = {b}"
        row = await self._describe(oid)
        if row["kind"] == "d":
            base = (await self._describe(row["base"]))["sql"]
            return await self._same(row["base"], f"({a}::{base})", f"({b}::{base})", depth)
        x, y = f"x{depth}", f"y{depth}"
        if row["element"]:
            item = await self._same(row["element"], f"{x}.v", f"{y}.v", depth + 1)
            return item and (
                f"(array_dims({a}) IS NOT DISTINCT FROM array_dims({b}) AND NOT EXISTS (SELECT FROM "
                f"{_both(a, b, x, y)} WHERE NOT {item}))"
            )
        if row["subtype"]:
            ends = [
                await self._same(row["subtype"], f"{end}({a})", f"{end}({b})", depth)
                for end in ("lower", "upper")
            ]
            if ends[0] is None:
                return None
            flags = ("isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf")
            return f"({' AND '.join([*(f'{flag}({a}) = {flag}({b})' for flag in flags), *map(str, ends)])})"
        if row["range"]:
            span = await self._same(row["range"], f"{x}.v", f"{y}.v", depth + 1)
            return span and (
                f"((SELECT count(*) FROM unnest({a})) = (SELECT count(*) FROM unnest({b})) "
                f"AND NOT EXISTS (SELECT FROM {_both(a, b, x, y)} WHERE NOT {span}))"
            )
        fields = row["fields"] or ()
        if row["kind"] != "c":
            return None
        by_value = False
        terms = []
        for name, type_ in fields:
            term = await self._same(type_, f"({a}).{name}", f"({b}).{name}", depth)
            by_value = by_value or term is not None
            terms.append(term or f"(({a}).{name})::text IS NOT DISTINCT FROM (({b}).{name})::text")
        return f"({' AND '.join(terms)})" if by_value else None


def _both(a: str, b: str, x: str, y: str) -> str:
    """SQL: the items of two lists, side by side. In a FROM, unnest would take composite items apart."""
    one, other = (
        f"(SELECT v, row_number() OVER () AS i FROM (SELECT unnest({many}) AS v) AS items) AS {name}"
        for many, name in ((a, x), (b, y))
    )
    return f"{one} JOIN {other} USING (i)"
