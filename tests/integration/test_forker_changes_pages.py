"""Only the pages that a fork wrote to are read, whatever VACUUM did to them; and other ways are as exact."""

from __future__ import annotations

import contextlib
import secrets
import tracemalloc
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected
from support.versions import NotFoundError, foreign_server, programs_of
from support.zoo import ZOO

from redteam_forker.changes import candidates, collect_changes, scan, tables
from redteam_forker.servers import open_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.changes import ChangeSet
    from redteam_forker.servers import Server

# 400 pages: too many to be compared one by one without a reason.
_LONG = """
CREATE TABLE long (id int PRIMARY KEY, v text);
INSERT INTO long SELECT g, repeat('x', 1000) FROM generate_series(1, 2800) g;
"""
_SHORT = """
CREATE TABLE short (id int PRIMARY KEY, v text);
INSERT INTO short SELECT g, repeat('x', 1000) FROM generate_series(1, 70) g;
"""


@pytest.fixture(scope="module", params=[15, 18], ids=str)
async def any_server(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Server]:
    """Two releases: in one only VACUUM stamps the pages of a visibility map, in the other all writes do."""
    try:
        programs = await anyio.to_thread.run_sync(programs_of, request.param)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn, open_server(dsn) as server:
        yield server


@pytest.fixture(scope="module")
async def long(any_server: Server) -> AsyncIterator[str]:
    async with baseline_of(any_server, _LONG) as name:
        yield name


@pytest.fixture(scope="module")
async def short(any_server: Server) -> AsyncIterator[str]:
    async with baseline_of(any_server, _SHORT) as name:
        yield name


def told(changes: ChangeSet) -> list[tuple[str, str | None, list[tuple[str, str]]]]:
    """Of each table its method, the reason for it, and what happened to which ids."""
    return [
        (table.method, table.reason, [(row.op, (row.key or {})["id"]) for row in table.rows])
        for table in changes.tables
    ]


@contextlib.asynccontextmanager
async def quiet(server: Server) -> AsyncIterator[None]:
    """While the server does not vacuum by itself."""
    async with connected(server) as admin:
        await admin.execute("ALTER SYSTEM SET autovacuum = off")
        await admin.execute("SELECT pg_reload_conf()")
        with anyio.fail_after(20):
            while await admin.fetchval("SHOW autovacuum") != "off":  # noqa: ASYNC110 - a server sets no event
                await anyio.sleep(0.005)
        try:
            yield
        finally:
            await admin.execute("ALTER SYSTEM RESET autovacuum")
            await admin.execute("SELECT pg_reload_conf()")


async def test_pages_that_the_fork_did_not_write_to_are_not_read(any_server: Server) -> None:
    # Shown by what must never be: a baseline that changed, on another page than the fork.
    async with (
        quiet(any_server),
        baseline_of(any_server, _LONG) as baseline,
        cloned(any_server, baseline) as fork,
    ):
        await fork.run("DELETE FROM long WHERE id = 2000")
        assert told(await fork.changes()) == [("pages", None, [("delete", "2000")])]
        async with connected(any_server, baseline) as session:
            await session.execute("UPDATE long SET v = 'y' WHERE id IN (1, 2000)")
        assert told(await fork.changes()) == [("pages", None, [("delete", "2000")])]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["DELETE FROM long WHERE id = 3", "VACUUM long"], [("delete", "3")]),
        (["DELETE FROM long WHERE id = 3", "VACUUM (FREEZE) long"], [("delete", "3")]),
        (
            [
                "UPDATE long SET v = 'n' WHERE id = 3",
                "VACUUM (FREEZE) long",
                "DELETE FROM long WHERE id = 900",
            ],
            [("update", "3"), ("delete", "900")],
        ),
        (
            ["SELECT * FROM long WHERE id > 2700 FOR UPDATE", "DELETE FROM long WHERE id = 3", "VACUUM long"],
            [("delete", "3")],
        ),
        (
            [
                "DELETE FROM long WHERE id < 6",
                "VACUUM (FREEZE, INDEX_CLEANUP on) long",
                "INSERT INTO long VALUES (3, 'again'), (9000, 'new')",
                "VACUUM (FREEZE) long",
            ],
            [
                ("delete", "1"),
                ("delete", "2"),
                ("update", "3"),
                ("delete", "4"),
                ("delete", "5"),
                ("insert", "9000"),
            ],
        ),
        (
            ["DELETE FROM long WHERE id > 2798", "VACUUM (TRUNCATE) long"],
            [("delete", "2799"), ("delete", "2800")],
        ),
        (
            [
                "DELETE FROM long WHERE id > 2700",
                "VACUUM (FREEZE) long",
                "INSERT INTO long SELECT g, repeat('x', 1000) FROM generate_series(2703, 2800) g",
                "VACUUM (FREEZE) long",
            ],
            [("delete", "2701"), ("delete", "2702")],
        ),
    ],
)
async def test_a_vacuum_hides_nothing(
    any_server: Server, long: str, statements: list[str], expected: list[tuple[str, str]]
) -> None:
    async with quiet(any_server), cloned(any_server, long) as fork:
        await fork.run(*statements)
        assert told(await fork.changes()) == [("pages", None, expected)]


