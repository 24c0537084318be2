"""Random histories: the schema `before` shows the rows of the baseline, whatever the fork did to them."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.clones import baseline_of, cloned
from support.databases import connected

from redteam_forker.changes import before_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

_SCHEMA = """
CREATE TABLE keyed (id int PRIMARY KEY, v text, n numeric);
INSERT INTO keyed SELECT g, 'v' || g % 3, g FROM generate_series(1, 40) g;
CREATE TABLE bag (a int, v text);
INSERT INTO bag SELECT g % 5, 'v' || g % 2 FROM generate_series(1, 20) g;
CREATE TABLE split (id int, part int, v text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE split_0 PARTITION OF split FOR VALUES IN (0);
CREATE TABLE split_1 PARTITION OF split FOR VALUES IN (1);
INSERT INTO split SELECT g, g % 2, 'v' FROM generate_series(1, 20) g;
CREATE TABLE base (id int PRIMARY KEY, v text);
CREATE TABLE derived (PRIMARY KEY (id)) INHERITS (base);
INSERT INTO base SELECT g, 'b' FROM generate_series(1, 5) g;
INSERT INTO derived SELECT g, 'd' FROM generate_series(6, 10) g;
CREATE SCHEMA "Other one";
CREATE TABLE "Other one".docs (code text NOT NULL UNIQUE, j jsonb);
INSERT INTO "Other one".docs SELECT 'c' || g, jsonb_build_object('n', g) FROM generate_series(1, 8) g;
"""
_TABLES = {
    "keyed": ("id", "v", "n"),
    "bag": ("a", "v"),
    "split": ("id", "part", "v"),
    "ONLY base": ("id", "v"),
    "derived": ("id", "v"),
    '"Other one".docs': ("code", "j"),
}
_NUMBER = st.integers(1, 45)
_TEXT = st.sampled_from(["v0", "v1", "", "x,y", '"', "\\", "(", " "])
_CLASH = " ON CONFLICT DO NOTHING"


def _sql(template: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda drawn: template.format(*(str(part) for part in drawn)))


_STATEMENTS = st.one_of(
    _sql("INSERT INTO keyed VALUES ({0}, '{1}', {0})" + _CLASH, _NUMBER, _TEXT),
    _sql("UPDATE keyed SET v = '{1}' WHERE id % {0} = 0", _NUMBER, _TEXT),
    _sql("UPDATE keyed SET n = n + 0.00 WHERE id < {0}", _NUMBER),
    _sql("UPDATE keyed SET v = v WHERE id > {0}", _NUMBER),
    _sql(
        "UPDATE keyed SET id = id + 100 WHERE id = {0} "
        "AND NOT EXISTS (SELECT FROM keyed WHERE id = {0} + 100)",
        _NUMBER,
    ),
    _sql("DELETE FROM keyed WHERE id = {0}", _NUMBER),
    _sql("INSERT INTO bag VALUES ({0} % 5, '{1}')", _NUMBER, _TEXT),
    _sql("UPDATE bag SET v = '{1}' WHERE a = {0} % 5", _NUMBER, _TEXT),
    _sql("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE a = {0} % 5)", _NUMBER),
    _sql("INSERT INTO split VALUES ({0}, {0} % 2, '{1}')" + _CLASH, _NUMBER, _TEXT),
    _sql("UPDATE split SET part = 1 - part WHERE id = {0}", _NUMBER),
    _sql("DELETE FROM split WHERE id % {0} = 1", _NUMBER),
    _sql("UPDATE base SET v = '{1}' WHERE id % {0} = 0", _NUMBER, _TEXT),
    _sql("INSERT INTO derived VALUES ({0} + 200, '{1}')" + _CLASH, _NUMBER, _TEXT),
    _sql("DELETE FROM ONLY base WHERE id = {0}", _NUMBER),
    _sql("UPDATE \"Other one\".docs SET j = j || '{{\"n\": 1.0}}' WHERE code > 'c{0}'", _NUMBER),
    _sql("INSERT INTO \"Other one\".docs VALUES ('c{0}', 'null')" + _CLASH, _NUMBER),
    _sql("DELETE FROM \"Other one\".docs WHERE code = 'c{0}'", _NUMBER),
    st.sampled_from(
        [
            "SELECT * FROM keyed FOR UPDATE",
            "TRUNCATE bag",
            "TRUNCATE split_0",
            "TRUNCATE derived",
            "DELETE FROM keyed",
        ]
    ),
)
_PLAIN = _STATEMENTS
_UNDONE = st.lists(_STATEMENTS, min_size=1, max_size=3).map(
    lambda many: "; ".join(["BEGIN", *many, "ROLLBACK"])
)
_PARTLY = st.tuples(_STATEMENTS, _STATEMENTS, _STATEMENTS).map(
    lambda three: f"BEGIN; {three[0]}; SAVEPOINT s; {three[1]}; ROLLBACK TO s; {three[2]}; COMMIT"
)
_UPKEEP = st.sampled_from(
    ["VACUUM", "VACUUM (FREEZE) keyed", "VACUUM FULL bag", "CLUSTER keyed USING keyed_pkey", "ANALYZE"]
)
_HISTORIES = st.lists(st.one_of(_PLAIN, _PLAIN, _PLAIN, _UNDONE, _PARTLY, _UPKEEP), max_size=8)


@pytest.fixture(scope="module")
async def baseline(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, _SCHEMA) as name:
        yield name


async def every_row(server: Server, database: str) -> dict[str, list[tuple[str | None, ...]]]:
    """By the plainest of ways: each cell cast to text."""
    rows = {}
    async with connected(server, database) as session:
        for table, columns in _TABLES.items():
            cells = ", ".join(f"{column}::text" for column in columns)
            rows[table] = [tuple(row) for row in await session.fetch(f"SELECT {cells} FROM {table}")]
    return rows


def same(table: str, row: tuple[str | None, ...]) -> tuple[object, ...]:
    """What a row is equal by; jsonb prints 1.0 and 1 as they were written."""
    if table == "keyed":
        return (*row[:2], Decimal(row[2]) if row[2] is not None else None)
    if table == '"Other one".docs':
        return (row[0], (row[1] or "").replace("1.0", "1"))
    return row


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=_HISTORIES)
async def test_the_before_views_show_the_rows_of_the_baseline(
    server: Server, baseline: str, history: list[str]
) -> None:
    async with cloned(server, baseline) as fork:
        await fork.run(*history)
        changes = await fork.changes()
        before = await every_row(server, baseline)
        async with connected(server, fork.name) as session:
            transaction = session.transaction()
            await transaction.start()
            for statement in before_schema(changes):
                await session.execute(statement)
            for table, columns in _TABLES.items():
                view = {'"Other one".docs': 'before."Other one.docs"'}.get(table, f"before.{table}")
                cells = ", ".join(f"{column}::text" for column in columns)
                if table == "ONLY base":  # the view shows a parent as its table does, children and all
                    view, wanted = "before.base", before["ONLY base"] + before["derived"]
                else:
                    wanted = before[table]
                rows = [tuple(row) for row in await session.fetch(f"SELECT {cells} FROM {view}")]
                assert Counter(same(table, row) for row in rows) == Counter(
                    same(table, row) for row in wanted
                )
            leaf = await session.fetch("SELECT id::text, part::text, v FROM before.split_1")
            await transaction.rollback()
    assert sorted(tuple(row) for row in leaf) == sorted(row for row in before["split"] if row[1] == "1")
