"""Rows of every shape of table: the change set says exactly what differs.

Long because most of it is one table: shapes, with their statements and the whole change set that must follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected, scratch_database
from support.zoo import ZOO

from redteam_forker.changes import ChangeSet, SequenceChange, collect_changes
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

Cells = dict[str, str | None]
# op, key, old, new, changed
Row = tuple[str, Cells | None, Cells | None, Cells | None, tuple[str, ...]]
# name, key, method, rows
Found = tuple[str, tuple[str, ...] | None, str, list[Row]]


@pytest.fixture(scope="module")
async def zoo(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, ZOO) as name:
        yield name


@pytest.fixture
async def fork(server: Server, zoo: str) -> AsyncIterator[Clone]:
    async with cloned(server, zoo) as clone:
        yield clone


def found_in(changes: ChangeSet) -> list[Found]:
    return [
        (
            table.table if table.schema == "public" else f"{table.schema}.{table.table}",
            table.key,
            table.method,
            [
                (
                    row.op,
                    None if row.key is None else dict(row.key),
                    None if row.old is None else dict(row.old),
                    None if row.new is None else dict(row.new),
                    row.changed,
                )
                for row in table.rows
            ],
        )
        for table in changes.tables
    ]


def insert(new: Cells, *key: str) -> Row:
    return ("insert", {name: new[name] for name in key} if key else None, None, new, ())


def delete(old: Cells, *key: str) -> Row:
    return ("delete", {name: old[name] for name in key} if key else None, old, None, ())


def update(old: Cells, new: Cells, *key: str) -> Row:
    changed = tuple(name for name, cell in new.items() if old.get(name) != cell)
    return ("update", {name: new[name] for name in key}, {**old}, {**new}, changed)


ID = ("id",)
A: Cells = {"id": "1", "name": "a", "price": "1.00"}
B: Cells = {"id": "2", "name": "b", "price": "2.00"}
C: Cells = {"id": "3", "name": "c", "price": "3.50"}
X: Cells = {"a": "1", "b": "x"}
DOC: Cells = {"id": "1", "j": '{"a": 1}', "jb": '{"a": 1.0}', "x": None, "p": "(1,2)"}
TYPED: Cells = {
    "id": "00000000-0000-0000-0000-000000000001",
    "yes": "t",
    "padded": "ab   ",
    "at": "2026-01-01 10:00:00+00",
    "bytes": "\\xdead",
    "list": "{1,NULL}",
    "span": "1 day 02:00:00",
    "feeling": "sad",
    "range": '["2026-01-01 00:00:00+00","2026-01-02 00:00:00+00")',
    "cash": "$12.50",
    "ratio": "0.1",
    "net": "10.0.0.1",
}
MANY: list[Cells] = [{"id": str(n), "v": f"v{n}"} for n in range(1, 2001)]

_CASES: list[tuple[str, list[str], list[Found]]] = [
    ("nothing", ["SELECT * FROM plain"], []),
    (
        "insert",
        ["INSERT INTO plain VALUES (4, '', 1)"],
        [("plain", ID, "pages", [insert({"id": "4", "name": "", "price": "1.00"}, "id")])],
    ),
    (
        "update",
        ["UPDATE plain SET price = 9 WHERE id = 2"],
        [("plain", ID, "pages", [update(B, {**B, "price": "9.00"}, "id")])],
    ),
    (
        "update to null",
        ["UPDATE plain SET name = NULL WHERE id = 2"],
        [("plain", ID, "pages", [update(B, {**B, "name": None}, "id")])],
    ),
    ("delete", ["DELETE FROM plain WHERE id = 2"], [("plain", ID, "pages", [delete(B, "id")])]),
    (
        "rows in the order of their keys, as numbers",
        ["UPDATE plain SET name = 'z'"],
        [
            (
                "plain",
                ID,
                "pages",
                [
                    update(A, {**A, "name": "z"}, "id"),
                    update(B, {**B, "name": "z"}, "id"),
                    update(C, {**C, "name": "z"}, "id"),
                    update(
                        {"id": "10", "name": None, "price": None},
                        {"id": "10", "name": "z", "price": None},
                        "id",
                    ),
                ],
            )
        ],
    ),
    (
        "key update is delete and insert",
        ["UPDATE plain SET id = 4 WHERE id = 2"],
        [("plain", ID, "pages", [delete(B, "id"), insert({**B, "id": "4"}, "id")])],
    ),
    (
        "delete and insert of a key is an update",
        ["DELETE FROM plain WHERE id = 2", "INSERT INTO plain VALUES (2, 'n', 2)"],
        [("plain", ID, "pages", [update(B, {**B, "name": "n"}, "id")])],
    ),
    ("inserted and deleted", ["INSERT INTO plain VALUES (4)", "DELETE FROM plain WHERE id = 4"], []),
    (
        "written and written back",
        ["UPDATE plain SET name = 'z' WHERE id = 1", "UPDATE plain SET name = 'a' WHERE id = 1"],
        [],
    ),
    ("no-op update", ["UPDATE plain SET name = name", "UPDATE many SET v = v WHERE id < 1500"], []),
    ("lock", ["SELECT * FROM plain FOR UPDATE"], []),
    ("rolled back", ["BEGIN; DELETE FROM plain; INSERT INTO plain VALUES (7); ROLLBACK"], []),
    (
        "savepoint rolled back",
        [
            "BEGIN; UPDATE plain SET name = 'k' WHERE id = 1; SAVEPOINT s; DELETE FROM plain; "
            "ROLLBACK TO s; COMMIT"
        ],
        [("plain", ID, "pages", [update(A, {**A, "name": "k"}, "id")])],
    ),
    (
        "written in a subtransaction",
        ["BEGIN; SAVEPOINT s; DELETE FROM plain WHERE id = 3; RELEASE s; COMMIT"],
        [("plain", ID, "pages", [delete(C, "id")])],
    ),
    (
        "keyless insert of a twin",
        ["INSERT INTO keyless VALUES (1, 'x')"],
        [("keyless", None, "pages", [insert(X)])],
    ),
    (
        "keyless delete of one twin",
        ["DELETE FROM keyless WHERE ctid = '(0,1)'"],
        [("keyless", None, "pages", [delete(X)])],
    ),
    (
        "keyless update is delete and insert",
        ["UPDATE keyless SET b = 'z' WHERE a = 2"],
        [("keyless", None, "pages", [delete({"a": "2", "b": "y"}), insert({"a": "2", "b": "z"})])],
    ),
    (
        "null is not the empty text",
        ["DELETE FROM keyless WHERE b = ''"],
        [("keyless", None, "pages", [delete({"a": None, "b": ""})])],
    ),
    (
        "one column that is null",
        ["DELETE FROM single WHERE v IS NULL"],
        [("single", None, "pages", [delete({"v": None})])],
    ),
    (
        "keyless no-op",
        [
            "UPDATE keyless SET a = a",
            "DELETE FROM keyless WHERE a = 2",
            "INSERT INTO keyless VALUES (2, 'y')",
        ],
        [],
    ),
    ("equal documents", ["UPDATE doc SET j = '{\"a\":1.0}', jb = '{\"a\": 1}'"], []),
    (
        "json and point",
        ["UPDATE doc SET j = '[]', p = '(1,3)'"],
        [("doc", ID, "pages", [update(DOC, {**DOC, "j": "[]", "p": "(1,3)"}, "id")])],
    ),
    (
        "mixed case",
        ['UPDATE "Mixed Case" SET "Say ""it""" = \'x,"y"\' WHERE "Id" = 2'],
        [
            (
                "Mixed Case",
                ("Id",),
                "pages",
                [update({"Id": "2", 'Say "it"': "two"}, {"Id": "2", 'Say "it"': 'x,"y"'}, "Id")],
            )
        ],
    ),
    (
        "generated columns follow",
        ["UPDATE made SET a = 5 WHERE id = 2"],
        [
            (
                "made",
                ID,
                "pages",
                [update({"id": "2", "a": "2", "twice": "4"}, {"id": "2", "a": "5", "twice": "10"}, "id")],
            )
        ],
    ),
    (
        "identity",
        ["INSERT INTO made (a) VALUES (3)"],
        [("made", ID, "pages", [insert({"id": "3", "a": "3", "twice": "6"}, "id")])],
    ),
    (
        "partitions are one table",
        ["UPDATE measure SET v = 9 WHERE id = 1", "INSERT INTO measure_2026 VALUES (3, '2026-01-01', 3)"],
        [
            (
                "measure",
                ("id", "at"),
                "pages",
                [
                    update(
                        {"id": "1", "at": "2025-05-05", "v": "1"},
                        {"id": "1", "at": "2025-05-05", "v": "9"},
                        "id",
                        "at",
                    ),
                    insert({"id": "3", "at": "2026-01-01", "v": "3"}, "id", "at"),
                ],
            )
        ],
    ),
    (
        "a row that moves to another partition",
        ["UPDATE measure SET at = '2026-07-07' WHERE id = 1"],
        [
            (
                "measure",
                ("id", "at"),
                "pages",
                [
                    delete({"id": "1", "at": "2025-05-05", "v": "1"}, "id", "at"),
                    insert({"id": "1", "at": "2026-07-07", "v": "1"}, "id", "at"),
                ],
            )
        ],
    ),
    (
        "an inheritance child is its own table",
        ["UPDATE parent SET v = 'z'"],
        [
            (
                "child",
                ID,
                "pages",
                [update({"id": "2", "v": "c", "extra": "5"}, {"id": "2", "v": "z", "extra": "5"}, "id")],
            ),
            ("parent", ID, "pages", [update({"id": "1", "v": "p"}, {"id": "1", "v": "z"}, "id")]),
        ],
    ),
    (
        "a unique column stands in for a key",
        ["UPDATE coded SET v = 5 WHERE code = 'b'"],
        [("coded", ("code",), "pages", [update({"code": "b", "v": "2"}, {"code": "b", "v": "5"}, "code")])],
    ),
    (
        "a key of two columns, in its own order",
        ["DELETE FROM paired WHERE a = 1", "UPDATE paired SET v = 0"],
        [
            (
                "paired",
                ("b", "a"),
                "pages",
                [
                    delete({"a": "1", "b": "x", "v": "1"}, "b", "a"),
                    update({"a": "2", "b": "x", "v": "2"}, {"a": "2", "b": "x", "v": "0"}, "b", "a"),
                ],
            )
        ],
    ),
    (
        "keys that swap places",
        ["UPDATE ranked SET rank = 3 - rank"],
        [
            (
                "ranked",
                ("rank",),
                "pages",
                [
                    update({"rank": "1", "name": "first"}, {"rank": "1", "name": "second"}, "rank"),
                    update({"rank": "2", "name": "second"}, {"rank": "2", "name": "first"}, "rank"),
                ],
            )
        ],
    ),
    (
        "row level security hides nothing",
        ["UPDATE secret SET v = 't'"],
        [("secret", ID, "pages", [update({"id": "1", "v": "s"}, {"id": "1", "v": "t"}, "id")])],
    ),
    ("unlogged", ["DELETE FROM loose"], [("loose", ID, "xmin", [delete({"id": "1", "v": "l"}, "id")])]),
    (
        "another schema",
        ["UPDATE billing.claims SET v = 'paid'"],
        [
            (
                "billing.claims",
                ID,
                "pages",
                [update({"id": "1", "v": "claim"}, {"id": "1", "v": "paid"}, "id")],
            )
        ],
    ),
    (
        "a view is not read, its table is",
        ["UPDATE plain_names SET name = 'v' WHERE name = 'a'"],
        [("plain", ID, "pages", [update(A, {**A, "name": "v"}, "id")])],
    ),
    (
        "types print as Postgres prints them",
        ["UPDATE typed SET yes = false, feeling = 'ok', ratio = 1e300, list = '{}'"],
        [
            (
                "typed",
                ID,
                "pages",
                [
                    update(
                        TYPED, {**TYPED, "yes": "f", "feeling": "ok", "ratio": "1e+300", "list": "{}"}, "id"
                    )
                ],
            )
        ],
    ),
    (
        "settings of the session change nothing",
        ["SET TimeZone = 'Asia/Tokyo'; UPDATE typed SET at = at, cash = cash"],
        [],
    ),
    (
        "truncate",
        ["TRUNCATE coded"],
        [
            (
                "coded",
                ("code",),
                "keys",
                [delete({"code": "a", "v": "1"}, "code"), delete({"code": "b", "v": "2"}, "code")],
            )
        ],
    ),
    ("truncate and fill again", ["TRUNCATE coded", "INSERT INTO coded VALUES ('b', 2), ('a', 1)"], []),
    ("vacuum full", ["VACUUM FULL many"], []),
    (
        "vacuum full after a change",
        ["UPDATE many SET v = 'n' WHERE id = 7", "VACUUM FULL many"],
        [("many", ID, "keys", [update(MANY[6], {"id": "7", "v": "n"}, "id")])],
    ),
    (
        "cluster after a change",
        ["DELETE FROM many WHERE id = 7", "CLUSTER many USING many_pkey"],
        [("many", ID, "keys", [delete(MANY[6], "id")])],
    ),
    (
        "vacuum and places used again",
        [
            "DELETE FROM many WHERE id <= 3",
            "VACUUM (FREEZE) many",
            "INSERT INTO many VALUES (3, 'again'), (9000, 'new')",
            "VACUUM (FREEZE) many",
        ],
        [
            (
                "many",
                ID,
                "pages",
                [
                    delete(MANY[0], "id"),
                    delete(MANY[1], "id"),
                    update(MANY[2], {"id": "3", "v": "again"}, "id"),
                    insert({"id": "9000", "v": "new"}, "id"),
                ],
            )
        ],
    ),
    (
        "vacuum that cuts the end off",
        ["DELETE FROM many WHERE id > 1000", "VACUUM many"],
        [("many", ID, "pages", [delete(row, "id") for row in MANY[1000:]])],
    ),
    (
        "a table without rows left keyed by its rows",
        ["DELETE FROM many"],
        [("many", ID, "pages", [delete(row, "id") for row in MANY])],
    ),
    ("add column", ["ALTER TABLE plain ADD COLUMN flag text DEFAULT 'new'"], []),
    (
        "add column and write to it",
        ["ALTER TABLE plain ADD COLUMN flag int", "UPDATE plain SET flag = 1 WHERE id = 2"],
        [("plain", ID, "keys", [update(B, {**B, "flag": "1"}, "id")])],
    ),
    (
        "change of type without a change of value",
        ["ALTER TABLE plain ALTER COLUMN id TYPE bigint, ALTER COLUMN price TYPE numeric(20, 5)"],
        [],
    ),
    (
        "drop column",
        ["ALTER TABLE coded DROP COLUMN v", "DELETE FROM coded WHERE code = 'a'"],
        [("coded", ("code",), "keys", [delete({"code": "a", "v": "1"}, "code")])],
    ),
    (
        "rename column",
        ["ALTER TABLE coded RENAME v TO w", "UPDATE coded SET w = 7 WHERE code = 'a'"],
        [
            (
                "coded",
                ("code",),
                "keys",
                [("update", {"code": "a"}, {"code": "a", "v": "1"}, {"code": "a", "w": "7"}, ("w",))],
            )
        ],
    ),
    (
        "rename table",
        ["ALTER TABLE coded RENAME TO codes", "DELETE FROM codes WHERE code = 'a'"],
        [("codes", ("code",), "pages", [delete({"code": "a", "v": "1"}, "code")])],
    ),
    (
        "a key that was dropped is none",
        ["ALTER TABLE coded DROP CONSTRAINT coded_code_key", "UPDATE coded SET v = 5 WHERE code = 'b'"],
        [("coded", None, "pages", [delete({"code": "b", "v": "2"}), insert({"code": "b", "v": "5"})])],
    ),
    (
        "create table",
        ["CREATE TABLE fresh (id int PRIMARY KEY)", "INSERT INTO fresh VALUES (1)"],
        [("fresh", ID, "keys", [insert({"id": "1"}, "id")])],
    ),
    ("create table without rows", ["CREATE TABLE fresh (id int)", "CREATE TEMP TABLE gone (a int)"], []),
    (
        "drop table",
        ["DROP TABLE coded"],
        [
            (
                "coded",
                ("code",),
                "keys",
                [delete({"code": "a", "v": "1"}, "code"), delete({"code": "b", "v": "2"}, "code")],
            )
        ],
    ),
    (
        "drop table and make it again",
        [
            "DROP TABLE coded",
            "CREATE TABLE coded (code text NOT NULL UNIQUE, v int)",
            "INSERT INTO coded VALUES ('a', 1), ('b', 3)",
        ],
        [("coded", ("code",), "keys", [update({"code": "b", "v": "2"}, {"code": "b", "v": "3"}, "code")])],
    ),
    (
        "a new partition",
        [
            "CREATE TABLE measure_2027 PARTITION OF measure FOR VALUES FROM ('2027-01-01') TO ('2028-01-01')",
            "INSERT INTO measure VALUES (9, '2027-01-01', 9)",
        ],
        [("measure", ("id", "at"), "keys", [insert({"id": "9", "at": "2027-01-01", "v": "9"}, "id", "at")])],
    ),
    (
        "refresh of a materialized view",
        ["INSERT INTO plain VALUES (4)", "REFRESH MATERIALIZED VIEW totals"],
        [
            ("plain", ID, "pages", [insert({"id": "4", "name": None, "price": None}, "id")]),
            ("totals", None, "multiset", [delete({"n": "4"}), insert({"n": "5"})]),
        ],
    ),
    ("analyze", ["ANALYZE"], []),
]