async def cancelled_vacuum(fork: Clone, table: str, *, stop_before: int) -> None:
    """Begin a VACUUM, and cancel it where it waits for a page that a cursor holds."""
    async with (
        connected(fork.server, fork.name) as holder,
        connected(fork.server, fork.name) as session,
        connected(fork.server) as admin,
    ):
        # The lock is something to freeze, for which VACUUM waits.
        await holder.execute(f"SELECT FROM {table} WHERE id = {stop_before} FOR UPDATE")
        await holder.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
        await holder.execute(
            f"BEGIN; DECLARE held CURSOR FOR SELECT * FROM {table} WHERE id > {stop_before}; "
            "FETCH 1 FROM held"
        )
        pid = session.get_server_pid()
        async with anyio.create_task_group() as group:
            group.start_soon(_expect_cancel, session, f"VACUUM (FREEZE) {table}")
            query = f"SELECT wait_event_type FROM pg_stat_activity WHERE pid = {pid}"
            with anyio.fail_after(20):
                while await admin.fetchval(query) != "BufferPin":  # noqa: ASYNC110 - a server sets no event
                    await anyio.sleep(0.005)
            await admin.execute(f"SELECT pg_cancel_backend({pid})")
        await holder.execute("ROLLBACK")


async def _expect_cancel(session: asyncpg.Connection, statement: str) -> None:
    with pytest.raises(asyncpg.QueryCanceledError):
        await session.execute(statement)


async def test_a_vacuum_that_was_cancelled_hides_nothing(any_server: Server, short: str) -> None:
    # It set bits again, and left no trace in any catalog or counter.
    async with cloned(any_server, short) as fork:
        await fork.run("DELETE FROM short WHERE id = 1")
        await cancelled_vacuum(fork, "short", stop_before=50)
        assert told(await fork.changes()) == [("pages", None, [("delete", "1")])]


async def test_a_cancelled_vacuum_of_who_owns_a_long_table_hides_nothing(any_server: Server) -> None:
    owner = f"owner_{secrets.token_hex(4)}"
    async with quiet(any_server), connected(any_server) as admin:
        await admin.execute(f"CREATE ROLE {owner} LOGIN")
        try:
            async with (
                baseline_of(any_server, f"{_LONG} ALTER TABLE long OWNER TO {owner}") as baseline,
                cloned(any_server, baseline) as fork,
            ):
                await fork.run("DELETE FROM long WHERE id = 1")
                await cancelled_vacuum(fork, "long", stop_before=50)
                assert told(await fork.changes()) == [("pages", None, [("delete", "1")])]
        finally:
            await admin.execute(f"DROP ROLE {owner}")


async def test_a_cancelled_vacuum_by_the_server_itself_hides_nothing(any_server: Server, long: str) -> None:
    # Where it may vacuum by itself, as on most servers, the pages of long tables are compared too.
    async with cloned(any_server, long) as fork:
        await fork.run("DELETE FROM long WHERE id = 1")
        await cancelled_vacuum(fork, "long", stop_before=50)
        assert told(await fork.changes()) == [("pages", None, [("delete", "1")])]


async def test_a_baseline_that_was_not_frozen_is_compared_by_all_its_pages(any_server: Server) -> None:
    async with (
        baseline_of(any_server, _SHORT) as baseline,
        connected(any_server, baseline) as session,
    ):
        await session.execute("UPDATE short SET v = 'written after the freeze' WHERE id = 7")
        await session.close()
        async with cloned(any_server, baseline) as fork:
            assert told(await fork.changes()) == []
            await fork.run("UPDATE short SET v = 'n' WHERE id = 60")
            assert told(await fork.changes()) == [("pages", None, [("update", "60")])]


