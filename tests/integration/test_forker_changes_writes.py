"""Who wrote what on the way: also what is no longer there to see, and who deleted a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected
from support.versions import NotFoundError, foreign_server, programs_of

from redteam_forker.changes import CallSpan, attributed, since, tables, writes
from redteam_forker.servers import open_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from redteam_forker.changes import ChangeSet
    from redteam_forker.servers import Server

_SQL = """
CREATE TABLE keyed (id int PRIMARY KEY, v text, code text UNIQUE);
INSERT INTO keyed SELECT g, 'v', 'c' || g FROM generate_series(1, 50) g;
CREATE TABLE bag (a int, v text);
INSERT INTO bag SELECT g, 'v' FROM generate_series(1, 50) g;
CREATE TABLE split (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE split_0 PARTITION OF split FOR VALUES IN (0);
CREATE TABLE split_1 PARTITION OF split FOR VALUES IN (1);
INSERT INTO split SELECT g, 0 FROM generate_series(1, 20) g;
"""
# xid (numbered from the fork's first), table, op, rows
Told = tuple[int, str, str, int]


@pytest.fixture(scope="module")
async def baseline(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, _SQL) as name:
        yield name


@pytest.fixture
async def fork(server: Server, baseline: str) -> AsyncIterator[Clone]:
    async with cloned(server, baseline) as clone:
        yield clone


async def wrote(fork: Clone, *transactions: str) -> list[int]:
    """Run each in a transaction of its own; their ids."""
    async with connected(fork.server, fork.name) as session:
        return [await one(session, statements) for statements in transactions]


async def one(session: asyncpg.Connection, statements: str) -> int:
    async with session.transaction():
        await session.execute(statements)
        xid: int = await session.fetchval("SELECT pg_current_xact_id()::text::int8")
        return xid


def told(changes: ChangeSet) -> list[tuple[int, str, str, int]]:
    return [(write.xid, write.table, write.op, write.rows) for write in changes.writes]


async def test_an_update_that_was_taken_back_is_seen(fork: Clone) -> None:
    there, back = await wrote(
        fork, "UPDATE keyed SET v = 'x' WHERE id = 7", "UPDATE keyed SET v = 'v' WHERE id = 7"
    )
    changes = await fork.changes()
    assert changes.tables == ()
    assert told(changes) == [(there, "keyed", "update", 1), (back, "keyed", "update", 1)]


async def test_a_row_that_came_and_went_is_seen(fork: Clone) -> None:
    came, went, both = await wrote(
        fork,
        "INSERT INTO bag VALUES (100, 'x'), (101, 'x')",
        "DELETE FROM bag WHERE a > 99",
        "INSERT INTO keyed VALUES (100); DELETE FROM keyed WHERE id = 100",
    )
    changes = await fork.changes()
    assert changes.tables == ()
    assert told(changes) == [
        (came, "bag", "insert", 2),
        (went, "bag", "delete", 2),
        (both, "keyed", "delete", 1),
        (both, "keyed", "insert", 1),
    ]


async def test_what_was_rolled_back_or_only_locked_was_not_written(fork: Clone) -> None:
    await fork.run(
        "BEGIN; UPDATE keyed SET v = 'x'; DELETE FROM bag; INSERT INTO bag VALUES (1); ROLLBACK",
        "SELECT * FROM keyed FOR UPDATE",
        "SELECT * FROM keyed FOR KEY SHARE",
    )
    (xid,) = await wrote(
        fork,
        "SAVEPOINT s; UPDATE keyed SET v = 'x' WHERE id = 1; ROLLBACK TO s; DELETE FROM keyed WHERE id = 2",
    )
    changes = await fork.changes()
    assert [(write.table, write.op, write.rows) for write in changes.writes] == [("keyed", "delete", 1)]
    (row,) = changes.tables[0].rows
    # What is written after ROLLBACK TO has the savepoint's id again, or the transaction's.
    assert row.xid == changes.writes[0].xid
    assert row.xid is not None
    assert row.xid >= xid


@pytest.mark.parametrize(
    ("transactions", "deleter"),
    [
        pytest.param(["DELETE FROM keyed WHERE id = 7"], 0, id="delete"),
        pytest.param(
            ["UPDATE keyed SET v = 'x' WHERE id = 7", "DELETE FROM keyed WHERE id = 7"], 1, id="after-update"
        ),
        pytest.param(
            ["UPDATE keyed SET code = 'x' WHERE id = 7", "DELETE FROM keyed WHERE id = 7"],
            1,
            id="after-other-key",
        ),
        pytest.param(
            ["UPDATE keyed SET v = 'x' WHERE id = 7", "UPDATE keyed SET id = 70 WHERE id = 7"],
            1,
            id="key-update",
        ),
        pytest.param(
            ["UPDATE keyed SET id = 70 WHERE id = 7", "UPDATE keyed SET v = 'x' WHERE id = 70"],
            0,
            id="then-update",
        ),
        pytest.param(
            ["SELECT FROM keyed WHERE id = 7 FOR UPDATE", "DELETE FROM keyed WHERE id = 7"], 1, id="locked"
        ),
    ],
)
async def test_a_deleted_row_names_who_deleted_it(fork: Clone, transactions: list[str], deleter: int) -> None:
    xids = await wrote(fork, *transactions)
    (table,) = (await fork.changes()).tables
    assert [row.xid for row in table.rows if row.op == "delete"] == [xids[deleter]]


async def test_of_a_table_without_key_a_row_was_taken_away_by_its_first_update(fork: Clone) -> None:
    first, second = await wrote(
        fork, "UPDATE bag SET v = 'x' WHERE a = 7", "UPDATE bag SET v = 'y' WHERE a = 7"
    )
    (table,) = (await fork.changes()).tables
    assert [(row.op, row.xid) for row in table.rows] == [("delete", first), ("insert", second)]


async def test_a_row_that_moved_to_another_partition_names_who_moved_it(fork: Clone) -> None:
    (xid,) = await wrote(fork, "UPDATE split SET part = 1 WHERE id = 7")
    changes = await fork.changes()
    assert [(row.op, row.xid) for row in changes.tables[0].rows] == [("delete", xid), ("insert", xid)]
    assert told(changes) == [(xid, "split", "delete", 1), (xid, "split", "insert", 1)]


async def test_an_update_beside_somebody_elses_lock_is_told_apart(fork: Clone) -> None:
    # Both are one number on the row, a multixact.
    async with connected(fork.server, fork.name) as locker:
        lock = locker.transaction()
        await lock.start()
        await locker.execute("SELECT FROM bag WHERE a = 7 FOR KEY SHARE")
        await locker.execute("SELECT FROM bag WHERE a = 8 FOR KEY SHARE")
        (xid,) = await wrote(fork, "UPDATE bag SET v = 'x' WHERE a = 7")
        async with connected(fork.server, fork.name) as other:
            await other.execute("SELECT FROM bag WHERE a = 8 FOR KEY SHARE")
        await lock.commit()
    changes = await fork.changes()
    assert told(changes) == [(xid, "bag", "update", 1)]
    assert [(row.op, row.xid) for row in changes.tables[0].rows] == [("delete", xid), ("insert", xid)]


async def test_a_deleted_row_whose_versions_were_vacuumed_away_names_nobody(fork: Clone) -> None:
    await fork.run("DELETE FROM keyed WHERE id = 7", "VACUUM keyed")
    changes = await fork.changes()
    (row,) = changes.tables[0].rows
    assert (row.op, row.xid, changes.writes) == ("delete", None, ())


async def test_where_there_were_too_many_versions_the_rows_that_are_left_tell(
    fork: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "PAGES", 0)
    xids = await wrote(
        fork,
        "UPDATE keyed SET v = 'x' WHERE id < 4",
        "UPDATE keyed SET v = 'v' WHERE id = 1",
        "DELETE FROM keyed WHERE id = 40",
        "INSERT INTO bag VALUES (1)",
    )
    by_pages = await fork.changes()
    monkeypatch.setattr(writes, "PAGES", 100)
    monkeypatch.setattr(writes, "VERSIONS", 3)
    by_versions = await fork.changes()
    monkeypatch.setattr(tables, "VERSIONS", 3)
    by_rows = await fork.changes()
    assert told(by_pages) == [
        (xids[0], "keyed", "update", 2),
        (xids[1], "keyed", "update", 1),
        (xids[3], "bag", "insert", 1),
    ]
    assert told(by_versions) == told(by_rows) == told(by_pages)
    assert [row.xid for row in by_pages.tables[1].rows if row.op == "delete"] == [None]


async def test_without_pageinspect_the_rows_that_are_left_tell(anyio_backend: str) -> None:
    try:
        programs = await anyio.to_thread.run_sync(programs_of, 16)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with (
        foreign_server(programs) as dsn,
        open_server(dsn) as server,
        baseline_of(server, _SQL) as baseline,
        cloned(server, baseline) as fork,
    ):
        xids = await wrote(
            fork, "UPDATE keyed SET v = 'x' WHERE id = 1", "UPDATE keyed SET v = 'v' WHERE id = 1"
        )
        changes = await fork.changes()
    if any(table.method == "pages" for table in changes.tables):
        pytest.skip("this PostgreSQL 16 has pageinspect")
    assert changes.tables == ()
    assert told(changes) == [(xids[1], "keyed", "update", 1)]


async def test_a_rewritten_table_keeps_its_writers(fork: Clone) -> None:
    xids = await wrote(fork, "UPDATE keyed SET v = 'x' WHERE id < 4", "INSERT INTO keyed VALUES (90)")
    await fork.run("VACUUM FULL keyed")
    assert told(await fork.changes()) == [(xids[0], "keyed", "update", 3), (xids[1], "keyed", "insert", 1)]


async def test_writes_and_deletes_name_the_call_that_did_them(fork: Clone) -> None:
    first, second, background = await wrote(
        fork,
        "UPDATE keyed SET v = 'x' WHERE id = 7",
        "UPDATE keyed SET v = 'v' WHERE id = 7; DELETE FROM bag WHERE a = 3",
        "DELETE FROM bag WHERE a = 4",
    )
    calls = [
        CallSpan(call="book", first=first, end=first + 1),
        CallSpan(call="undo", first=second, end=second + 1),
    ]
    changes = attributed(await fork.changes(), calls)
    assert [(write.xid, write.op, write.by) for write in changes.writes] == [
        (first, "update", ("book",)),
        (second, "delete", ("undo",)),
        (second, "update", ("undo",)),
        (background, "delete", ()),
    ]
    assert [row.by for row in changes.tables[0].rows] == [("undo",), ()]


async def test_writes_of_the_setup_are_taken_away_with_its_rows(fork: Clone) -> None:
    await wrote(
        fork,
        "UPDATE keyed SET v = 'x' WHERE id = 7; DELETE FROM bag WHERE a < 3",
        "INSERT INTO bag VALUES (90)",
    )
    setup = await fork.changes()
    (xid,) = await wrote(fork, "UPDATE keyed SET v = 'v' WHERE id = 7; DELETE FROM bag WHERE a > 48")
    after = since(await fork.changes(), setup)
    assert told(after) == [(xid, "bag", "delete", 3), (xid, "keyed", "update", 1)]
    rows = {table.table: [(row.op, row.xid) for row in table.rows] for table in after.tables}
    assert rows["bag"] == [("delete", xid), ("delete", xid), ("delete", None)]
    assert [(op, xid) for op, xid in rows["keyed"]] == [("update", None)]