@pytest.mark.parametrize(
    ("statements", "expected"), [case[1:] for case in _CASES], ids=[case[0] for case in _CASES]
)
async def test_the_rows_that_differ_are_told_exactly(
    fork: Clone, statements: list[str], expected: list[Found]
) -> None:
    await fork.run(*statements)
    assert found_in(await fork.changes()) == expected


async def test_an_untouched_clone_has_no_changes(fork: Clone) -> None:
    assert await fork.changes() == ChangeSet()


async def test_a_large_value_out_of_line_is_told_whole(fork: Clone) -> None:
    # P70
    await fork.run("UPDATE big SET body = body || '!' WHERE id = 2", "UPDATE big SET id = id WHERE id = 3")
    (table,) = (await fork.changes()).tables
    (row,) = table.rows
    assert row.old is not None
    assert row.new is not None
    assert row.new["body"] == f"{row.old['body']}!"
    assert len(row.old["body"] or "") == 400 * 32


async def test_each_new_image_names_the_transaction_that_wrote_it(fork: Clone) -> None:
    async with connected(fork.server, fork.name) as session:
        xids = []
        for statement in ("INSERT INTO plain VALUES (4)", "UPDATE plain SET name = 'z' WHERE id = 1"):
            async with session.transaction():
                await session.execute(statement)
                xids.append(await session.fetchval("SELECT pg_current_xact_id()::text::int8"))
        await session.execute("DELETE FROM plain WHERE id = 2")
        await session.execute("VACUUM (FREEZE) plain")
    (table,) = (await fork.changes()).tables
    assert [(row.op, row.xid) for row in table.rows] == [
        ("update", xids[1]),
        ("delete", None),
        ("insert", xids[0]),
    ]