async def test_a_fork_that_was_copied_through_the_log_is_scanned(any_server: Server, short: str) -> None:
    # P14, P16: its pages have the stamps of the copying.
    name = f"logged_{secrets.token_hex(4)}"
    async with connected(any_server) as admin:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {short} STRATEGY WAL_LOG")
        try:
            watermark = await admin.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8")
            fork = Clone(server=any_server, baseline=short, name=name, watermark=watermark)
            # Frozen rows keep their xmin, and places that are used again hold new rows.
            await fork.run(
                "DELETE FROM short WHERE id = 1",
                "UPDATE short SET v = 'n' WHERE id = 9",
                "VACUUM (FREEZE) short",
                "INSERT INTO short VALUES (100, repeat('x', 1000))",
                "VACUUM (FREEZE) short",
            )
            ((method, reason, rows),) = told(await fork.changes())
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert (method, rows) == ("xmin", [("delete", "1"), ("update", "9"), ("insert", "100")])
    assert reason == "the fork was copied through the log (WAL_LOG), which gave every page a new stamp"


async def test_a_server_without_pageinspect_is_scanned(anyio_backend: str) -> None:
    try:
        programs = await anyio.to_thread.run_sync(programs_of, 16)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn, open_server(dsn) as server, connected(server) as session:
        if await session.fetchval("SELECT count(*) FROM pg_available_extensions WHERE name = 'pageinspect'"):
            pytest.skip("this PostgreSQL 16 has pageinspect")
        async with baseline_of(server, _SHORT) as baseline, cloned(server, baseline) as fork:
            await fork.run("DELETE FROM short WHERE id = 1", "VACUUM short", "INSERT INTO short VALUES (1)")
            expected = [("xmin", "this server has no pageinspect library", [("update", "1")])]
            assert told(await fork.changes()) == expected


async def test_an_event_trigger_of_the_seed_is_not_run(any_server: Server) -> None:
    # P28: what reads pages is made by DDL, in a transaction of ours.
    sql = f"""
        {_SHORT}
        CREATE TABLE ddl (tag text);
        CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$
          BEGIN RAISE EXCEPTION 'it was run'; END $$;
        CREATE EVENT TRIGGER note ON ddl_command_start EXECUTE FUNCTION note();
    """
    async with baseline_of(any_server, sql) as baseline, cloned(any_server, baseline) as fork:
        await fork.run("DELETE FROM short WHERE id = 1")
        changes = await fork.changes()
    older = ("xmin", "an event trigger of the database would run", [("delete", "1")])
    newer = ("pages", None, [("delete", "1")])
    assert told(changes) == [newer if any_server.facts.version_num >= 170000 else older]
    assert changes.objects == ()


async def test_a_collection_leaves_nothing_in_the_fork(any_server: Server, short: str) -> None:
    # An agent that is asked again after a look at its fork must not see that there was one.
    query = """
        SELECT (SELECT array_agg(oid ORDER BY oid)::text FROM pg_proc),
          (SELECT array_agg(nspname ORDER BY oid)::text FROM pg_namespace),
          (SELECT array_agg(extname)::text FROM pg_extension), (SELECT count(*) FROM pg_depend)
    """
    async with cloned(any_server, short) as fork, connected(any_server, fork.name) as agent:
        before = tuple(await agent.fetchrow(query))
        await agent.execute("DELETE FROM short WHERE id = 1")
        first = await fork.changes()
        assert tuple(await agent.fetchrow(query)) == before
        assert (await fork.changes()).to_json() == first.to_json()
        assert first.objects == ()


async def test_a_baseline_is_not_written_to(any_server: Server, short: str) -> None:
    # Its sessions are read-only by default; the functions that read its pages are rolled back too.
    async with cloned(any_server, short) as fork:
        await fork.run("DELETE FROM short WHERE id = 1")
        assert len((await fork.changes()).tables) == 1
    async with connected(any_server, short) as session:
        left = await session.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pg\\_temp\\_%'")
    assert left == 0


_MANY_KINDS = [
    "UPDATE many SET v = 'u' WHERE id % 3 = 0",
    "DELETE FROM many WHERE id % 5 = 1",
    "INSERT INTO many SELECT g, 'i' || g FROM generate_series(5001, 5400) g",
    "UPDATE many SET v = v WHERE id % 7 = 0",
    "INSERT INTO keyless SELECT g % 3, 'k' FROM generate_series(1, 40) g",
    "DELETE FROM keyless WHERE a = 1",
    "UPDATE measure SET at = '2026-07-07' WHERE id = 1",
    "UPDATE doc SET j = '[1.0]', jb = '{\"a\": 1.00}'",
    "UPDATE plain SET price = price * 1.0, id = id + 20 WHERE id < 3",
    "UPDATE paired SET v = 9, b = 'z' WHERE a = 2",
    "UPDATE made SET a = 7 WHERE id = 2",
]


