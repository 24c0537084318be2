"""The schema `before`: what rules read beside the end state."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected
from support.zoo import ZOO

from redteam_forker.changes import ChangeSet, before_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server


@pytest.fixture(scope="module")
async def zoo(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, ZOO) as name:
        yield name


@pytest.fixture
async def fork(server: Server, zoo: str) -> AsyncIterator[Clone]:
    async with cloned(server, zoo) as clone:
        yield clone


@contextlib.asynccontextmanager
async def shown(fork: Clone, changes: ChangeSet | None = None) -> AsyncIterator[asyncpg.Connection]:
    changes = changes or await fork.changes()
    async with connected(fork.server, fork.name) as session:
        transaction = session.transaction()
        await transaction.start()
        for statement in before_schema(changes):
            await session.execute(statement)
        yield session
        await transaction.rollback()


async def test_an_untouched_fork_has_a_view_for_each_table(fork: Clone) -> None:
    async with shown(fork) as session:
        names = {
            row[0]
            for row in await session.fetch(
                "SELECT relname FROM pg_class WHERE relnamespace = 'before'::regnamespace"
            )
        }
        assert {
            "plain",
            "keyless",
            "Mixed Case",
            "measure",
            "measure_2025",
            "child",
            "billing.claims",
            "totals",
        } <= names
        assert await session.fetchval("SELECT count(*) FROM before.parent") == 2
        assert await session.fetchval('SELECT v FROM before."billing.claims"') == "claim"


async def test_every_type_reads_back_as_it_was(fork: Clone, zoo: str) -> None:
    async with connected(fork.server, zoo) as session:
        wanted = await session.fetch("SELECT * FROM typed"), await session.fetch("SELECT * FROM doc")
    await fork.run(
        "UPDATE typed SET yes = NOT yes, bytes = '', list = NULL, feeling = 'ok'",
        "DELETE FROM doc WHERE id = 1",
    )
    async with shown(fork) as session:
        assert [dict(row) for row in await session.fetch("SELECT * FROM before.typed")] == [
            dict(row) for row in wanted[0]
        ]
        assert [dict(row) for row in await session.fetch("SELECT * FROM before.doc")] == [
            dict(row) for row in wanted[1]
        ]


async def test_columns_stand_in_the_order_of_the_table_also_from_sorted_json(fork: Clone) -> None:
    await fork.run("UPDATE paired SET v = 0")
    data = (await fork.changes()).to_json()
    for table in data["tables"]:
        table["columns"] = dict(sorted(table["columns"].items()))
    async with shown(fork, ChangeSet.from_json(data)) as session:
        rows = await session.fetch("SELECT * FROM before.paired ORDER BY a")
        assert [tuple(row.items()) for row in rows] == [
            (("a", 1), ("b", "x"), ("v", 1)),
            (("a", 2), ("b", "x"), ("v", 2)),
        ]


async def test_a_table_that_was_dropped_is_shown_and_a_new_one_is_empty(fork: Clone) -> None:
    await fork.run("DROP TABLE coded", "CREATE TABLE fresh AS SELECT 1 AS a", "TRUNCATE many")
    async with shown(fork) as session:
        assert await session.fetch("SELECT code, v FROM before.coded ORDER BY code") == [("a", 1), ("b", 2)]
        assert await session.fetchval("SELECT count(*) FROM before.fresh") == 0
        assert await session.fetchval("SELECT count(*) FROM before.many") == 2000


async def test_a_rule_that_is_run_by_any_role_may_read_it(fork: Clone) -> None:
    await fork.run("UPDATE secret SET v = 't'")
    async with shown(fork) as session:
        await session.execute("SET LOCAL ROLE pg_monitor")
        assert await session.fetchval("SELECT v FROM before.secret") == "s"


async def test_hostile_cells_stay_data(fork: Clone) -> None:
    await fork.run(
        "UPDATE plain SET name = $q$'; $$ DROP TABLE plain; --%s %% $q$ WHERE id = 1",
        "INSERT INTO keyless VALUES (1, '\\''$forker_1$')",
    )
    async with shown(fork) as session:
        assert await session.fetchval("SELECT name FROM before.plain WHERE id = 1") == "a"
        assert await session.fetchval("SELECT count(*) FROM before.keyless") == 5


async def test_nothing_is_left_of_it_after_the_rollback(fork: Clone) -> None:
    await fork.run("UPDATE plain SET name = 'z'")
    changes = await fork.changes()
    async with shown(fork, changes):
        pass
    assert await fork.changes() == changes


async def test_before_is_ours_also_where_the_conversation_made_a_schema_of_that_name(fork: Clone) -> None:
    # Forged rows must not stand for the beginning.
    await fork.run(
        "UPDATE plain SET name = 'z' WHERE id = 1",
        "CREATE SCHEMA before CREATE TABLE plain (id int, name text)",
        "INSERT INTO before.plain VALUES (1, 'forged')",
    )
    changes = await fork.changes()
    async with shown(fork, changes) as session:
        assert await session.fetchval("SELECT name FROM before.plain WHERE id = 1") == "a"
        assert await session.fetchval("SELECT name FROM before_own.plain") == "forged"
        assert await session.fetchval('SELECT count(*) FROM before."before.plain"') == 0
    assert await fork.changes() == changes


async def test_a_schema_of_the_seed_that_is_named_before_is_shown_with_its_beginning(server: Server) -> None:
    sql = """
    CREATE SCHEMA before;
    CREATE SCHEMA before_own;
    CREATE TABLE before.claims (id int PRIMARY KEY, v text);
    CREATE TABLE before.gone (id int PRIMARY KEY, v text);
    CREATE TABLE claims (id int PRIMARY KEY, v text);
    CREATE VIEW both_claims AS SELECT v FROM before.claims UNION ALL SELECT v FROM claims;
    INSERT INTO before.claims VALUES (1, 'theirs'); INSERT INTO claims VALUES (1, 'public');
    INSERT INTO before.gone VALUES (1, 'gone');
    """
    async with baseline_of(server, sql) as name, cloned(server, name) as clone:
        await clone.run(
            "UPDATE before.claims SET v = 'now'; UPDATE claims SET v = 'now'; DROP TABLE before.gone"
        )
        async with shown(clone) as session:
            assert await session.fetchval("SELECT v FROM before.claims") == "public"
            assert await session.fetchval('SELECT v FROM before."before.claims"') == "theirs"
            assert await session.fetchval('SELECT v FROM before."before.gone"') == "gone"
            assert await session.fetchval("SELECT v FROM before_own_.claims") == "now"
            assert await session.fetch("SELECT v FROM both_claims") == [("now",), ("now",)]


async def test_a_table_whose_name_has_a_dot_stands_for_no_table_of_a_schema(fork: Clone) -> None:
    await fork.run(
        "UPDATE billing.claims SET v = 'x'",
        'CREATE TABLE public."billing.claims" (id int, v text)',
        "INSERT INTO public.\"billing.claims\" VALUES (1, 'forged')",
    )
    async with shown(fork) as session:
        assert await session.fetch('SELECT v FROM before."billing.claims"') == [("claim",)]


async def test_names_that_are_cut_to_one_are_not_guessed_between(server: Server) -> None:
    long = "a" * 60
    sql = f"CREATE SCHEMA {long};" + "".join(
        f"CREATE TABLE {long}.{name} (v text); INSERT INTO {long}.{name} VALUES ('{name}');"
        for name in ("xyz1", "xyz2", "b")
    )
    async with baseline_of(server, sql) as name, cloned(server, name) as clone, shown(clone) as session:
        assert await session.fetchval(f'SELECT v FROM before."{long}.b"') == "b"
        with pytest.raises(asyncpg.UndefinedTableError):
            await session.fetch(f'SELECT v FROM before."{long}.xyz1"')


async def test_a_column_that_cannot_hold_what_it_held_is_shown_as_text(fork: Clone) -> None:
    await fork.run(
        "ALTER TABLE coded ALTER code TYPE int USING v",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'",
        "UPDATE typed SET yes = NOT yes",
    )
    async with shown(fork) as session:
        rows = await session.fetch("SELECT code, v FROM before.coded ORDER BY v")
        assert [tuple(row) for row in rows] == [("a", 1), ("b", 2)]
        # Old rows hold a label that the type has no more.
        row = await session.fetchrow("SELECT yes, feeling FROM before.typed")
        assert tuple(row) == (True, "sad")


async def test_a_view_of_the_beginning_is_asked_by_its_key_alone_where_nothing_changed(fork: Clone) -> None:
    async with shown(fork) as session:
        await session.execute("SET LOCAL enable_seqscan = off")
        plan = await session.fetch("EXPLAIN SELECT * FROM before.many WHERE id = 7")
        assert "many_pkey" in plan[0][0]