async def test_a_rewrite_keeps_the_writers_of_rows(fork: Clone) -> None:
    async with connected(fork.server, fork.name) as session:
        async with session.transaction():
            await session.execute("UPDATE many SET v = 'n' WHERE id = 7")
            xid = await session.fetchval("SELECT pg_current_xact_id()::text::int8")
        await session.execute("VACUUM FULL many")
    (table,) = (await fork.changes()).tables
    assert [(row.op, row.xid) for row in table.rows] == [("update", xid)]


async def test_the_columns_have_their_types_in_the_order_of_the_table(fork: Clone) -> None:
    await fork.run("DELETE FROM typed", "DELETE FROM plain WHERE id = 1")
    columns = {table.table: list(table.columns.items()) for table in (await fork.changes()).tables}
    assert columns["plain"] == [("id", "integer"), ("name", "text"), ("price", "public.money_amount")]
    assert [kind for _, kind in columns["typed"]] == [
        "uuid", "boolean", "character(5)", "timestamp with time zone", "bytea", "integer[]", "interval",
        "public.mood", "tstzrange", "money", "double precision", "inet",
    ]  # fmt: skip


async def test_a_fallback_says_why(fork: Clone) -> None:
    await fork.run("TRUNCATE coded", "ALTER TABLE plain ADD x int", "UPDATE plain SET x = 1 WHERE id = 1")
    reasons = {table.table: table.reason for table in (await fork.changes()).tables}
    assert reasons == {
        "coded": "it was rewritten, truncated, or its partitions changed",
        "plain": "its columns changed",
    }


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("BEGIN; SELECT nextval('billing.numbers'); ROLLBACK", [("numbers", None, "1")]),
        ("SELECT setval('billing.numbers', 50, false)", [("numbers", None, "next 50")]),
        ("SELECT setval('made_id_seq', 2)", []),
        ("SELECT nextval('made_id_seq')", [("made_id_seq", "2", "3")]),
        ("DROP SEQUENCE billing.numbers", []),
        ("CREATE SEQUENCE q; SELECT nextval('q')", [("q", None, "1")]),
    ],
)
async def test_a_sequence_that_moved_is_told(
    fork: Clone, statement: str, expected: list[tuple[str, str | None, str | None]]
) -> None:
    await fork.run(statement)
    sequences = (await fork.changes()).sequences
    assert [(item.name, item.old, item.new) for item in sequences] == expected
    assert all(isinstance(item, SequenceChange) for item in sequences)


