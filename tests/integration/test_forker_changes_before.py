"""The schema `before`: what rules read beside the end state."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected
from support.zoo import ZOO

from redteam_forker.changes import ChangeSet, before_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

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
