"""Random histories: a change set says what reading every row of both sides says, and nothing else.

`REDTEAM_HISTORIES=2000` in the environment searches that many on PostgreSQL 18, and a tenth on each older
version that is found; a failure prints the seed, which `REDTEAM_HISTORIES_SEED` brings back. What was found
stays as a test, by the name of what was wrong.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING
from unittest import mock

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from support.clones import Clone, cloned
from support.databases import connected
from support.histories import (
    ADMIN,
    APP_1,
    APP_2,
    ROWS_ONLY,
    UPKEEP,
    WITH_SCHEMA,
    Step,
    play,
    wide_baseline,
)
from support.oracle import Oracle
from support.oracle_rows import read_side
from support.schema_dump import differing, dump_schema
from support.versions import NotFoundError, foreign_server, programs_of
from support.zoo_wide import SHAPES

from redteam_forker.changes import ChangeSet, candidates
from redteam_forker.servers import open_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from redteam_forker.changes import ObjectChange
    from redteam_forker.servers import Server

_MANY = int(os.environ.get("REDTEAM_HISTORIES", "0"))
# What pg_dump leaves out of a schema.
_NOT_DUMPED = {"large object", "setting"}
# Their pages say nothing of who wrote to them, or they are not on this server.
_NOT_BY_PAGES = {"unlogged", "marked"}
_SEED = int(os.environ.get("REDTEAM_HISTORIES_SEED") or secrets.randbelow(1 << 32))


def _search(usual: int, share: float) -> settings:
    return settings(
        max_examples=max(1, int(_MANY * share)) if _MANY else usual,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        # To explain a failure, Hypothesis traces every line of every run.
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )


class Zoo:
    """A baseline that was read whole, once. Hypothesis would print all rows of a dataclass."""

    def __init__(
        self, server: Server, name: str, oracle: Oracle, schema: dict[tuple[str, str, str], str]
    ) -> None:
        self.server = server
        self.name = name
        self.oracle = oracle
        self.schema = schema

    def __repr__(self) -> str:
        return f"the zoo on {self.server.facts.version}"


async def zoo_on(server: Server) -> AsyncIterator[Zoo]:
    async with wide_baseline(server) as name:
        yield Zoo(
            server=server,
            name=name,
            oracle=Oracle(await read_side(server, name)),
            schema=await dump_schema(server, name),
        )


@pytest.fixture(scope="module")
async def zoo(server: Server) -> AsyncIterator[Zoo]:
    async for made in zoo_on(server):
        yield made


@pytest.fixture(scope="module", params=[15, 16, 17], ids=str)
async def older(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[Zoo]:
    try:
        programs = await anyio.to_thread.run_sync(programs_of, request.param)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn, open_server(dsn) as server:
        async for made in zoo_on(server):
            yield made


async def judged(zoo: Zoo, fork: Clone) -> tuple[ChangeSet, list[str]]:
    """A fork's change set, and what is wrong with it."""
    changes = await fork.changes()
    problems = await zoo.oracle.differences(zoo.server, fork.name, changes)
    async with connected(zoo.server) as session:
        rows = [row.xid for table in changes.tables for row in table.rows]
        for xid in {*rows, *(write.xid for write in changes.writes)} - {None}:
            status = await session.fetchval("SELECT pg_xact_status($1::text::xid8)", str(xid))
            if status != "committed" or xid is None or xid < fork.watermark:
                problems.append(f"transaction {xid} is told as a writer, and is {status}")
    if ChangeSet.from_json(json.loads(json.dumps(changes.to_json()))) != changes:
        problems.append("its JSON form says something else")
    return changes, problems


