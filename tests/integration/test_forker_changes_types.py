"""Equality and evidence of every type: what docs/changes.md promises, asked of Postgres."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import asyncpg
import pytest
from support.clones import baseline_of, cloned
from support.databases import connected
from support.versions import NotFoundError, foreign_server, programs_of

from redteam_forker.changes import before_schema
from redteam_forker.names import quote_literal
from redteam_forker.servers import open_server

if TYPE_CHECKING:
    from redteam_forker.changes import ChangeSet
    from redteam_forker.servers import Server

_TYPES = """
CREATE EXTENSION citext;
CREATE EXTENSION hstore;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN amount AS numeric;
CREATE DOMAIN price AS amount NOT NULL;
CREATE DOMAIN amounts AS numeric[];
CREATE TYPE entry AS (item text, price amount, note json);
CREATE TYPE bill AS (entries entry[], span numrange);
CREATE TYPE floatrange AS RANGE (subtype = float8);
"""


class Pair(NamedTuple):
    type: str
    one: str | None
    other: str | None
    differ: bool


def _cell(text: str) -> str | None:
    return None if text == "NULL" else text


def promised() -> list[Pair]:
    """The rows of the table in docs/changes.md."""
    text = Path(__file__, "../../../docs/changes.md").resolve().read_text(encoding="utf-8")
    section = text.split("<!-- equality -->")[1]
    rows = re.findall(r"^\| `([^`|]+)` \| `([^`]+)` \| `([^`]+)` \| (yes|no) \|", section, re.MULTILINE)
    return [Pair(kind, _cell(one), _cell(other), told == "yes") for kind, one, other, told in rows]


_PAIRS = promised()


def literal(cell: str | None, type_name: str) -> str:
    return f"{'NULL' if cell is None else quote_literal(cell)}::{type_name}"


async def updated(server: Server, pairs: list[Pair], types: str) -> ChangeSet:
    """What the change set says of one update for each pair, in a table of its own."""
    tables = [
        f"CREATE TABLE t{place} AS SELECT 1 AS id, {literal(pair.one, pair.type)} AS v; "
        f"ALTER TABLE t{place} ADD PRIMARY KEY (id);"
        for place, pair in enumerate(pairs)
    ]
    async with baseline_of(server, types + "\n".join(tables)) as name, cloned(server, name) as clone:
        for place, pair in enumerate(pairs):
            await clone.run(f"UPDATE t{place} SET v = {literal(pair.other, pair.type)}")
        return await clone.changes()


@pytest.fixture(scope="module")
async def told(server: Server) -> ChangeSet:
    return await updated(server, _PAIRS, _TYPES)


def test_the_table_of_the_documentation_is_read() -> None:
    assert len(_PAIRS) > 60
    assert {pair.differ for pair in _PAIRS} == {True, False}


@pytest.mark.parametrize("place", range(len(_PAIRS)), ids=[f"{p.type}: {p.one} - {p.other}" for p in _PAIRS])
def test_values_are_equal_as_the_documentation_says(told: ChangeSet, place: int) -> None:
    # P60, P61, P75
    changed = [table for table in told.tables if table.table == f"t{place}"]
    assert bool(changed) is _PAIRS[place].differ


@pytest.mark.parametrize("version", [15, 16])
async def test_older_versions_agree(version: int) -> None:
    try:
        programs = await anyio.to_thread.run_sync(programs_of, version)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn, open_server(dsn) as server:
        async with connected(server) as session:
            there = {row[0] for row in await session.fetch("SELECT name FROM pg_available_extensions")}
            try:
                await session.execute("SELECT '<a/>'::xml")
            except asyncpg.FeatureNotSupportedError:
                xml = []
            else:
                # It has no equality, so one white space is a difference.
                xml = [Pair("xml", "<a/>", "<a />", True), Pair("xml", "<a>1</a>", "<a>1</a>", False)]
        pairs = [pair for pair in _PAIRS if pair.type not in ("citext", "hstore") or pair.type in there] + xml
        types = "".join(
            line
            for line in _TYPES.splitlines(keepends=True)
            if "EXTENSION" not in line or there.issuperset(("citext", "hstore"))
        )
        changes = await updated(server, pairs, types)
    changed = {table.table for table in changes.tables}
    assert changed == {f"t{place}" for place, pair in enumerate(pairs) if pair.differ}


# What no pair of the table holds: awkward texts, limits, deep ones.
_MORE = [
    ("text", 'a\nb\t"c" \\ \',(){}'),
    ("text", ""),
    ("text", "NULL"),
    ("character(4)", "a"),
    ("bpchar", "a  "),
    ('"char"', "x"),
    ("name", "n" * 63),
    ("bytea", "\\x00ff"),
    ("float8", "1.7976931348623157e308"),
    ("float8", "5e-324"),
    ("float8", "0.1"),
    ("float4", "0.1"),
    ("float4", "1e-45"),
    ("numeric", "1" + "0" * 300 + ".10"),
    ("numeric(8,3)", "1.5"),
    ("money", "-1234.5"),
    ("interval", "1 year 2 mons -3 days 04:05:06.789"),
    ("timestamptz", "0044-03-15 12:00:00 BC"),
    ("timestamptz", "infinity"),
    ("timestamp(3)", "2026-01-01 12:00:00.123"),
    ("timetz", "12:00:00+02"),
    ("date", "5874897-12-31"),
    ("inet", "::1/64"),
    ("cidr", "10.0.0.0/8"),
    ("macaddr8", "08:00:2b:01:02:03:04:05"),
    ("uuid", "00000000-0000-0000-0000-00000000000a"),
    ("bit(3)", "101"),
    ("bit varying(9)", "1"),
    ("tsvector", "'a b':1A,2 'c'"),
    ("tsquery", "'a' & !'b':*"),
    ("point", "(0.1,-0)"),
    ("path", "[(0,0),(1,1)]"),
    ("polygon", "((0,0),(1,1),(1,0))"),
    ("circle", "<(0,0),0.1>"),
    ("line", "{1,-1,0.1}"),
    ("box[]", "{(1,1),(0,0);(2,2),(0,0)}"),
    ("oid", "4294967295"),
    ("xid8", "18446744073709551615"),
    ("pg_lsn", "FFFFFFFF/0"),
    ("regtype", "integer"),
    ("int2vector", "1 2"),
    ("jsonpath", '$."a"[*]?(@ > 1.0)'),
    ("json", '{ "b": 1.0,\n "a": 1e400, "a": "\\u00e9" }'),
    ("jsonb", '{"a": [1.00, null, "x\\"y"]}'),
    ("text[]", '{"a,b",NULL,"NULL","","{x}","\\"","\\\\"}'),
    ("int[]", "[0:1][2:3]={{1,2},{3,NULL}}"),
    ("tstzrange", '["2026-01-01 00:00+00",)'),
    ("datemultirange", "{[2026-01-01,2026-02-01),[2027-01-01,)}"),
    ("floatrange", "(-0,0.1]"),
    ("entry", '("a ""b""",1.50,"{""k"": [1.0]}")'),
    ("bill", '("{""(x,1.0,)"",NULL}","[1.0,2.00)")'),
    ("amounts", "{1.10,NULL}"),
    ("mood", "ok"),
    ("mood[]", "{ok,sad,NULL}"),
    ("citext", "aBc"),
    ("hstore", '"a b"=>"1", "c"=>NULL'),
]