async def test_many_changes_are_told_like_few(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # P76: they are read in streams, both sides in one order.
    async with baseline_of(server, ZOO) as baseline, cloned(server, baseline) as fork:
        await fork.run(*_MANY_KINDS)
        few = await fork.changes()
        monkeypatch.setattr(tables, "_FEW", -1)
        streamed = await fork.changes()
        monkeypatch.setattr(scan, "_NAMED_PLACES", 0)  # more rows than can be named are gone
        monkeypatch.setattr(scan, "_BATCH", 3)
        whole_pages = await fork.changes()
    assert [table.table for table in few.tables] == [
        "doc",
        "keyless",
        "made",
        "many",
        "measure",
        "paired",
        "plain",
    ]
    assert streamed.to_json() == few.to_json()
    assert whole_pages.to_json() == few.to_json()


async def test_the_ways_to_find_rows_agree(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with baseline_of(server, ZOO) as baseline, cloned(server, baseline) as fork:
        await fork.run(*_MANY_KINDS)
        found = {"pages": await fork.changes()}
        monkeypatch.setattr(candidates.Search, "_why_no_pages", lambda *_: "a test")
        found["xmin"] = await fork.changes()
        monkeypatch.setattr(tables.TableComparison, "_why_whole", lambda *_: "a test")
        found["keys"] = await fork.changes()
    assert {name: changes.hash for name, changes in found.items()} == dict.fromkeys(
        found, found["pages"].hash
    )
    methods = {name: {table.method for table in changes.tables} for name, changes in found.items()}
    assert methods == {"pages": {"pages"}, "xmin": {"xmin"}, "keys": {"keys", "multiset"}}


async def test_of_too_many_changes_some_are_kept_and_all_are_counted(server: Server) -> None:
    async with baseline_of(server, ZOO) as baseline:

        async def collected(*statements: str, keep: int) -> ChangeSet:
            async with cloned(server, baseline) as fork:
                await fork.run(*statements)
                return await collect_changes(
                    server, baseline=baseline, fork=fork.name, watermark=fork.watermark, keep_rows=keep
                )

        some = (
            "UPDATE plain SET name = 'z'",
            "DELETE FROM many WHERE id <= 1000",
            "INSERT INTO single VALUES ('y')",
        )
        changes = await collected(*some, keep=11)
        # Who ended alike has the same ones, however it came there.
        again = await collected("UPDATE many SET v = v", *some[::-1], "VACUUM FULL many", keep=11)
        nothing = await collected("UPDATE plain SET name = 'z', price = price + 0.0", keep=0)
    assert [(table.table, len(table.rows), table.omitted) for table in changes.tables] == [
        ("many", 11, 989),
        ("plain", 0, 4),
        ("single", 0, 1),
    ]
    assert again.hash == changes.hash
    assert [(table.table, table.rows, table.omitted) for table in nothing.tables] == [("plain", (), 4)]


async def test_a_table_that_took_the_name_of_one_that_was_dropped_hides_it_not(server: Server) -> None:
    async with baseline_of(server, ZOO) as baseline, cloned(server, baseline) as fork:
        await fork.run(
            "DROP TABLE coded",
            "ALTER TABLE plain RENAME TO coded",
            "UPDATE coded SET name = 'z' WHERE id = 1",
        )
        changes = await fork.changes()
    assert sorted((table.table, table.method, len(table.rows)) for table in changes.tables) == [
        ("coded", "keys", 2),
        ("coded", "pages", 1),
    ]


async def test_a_table_of_which_every_row_changed_is_compared_in_little_memory(server: Server) -> None:
    # P76
    rows, width = 30_000, 500
    sql = f"""
        CREATE TABLE wide (id int PRIMARY KEY, v text);
        INSERT INTO wide SELECT g, repeat('y', {width}) FROM generate_series(1, {rows}) g;
    """
    async with baseline_of(server, sql) as baseline, cloned(server, baseline) as fork:
        await fork.run("UPDATE wide SET v = v || 'x'")
        tracemalloc.start()
        try:
            changes = await collect_changes(
                server, baseline=baseline, fork=fork.name, watermark=fork.watermark, keep_rows=10
            )
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    (table,) = changes.tables
    assert (table.method, len(table.rows), table.omitted) == ("pages", 10, rows - 10)
    assert peak < rows * width / 2