async def judge(zoo: Zoo, history: Sequence[Step]) -> ChangeSet:
    """Play a history and judge its change set, collected in both ways of finding changed pages."""
    async with cloned(zoo.server, zoo.name) as fork:
        await play(zoo.server, fork.name, history)
        # As large tables are: by the visibility map alone, unless they were vacuumed. The zoo's are so small
        # that all their pages are looked at.
        with mock.patch.object(candidates, "_ALWAYS_COMPARED", 0):
            by_map = await fork.changes()
        changes, problems = await judged(zoo, fork)
        schema = []
        if _has_ddl(history):
            schema = differing(zoo.schema, await dump_schema(zoo.server, fork.name))
    if by_map.hash != changes.hash:
        problems.append(f"by the visibility map alone it is {by_map.tables}")
    told = [item for item in changes.objects if item.kind not in _NOT_DUMPED and not _is_unseen(item)]
    if schema and not told:
        problems.append(f"the schema differs, and nothing is told: {schema}")
    if told and not schema:
        problems.append(f"the schema does not differ, and is told to: {told}")
    assert problems == [], "\n".join(problems)
    return changes


def _is_unseen(item: ObjectChange) -> bool:
    """What pg_dump is blind to: that a view was filled, or that the triggers behind a foreign key are off."""
    old, new = (
        (text or "").replace("not populated, ", "").replace(" (triggers disabled)", "")
        for text in (item.old, item.new)
    )
    return old == new


def _has_ddl(history: Sequence[Step]) -> bool:
    words = ("ALTER ", "CREATE ", "DROP ", "GRANT ", "REVOKE ", "COMMENT ", "CLUSTER ")
    return any(step.sql.startswith(words) and " TEMP " not in step.sql for step in history)