async def test_the_same_history_gives_the_same_change_set(fork: Clone) -> None:
    await fork.run("UPDATE plain SET name = 'z'", "DELETE FROM keyless", "TRUNCATE coded")
    assert (await fork.changes()).to_json() == (await fork.changes()).to_json()


async def test_xml_is_compared_as_it_prints(server: Server) -> None:
    async with connected(server) as session:
        try:
            await session.execute("SELECT xml '<a/>'")
        except asyncpg.FeatureNotSupportedError:
            pytest.skip("this server was built without libxml")
    async with (
        baseline_of(
            server, "CREATE TABLE t (id int PRIMARY KEY, x xml); INSERT INTO t VALUES (1, '<a/>')"
        ) as name,
        cloned(server, name) as fork,
    ):
        await fork.run("UPDATE t SET x = '<b/>'")
        old: Cells = {"id": "1", "x": "<a/>"}
        assert found_in(await fork.changes()) == [
            ("t", ID, "pages", [update(old, {**old, "x": "<b/>"}, "id")])
        ]


async def test_a_foreign_table_and_a_foreign_partition_are_never_read(server: Server) -> None:
    # Reading either would fail: there is no such file. Nor can the baseline be analysed.
    async with (
        scratch_database(
            server,
            """
        CREATE EXTENSION file_fdw;
        CREATE SERVER s FOREIGN DATA WRAPPER file_fdw;
        CREATE FOREIGN TABLE away (a int) SERVER s OPTIONS (filename '/nowhere');
        CREATE TABLE mixed (a int) PARTITION BY RANGE (a);
        CREATE TABLE mixed_near PARTITION OF mixed FOR VALUES FROM (0) TO (10);
        CREATE FOREIGN TABLE mixed_far PARTITION OF mixed FOR VALUES FROM (10) TO (20)
          SERVER s OPTIONS (filename '/nowhere');
        INSERT INTO mixed VALUES (1);
        """,
        ) as baseline,
        cloned(server, baseline) as fork,
    ):
        await fork.run("INSERT INTO mixed VALUES (2)", "TRUNCATE mixed_near")
        assert found_in(await fork.changes()) == [("mixed", None, "multiset", [delete({"a": "1"})])]


async def test_a_missing_baseline_is_a_fault_that_names_it(server: Server, zoo: str) -> None:
    async with cloned(server, zoo) as fork:
        with pytest.raises(EnvironmentFault, match=r"baseline 'gone' is gone"):
            await collect_changes(server, baseline="gone", fork=fork.name, watermark=fork.watermark)


async def test_a_baseline_that_is_built_again_under_its_name_is_read_again(server: Server) -> None:
    async with baseline_of(
        server, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)"
    ) as baseline:
        async with cloned(server, baseline) as fork:
            assert await fork.changes() == ChangeSet()
        async with connected(server) as admin:
            await admin.execute(f"DROP DATABASE {baseline} WITH (FORCE)")
            await admin.execute(f"CREATE DATABASE {baseline} STRATEGY FILE_COPY")
        async with connected(server, baseline) as session:
            await session.execute("CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1), (2)")
        async with cloned(server, baseline) as fork:
            await fork.run("DELETE FROM u WHERE id = 2")
            assert found_in(await fork.changes()) == [("u", ID, "pages", [delete({"id": "2"}, "id")])]