async def test_the_text_of_every_cell_is_cast_to_the_value_that_was_there(server: Server) -> None:
    # P62
    cells = [(pair.type, cell) for pair in _PAIRS for cell in (pair.one, pair.other) if cell is not None]
    cells += _MORE
    sql = "".join(
        f"CREATE TABLE t{place} AS SELECT {literal(text, kind)} AS v;"
        for place, (kind, text) in enumerate(cells)
    )
    async with baseline_of(server, _TYPES) as name, cloned(server, name) as clone:
        await clone.run(sql)
        found = {table.table: table for table in (await clone.changes()).tables}
        async with connected(server, clone.name) as session:
            for place, (kind, _) in enumerate(cells):
                table = found[f"t{place}"]
                new = table.rows[0].new
                assert new is not None
                # Image equality: every byte, where `=` would call -0 and 0 the same.
                same = await session.fetchval(
                    f"SELECT record_image_eq(ROW(v), ROW({literal(new['v'], kind)})) FROM t{place}"
                )
                assert same, (kind, new["v"])
                assert new["v"] is not None


async def test_before_shows_every_type_as_it_was(server: Server) -> None:
    cells = [(pair.type, pair.one) for pair in _PAIRS if pair.one is not None and pair.type != "price"]
    cells += _MORE
    columns = ", ".join(f"{literal(text, kind)} AS c{place}" for place, (kind, text) in enumerate(cells))
    sql = f"CREATE TABLE all_types AS SELECT 1 AS id, {columns}; ALTER TABLE all_types ADD PRIMARY KEY (id);"
    nothing = ", ".join(f"c{place} = NULL" for place in range(len(cells)))
    async with baseline_of(server, _TYPES + sql) as name, cloned(server, name) as clone:
        async with connected(server, name) as session:
            was = await session.fetchrow("SELECT ROW(a.*)::text AS image FROM all_types a")
        await clone.run(f"UPDATE all_types SET {nothing}")
        changes = await clone.changes()
        async with connected(server, clone.name) as session:
            await session.execute("BEGIN")
            for statement in before_schema(changes):
                await session.execute(statement)
            shown = await session.fetchrow("SELECT ROW(a.*)::text AS image FROM before.all_types a")
            wrong = await session.fetch(
                """SELECT attname FROM pg_attribute a JOIN pg_attribute b USING (attname)
                WHERE a.attrelid = 'before.all_types'::regclass AND b.attrelid = 'public.all_types'::regclass
                  AND a.attnum > 0 AND (a.atttypid, a.atttypmod) <> (b.atttypid, b.atttypmod)"""
            )
            await session.execute("ROLLBACK")
    assert shown["image"] == was["image"]
    assert wrong == []


async def test_a_type_that_shadows_a_built_in_one_is_not_taken_for_it(server: Server) -> None:
    sql = """
    CREATE SCHEMA hostile;
    CREATE DOMAIN hostile."numeric" AS text;
    CREATE DOMAIN hostile.json AS text;
    CREATE TABLE t (id int PRIMARY KEY, n hostile."numeric", j hostile.json);
    INSERT INTO t VALUES (1, '1.0', '{"a": 1}');
    """
    async with baseline_of(server, sql) as name, cloned(server, name) as clone:
        await clone.run("UPDATE t SET n = '1.00', j = '{\"a\":1}'")
        (table,) = (await clone.changes()).tables
    assert table.rows[0].changed == ("n", "j")


async def test_a_key_is_the_same_key_in_another_spelling(server: Server) -> None:
    sql = (
        "CREATE TABLE t (k numeric PRIMARY KEY, r numrange, v int); INSERT INTO t VALUES (1.0, '[1.0,2)', 1);"
    )
    async with baseline_of(server, sql) as name, cloned(server, name) as clone:
        await clone.run("UPDATE t SET k = 1.000, r = '[1,2.00)', v = 2")
        (row,) = (await clone.changes()).tables[0].rows
    assert (row.op, row.changed) == ("update", ("v",))
