"""Schema objects: what was made, removed or altered is told, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.clones import Clone, baseline_of, cloned
from support.databases import connected

from redteam_forker.changes import ChangeSet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

_SCHEMA = """
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad');
CREATE DOMAIN small AS int CHECK (value < 9);
CREATE TABLE t (id int PRIMARY KEY, v text DEFAULT 'x', n int);
CREATE INDEX t_v ON t (v);
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON t USING (n = 1);
CREATE VIEW seen AS SELECT id FROM t;
CREATE FUNCTION answer() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER note BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION noted();
CREATE TABLE u (id serial PRIMARY KEY, t_id int REFERENCES t);
"""


@pytest.fixture(scope="module")
async def baseline(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, _SCHEMA) as name:
        yield name


@pytest.fixture
async def fork(server: Server, baseline: str) -> AsyncIterator[Clone]:
    async with cloned(server, baseline) as clone:
        yield clone


# op, kind, name, and words of the old and of the new definition
_Told = tuple[str, str, str, str | None, str | None]

_CASES: list[tuple[str, list[_Told]]] = [
    (
        "CREATE TABLE w (a int PRIMARY KEY, b text NOT NULL)",
        [("create", "table", "public.w", None, "(a integer not null, b text not null)")],
    ),
    ("DROP TABLE u", [("drop", "table", "public.u", "t_id integer", None)]),
    (
        "ALTER TABLE t RENAME TO tt",
        [
            ("alter", "table", "public.tt", "public.t:", "public.tt:"),
            ("alter", "trigger", "public.tt.note", "ON public.t ", "ON public.tt "),
            ("alter", "index", "public.t_v", "ON public.t ", "ON public.tt "),
            ("alter", "constraint", "public.u.u_t_id_fkey", "public.t(", "public.tt("),
            ("alter", "view", "public.seen", "FROM public.t;", "FROM public.tt;"),
        ],
    ),
    (
        "ALTER TABLE t ADD COLUMN w int NOT NULL DEFAULT 0",
        [("create", "column", "public.t.w", None, "integer not null default 0")],
    ),
    (
        "ALTER TABLE t DROP COLUMN v",
        [
            ("drop", "column", "public.t.v", "text default 'x'::text", None),
            ("drop", "index", "public.t_v", "(v)", None),
        ],
    ),
    (
        "ALTER TABLE t ALTER n SET NOT NULL",
        [("alter", "column", "public.t.n", "integer", "integer not null")],
    ),
    ("ALTER TABLE t ALTER v SET DEFAULT 'y'", [("alter", "column", "public.t.v", "'x'", "'y'")]),
    (
        "ALTER TABLE t RENAME n TO m",
        [
            ("alter", "column", "public.t.m", "public.t.n: integer", "public.t.m: integer"),
            ("alter", "policy", "public.t.mine", "(n = 1)", "(m = 1)"),
        ],
    ),
    ("ALTER TABLE u SET UNLOGGED", [("alter", "table", "public.u", "owner", "unlogged")]),
    ("DROP INDEX t_v", [("drop", "index", "public.t_v", "(v)", None)]),
    ("CREATE UNIQUE INDEX t_n ON t (n)", [("create", "index", "public.t_n", None, "UNIQUE")]),
    (
        "ALTER TABLE t ADD CONSTRAINT n_small CHECK (n < 5)",
        [("create", "constraint", "public.t.n_small", None, "CHECK ((n < 5))")],
    ),
    (
        "ALTER TABLE u DROP CONSTRAINT u_t_id_fkey",
        [("drop", "constraint", "public.u.u_t_id_fkey", "REFERENCES public.t(id)", None)],
    ),
    (
        "CREATE OR REPLACE FUNCTION answer() RETURNS int LANGUAGE sql AS 'SELECT 2'",
        [("alter", "function", "public.answer()", "SELECT 1", "SELECT 2")],
    ),
    (
        "CREATE PROCEDURE p(int) LANGUAGE sql AS ''",
        [("create", "procedure", "public.p(integer)", None, "LANGUAGE sql")],
    ),
    (
        "CREATE AGGREGATE a (int) (sfunc = int4pl, stype = int)",
        [("create", "aggregate", "public.a(integer)", None, "integer")],
    ),
    (
        "CREATE OPERATOR public.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = texteq)",
        [("create", "operator", "public.===(text,text)", None, "function texteq(text,text)")],
    ),
    (
        "CREATE CAST (mood AS int) WITH INOUT AS ASSIGNMENT",
        [("create", "cast", "public.mood as integer", None, "in assignment, by input and output")],
    ),
    ("DROP TRIGGER note ON t", [("drop", "trigger", "public.t.note", "BEFORE INSERT", None)]),
    ("ALTER TABLE t DISABLE TRIGGER note", [("alter", "trigger", "public.t.note", "noted()", "(disabled)")]),
    ("ALTER POLICY mine ON t USING (true)", [("alter", "policy", "public.t.mine", "(n = 1)", "using true")]),
    (
        "ALTER TABLE t DISABLE ROW LEVEL SECURITY",
        [("alter", "table", "public.t", "row level security", "owner")],
    ),
    (
        "CREATE OR REPLACE VIEW seen AS SELECT id FROM t WHERE n = 2",
        [("alter", "view", "public.seen", "FROM", "n = 2)")],
    ),
    (
        "CREATE RULE r AS ON DELETE TO u DO INSTEAD NOTHING",
        [("create", "rule", "public.u.r", None, "DO INSTEAD NOTHING")],
    ),
    ("ALTER TYPE mood ADD VALUE 'ok'", [("alter", "type", "public.mood", "'sad'", "'sad', 'ok'")]),
    ("ALTER DOMAIN small SET NOT NULL", [("alter", "type", "public.small", "domain integer", "not null")]),
    ("CREATE SCHEMA s", [("create", "schema", "s", None, "owner")]),
    (
        "ALTER SEQUENCE u_id_seq INCREMENT 5",
        [("alter", "sequence", "public.u_id_seq", "increment 1", "increment 5")],
    ),
    ("CREATE EXTENSION hstore", [("create", "extension", "hstore", None, "in public")]),
    ("DROP EXTENSION citext", [("drop", "extension", "citext", "in public", None)]),
    ("GRANT SELECT ON t TO PUBLIC", [("create", "grant", "table public.t", None, "=r/")]),
    ("GRANT UPDATE (v) ON t TO PUBLIC", [("create", "grant", "column public.t.v", None, "=w/")]),
    (
        "REVOKE EXECUTE ON FUNCTION answer() FROM PUBLIC",
        [("create", "grant", "function public.answer()", None, "=X/")],
    ),
    (
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        [("create", "grant", "default of", None, "=r/")],
    ),
    ("SELECT lo_create(77)", [("create", "large object", "77", None, "owner")]),
    ("CREATE PUBLICATION p FOR TABLE t", [("create", "publication", "p", None, "public.t")]),
    ("DROP VIEW seen; CREATE VIEW seen AS SELECT id FROM t", []),
    ("CREATE TABLE w (a int); DROP TABLE w", []),
    ("CREATE TEMP TABLE w (a int)", []),
    ("BEGIN; DROP TABLE u; ROLLBACK", []),
    ("VACUUM FULL t", []),
    ("ANALYZE", []),
]


@pytest.mark.parametrize(("statement", "expected"), _CASES, ids=[case[0] for case in _CASES])
async def test_an_altered_object_is_told_with_both_definitions(
    fork: Clone, statement: str, expected: list[_Told]
) -> None:
    await fork.run(statement)
    told = (await fork.changes()).objects
    assert sorted((change.op, change.kind) for change in told) == sorted(case[:2] for case in expected)
    for op, kind, name, old, new in expected:
        (change,) = (change for change in told if change.kind == kind)
        assert change.op == op
        assert change.name.startswith(name)
        assert (change.old is None) == (old is None)
        assert (change.new is None) == (new is None)
        assert (old or "") in (change.old or "")
        assert (new or "") in (change.new or "")


async def test_what_the_fork_left_alone_is_not_read_twice(fork: Clone) -> None:
    # Comments and settings of the session are no schema; nor is what another clone of the baseline does.
    async with cloned(fork.server, fork.baseline) as other:
        await other.run("DROP TABLE u")
        assert await fork.changes() == ChangeSet()
        assert [change.name for change in (await other.changes()).objects] == ["public.u"]


async def test_an_extension_made_by_the_fork_stands_for_its_members(fork: Clone) -> None:
    await fork.run("CREATE EXTENSION hstore")
    async with connected(fork.server, fork.name) as session:
        assert await session.fetchval(
            "SELECT count(*) > 50 FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        )
    assert [change.kind for change in (await fork.changes()).objects] == ["extension"]