# What searches and thought have found: kept as the shortest history that shows it.
_FOUND: dict[str, list[Step]] = {
    "a partitioned table is given a column with a default": [
        Step(ADMIN, "ALTER TABLE ranged ADD COLUMN added int DEFAULT 5"),
        Step(APP_1, "UPDATE ranged SET added = 6 WHERE id = 3"),
    ],
    "a large object's page is overwritten": [Step(APP_1, "SELECT lo_put(70003, 2047, '\\x00')")],
    "a number inside a composite inside an array is spelled otherwise": [
        Step(
            ADMIN,
            "UPDATE places SET trip = ROW('t', ARRAY[ROW('(', 1, 'sad')::spot], '[1,4]')::trip WHERE id < 7",
        )
    ],
    "VACUUM sets again what a write had cleared": [
        Step(APP_1, "UPDATE many SET v = 'x' WHERE id % 100 = 0"),
        Step(UPKEEP, "VACUUM (FREEZE) many"),
        Step(APP_1, "UPDATE many SET v = 'y' WHERE id = 7"),
    ],
    "VACUUM gives back the end of a table, which then grows again": [
        Step(APP_1, "DELETE FROM many WHERE id > 100"),
        Step(UPKEEP, "VACUUM (FREEZE, TRUNCATE) many"),
        Step(APP_1, "INSERT INTO many SELECT g, 'v' || g, g FROM generate_series(101, 1400) g"),
        Step(UPKEEP, "VACUUM (FREEZE) many"),
    ],
    "a table is emptied and filled with frozen rows": [
        Step(UPKEEP, "\\copy freeze toasted"),
        Step(APP_1, "UPDATE toasted SET note = 'x' WHERE id = 2"),
    ],
    "a rolled-back insert leaves pages past the end": [
        Step(APP_1, "BEGIN"),
        Step(APP_1, "INSERT INTO many SELECT g, 'v', 0 FROM generate_series(2000, 4000) g"),
        Step(APP_1, "ROLLBACK"),
        Step(APP_2, "INSERT INTO many VALUES (5000, 'last', 0)"),
    ],
    "only a value that is stored out of line changes, at the same length": [
        Step(APP_1, "UPDATE toasted SET body = reverse(body)"),
        Step(APP_1, "UPDATE toasted_bag SET body = reverse(body) WHERE small = 1"),
    ],
    "two lock a row for keys, and one of them updates it": [
        Step(APP_1, "BEGIN"),
        Step(APP_1, "SELECT FROM fk_parent FOR KEY SHARE"),
        Step(APP_2, "BEGIN"),
        Step(APP_2, "SELECT FROM fk_parent FOR KEY SHARE"),
        Step(APP_2, "UPDATE fk_parent SET v = 'locked' WHERE id < 4"),
        Step(APP_1, "COMMIT"),
        Step(APP_2, "COMMIT"),
    ],
    "two lock a row for keys, and neither changes it": [
        Step(APP_1, "BEGIN"),
        Step(APP_1, "SELECT FROM fk_parent FOR KEY SHARE"),
        Step(APP_2, "SELECT FROM fk_parent FOR SHARE"),
        Step(APP_1, "COMMIT"),
    ],
    "a row goes to another partition and back": [
        Step(APP_1, "UPDATE ranged SET at = at + 365 WHERE id = 2"),
        Step(APP_1, "UPDATE ranged SET at = at - 365 WHERE id = 2"),
        Step(APP_1, "UPDATE listed SET part = 1 WHERE id = 4"),
    ],
    "two tables trade names": [
        Step(ADMIN, "ALTER TABLE single RENAME TO was_single"),
        Step(ADMIN, "ALTER TABLE unlogged RENAME TO single"),
        Step(ADMIN, "INSERT INTO single VALUES (100, 'in its place')"),
    ],
    "a column is dropped and another made by its name": [
        Step(ADMIN, "ALTER TABLE grown DROP COLUMN more, ADD COLUMN more text DEFAULT 'm'"),
        Step(APP_1, "UPDATE grown SET extra = 9 WHERE id = 1"),
    ],
    "the key is dropped, and rows share what it was": [
        Step(ADMIN, "ALTER TABLE composite DROP CONSTRAINT composite_pkey"),
        Step(APP_1, "INSERT INTO composite SELECT a, b, v + 100 FROM composite WHERE a = 1"),
    ],
    "a detached partition is written to": [
        Step(ADMIN, "ALTER TABLE listed DETACH PARTITION listed_1"),
        Step(APP_1, "UPDATE listed_1 SET v = 'alone' WHERE id = 21"),
    ],
    "triggers and rules are off, and a cascade does not run": [
        Step(ADMIN, "SET session_replication_role = replica"),
        Step(ADMIN, "DELETE FROM fk_parent WHERE id = 3"),
        Step(ADMIN, "UPDATE audited SET v = 'unnoticed'"),
    ],
    "the database prints and hides otherwise": [
        Step(
            ADMIN,
            "DO $do$ DECLARE s text; BEGIN FOREACH s IN ARRAY ARRAY['search_path = other', "
            "'row_security = on', 'bytea_output = escape', 'DateStyle = German', "
            "'TimeZone = \"Asia/Tokyo\"', "
            "'IntervalStyle = iso_8601', 'extra_float_digits = -15', 'quote_all_identifiers = on', "
            "'enable_seqscan = off', 'enable_tidscan = off', 'default_transaction_read_only = on', "
            "'statement_timeout = 1'] LOOP "
            "EXECUTE format('ALTER DATABASE %I SET %s', current_database(), s); END LOOP; END $do$",
        ),
        Step(
            APP_1, "UPDATE scalars SET at = at + interval '1 h', bytes = bytes || '\\x00', ratio = ratio / 3"
        ),
        Step(APP_1, "UPDATE secret SET v = 'mine'"),
    ],
    "functions and operators of the fork's own have the names that a differ would call": [
        Step(ADMIN, f"CREATE FUNCTION public.{signature} LANGUAGE sql AS 'SELECT NULL::{kind}'")
        for signature, kind in (
            ("age(xid) RETURNS int", "int"),
            ("sha256(bytea) RETURNS bytea", "bytea"),
            ("count(int) RETURNS bigint", "bigint"),
            ("pg_relation_size(regclass, text) RETURNS bigint", "bigint"),
            ("get_raw_page(text, text, bigint) RETURNS bytea", "bytea"),
            ("pg_visibility_map(regclass) RETURNS bool", "bool"),
            ("array_agg(int) RETURNS int[]", "int[]"),
        )
    ]
    + [
        Step(ADMIN, "CREATE FUNCTION public.never(int, int) RETURNS bool LANGUAGE sql AS 'SELECT false'"),
        Step(ADMIN, "CREATE OPERATOR public.= (LEFTARG = int, RIGHTARG = int, FUNCTION = public.never)"),
        Step(ADMIN, "SET search_path = public, pg_catalog; UPDATE many SET v = 'x' WHERE id < 3"),
        Step(APP_1, "DELETE FROM keyless"),
    ],
    "the agent made the extension itself, elsewhere": [
        Step(ADMIN, "CREATE EXTENSION pageinspect SCHEMA other"),
        Step(ADMIN, "CREATE EXTENSION pg_visibility SCHEMA other"),
        Step(APP_1, "UPDATE single SET v = 'x' WHERE id = 3"),
    ],
    "a materialized view is filled, another filled anew": [
        Step(APP_1, "UPDATE single SET v = 'v9' WHERE id < 9"),
        Step(ADMIN, "REFRESH MATERIALIZED VIEW totals"),
        Step(ADMIN, "REFRESH MATERIALIZED VIEW unread"),
    ],
}


@pytest.mark.parametrize("history", _FOUND.values(), ids=_FOUND)
async def test_a_history_that_was_found_or_thought_of_is_told_exactly(zoo: Zoo, history: list[Step]) -> None:
    await judge(zoo, history)


async def test_what_is_searched_is_the_way_by_pages(zoo: Zoo) -> None:
    # Without this, a fault that sends every table the slow way would make all the searches here pass.
    written = [shape for shape in SHAPES if shape.sets and shape.table not in _NOT_BY_PAGES]
    history = [Step(ADMIN, f"UPDATE {shape} SET {shape.sets[0].format(n=1)}") for shape in written]
    tended = [Step(UPKEEP, f"VACUUM (FREEZE) {shape.bare}") for shape in written[::2]]
    for steps in (history, [*history, *tended]):
        changes = await judge(zoo, steps)
        assert len(changes.tables) > 30
        assert {table.method for table in changes.tables} == {"pages"}


@seed(_SEED)
@_search(usual=8, share=0.05)
@given(history=WITH_SCHEMA)
@pytest.mark.timeout(0 if _MANY else 600)
async def test_two_forks_with_one_history_have_one_hash(zoo: Zoo, history: list[Step]) -> None:
    note(f"REDTEAM_HISTORIES_SEED={_SEED}")
    steps = [step for step in history if "random()" not in step.sql]
    one = await judge(zoo, steps)
    other = await judge(zoo, steps)
    assert one.hash == other.hash


@seed(_SEED)
@_search(usual=30, share=0.6)
@given(history=ROWS_ONLY)
@pytest.mark.timeout(0 if _MANY else 600)
async def test_a_change_set_of_written_rows_is_what_reading_every_row_finds(
    zoo: Zoo, history: list[Step]
) -> None:
    note(f"REDTEAM_HISTORIES_SEED={_SEED}")
    await judge(zoo, history)


@seed(_SEED)
@_search(usual=25, share=0.4)
@given(history=WITH_SCHEMA)
@pytest.mark.timeout(0 if _MANY else 600)
async def test_a_change_set_of_an_altered_schema_is_what_reading_every_row_finds(
    zoo: Zoo, history: list[Step]
) -> None:
    note(f"REDTEAM_HISTORIES_SEED={_SEED}")
    await judge(zoo, history)


@seed(_SEED)
@_search(usual=6, share=0.1)
@given(history=WITH_SCHEMA)
@pytest.mark.timeout(0 if _MANY else 600)
async def test_a_change_set_on_an_older_version_is_what_reading_every_row_finds(
    older: Zoo, history: list[Step]
) -> None:
    note(f"REDTEAM_HISTORIES_SEED={_SEED}")
    await judge(older, history)
