"""Schema objects: what was made, removed or altered is told, and nothing else."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import pytest
from support.altered import CASES, SCHEMA, Told
from support.clones import Clone, baseline_of, cloned
from support.databases import connected
from support.forks import connected_as, made_fork, made_template
from support.servers import open_to_all, stranger
from support.versions import NotFoundError, foreign_server, programs_of

from redteam_forker.changes import ChangeSet, collect_changes
from redteam_forker.fork import check_out, create_warm, drop_fork
from redteam_forker.servers import open_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.changes import ObjectChange
    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template


@pytest.fixture(scope="module")
async def baseline(server: Server) -> AsyncIterator[str]:
    async with baseline_of(server, SCHEMA) as name:
        yield name


@pytest.fixture
async def fork(server: Server, baseline: str) -> AsyncIterator[Clone]:
    async with cloned(server, baseline) as clone:
        yield clone


async def check(fork: Clone, statement: str, expected: list[Told]) -> None:
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


@pytest.mark.parametrize(("statement", "expected"), CASES, ids=[case[0] for case in CASES])
async def test_an_altered_object_is_told_with_both_definitions(
    fork: Clone, statement: str, expected: list[Told]
) -> None:
    await check(fork, statement, expected)


_PARTS = 6


@pytest.fixture(scope="module", params=[15, 16], ids=str)
async def older(
    request: pytest.FixtureRequest, anyio_backend: str
) -> AsyncIterator[tuple[Server, str, bool]]:
    """A server, a baseline on it, and whether the server has extensions: not every wheel does."""
    try:
        programs = await anyio.to_thread.run_sync(programs_of, request.param)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn, open_server(dsn) as server:
        async with connected(server) as session:
            extended = await session.fetchval(
                "SELECT count(*) = 2 FROM pg_available_extensions WHERE name IN ('citext', 'hstore')"
            )
        schema = SCHEMA if extended else SCHEMA.replace("CREATE EXTENSION citext;", "")
        async with baseline_of(server, schema) as name:
            yield server, name, extended


@pytest.mark.parametrize("part", range(_PARTS))
async def test_older_versions_are_told_alike(older: tuple[Server, str, bool], part: int) -> None:
    server, baseline, extended = older
    for statement, expected in CASES[part::_PARTS]:
        if extended or not ("citext" in statement or "hstore" in statement):
            async with cloned(server, baseline) as fork:
                await check(fork, statement, expected)


async def test_what_the_fork_left_alone_is_not_read_twice(fork: Clone) -> None:
    # What another clone of the baseline does is none of this one's.
    async with cloned(fork.server, fork.baseline) as other:
        await other.run("DROP TABLE u", f"ALTER DATABASE {other.name} SET work_mem = '5MB'")
        assert await fork.changes() == ChangeSet()
        assert [change.name for change in (await other.changes()).objects] == [
            "database work_mem",
            "public.u",
        ]


async def test_an_extension_made_by_the_fork_stands_for_its_members(fork: Clone) -> None:
    await fork.run("CREATE EXTENSION hstore")
    async with connected(fork.server, fork.name) as session:
        assert await session.fetchval(
            "SELECT count(*) > 50 FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        )
    assert [change.kind for change in (await fork.changes()).objects] == ["extension"]


async def test_a_new_table_is_told_with_all_that_belongs_to_it(fork: Clone) -> None:
    await fork.run(
        "CREATE TABLE w (a int CONSTRAINT w_key PRIMARY KEY, b text DEFAULT 'x' CHECK (b <> ''), c serial)",
        "CREATE INDEX w_b ON w (b)",
        "ALTER TABLE w ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON w USING (a = 1)",
        "CREATE TRIGGER g AFTER INSERT ON w FOR EACH ROW EXECUTE FUNCTION noted()",
        "GRANT SELECT ON w TO PUBLIC",
        "GRANT UPDATE (b) ON w TO PUBLIC",
        "COMMENT ON TABLE w IS 'all of it'",
        "COMMENT ON CONSTRAINT w_key ON w IS 'the key'",
    )
    (change,) = (await fork.changes()).objects
    for word in (
        "(a integer not null, b text default 'x'::text, c integer not null default",
        "constraint w_key PRIMARY KEY (a)",
        "CHECK ((b <> ''::text))",
        "index public.w_b CREATE INDEX",
        "row level security",
        "policy p permissive for all to public using (a = 1)",
        "trigger g CREATE TRIGGER",
        "grant table public.w =r/",
        "grant column public.w.b =w/",
        "comment table public.w all of it",
        "comment table constraint w_key on public.w the key",
        "sequence public.w_c_seq owner",
    ):
        assert word in (change.new or "")


async def test_a_range_type_is_told_with_what_it_brings_along(fork: Clone) -> None:
    await fork.run("CREATE TYPE span AS RANGE (subtype = float8, subtype_diff = float8mi)")
    (change,) = (await fork.changes()).objects
    assert (change.kind, change.name) == ("type", "public.span")


async def test_not_null_constraints_are_told_where_the_column_does_not_tell_them(fork: Clone) -> None:
    # From PostgreSQL 18 on they have names, may be unchecked, and may be the parent's alone.
    await fork.run("ALTER TABLE t ADD CONSTRAINT given NOT NULL n NOT VALID")
    assert [(o.kind, o.name, o.new) for o in (await fork.changes()).objects] == [
        ("column", "public.t.n", "integer not null not valid")
    ]
    await fork.run(
        "ALTER TABLE u RENAME CONSTRAINT u_id_not_null TO there", "ALTER TABLE t ALTER n DROP NOT NULL"
    )
    assert [(o.op, o.kind, o.name, o.old) for o in (await fork.changes()).objects] == [
        ("alter", "not-null constraint", "public.u.there", "public.u.u_id_not_null: NOT NULL id")
    ]


async def test_virtual_columns_are_told_from_stored_ones(fork: Clone) -> None:
    await fork.run("ALTER TABLE t ADD virtual int GENERATED ALWAYS AS (n + 1) VIRTUAL")
    (change,) = (await fork.changes()).objects
    assert change.new == "integer generated as (n + 1) virtual"


async def test_a_subscription_is_told_without_its_connection(fork: Clone) -> None:
    await fork.run(
        "CREATE SUBSCRIPTION sub CONNECTION 'dbname=nowhere password=secret' PUBLICATION p "
        "WITH (connect = false, slot_name = none)"
    )
    try:
        (change,) = (await fork.changes()).objects
    finally:
        await fork.run("DROP SUBSCRIPTION sub")
    assert (change.op, change.kind, change.name, change.new) == (
        "create",
        "subscription",
        "sub",
        "owner rt_admin, disabled, to p",
    )


async def test_no_password_of_a_user_mapping_is_in_the_change_set(fork: Clone) -> None:
    await fork.run("ALTER USER MAPPING FOR PUBLIC SERVER far OPTIONS (ADD password 'hunter2')")
    assert "hunter2" not in str((await fork.changes()).to_json())


@pytest.mark.parametrize(
    ("statement", "kind", "name", "new"),
    [
        (
            "ALTER DATABASE {fork} SET search_path = evil, public",
            "setting",
            "database search_path",
            "evil, public",
        ),
        (
            "ALTER ROLE rt_admin IN DATABASE {fork} SET work_mem = '5MB'",
            "setting",
            "role rt_admin work_mem",
            "5MB",
        ),
        ("GRANT CREATE ON DATABASE {fork} TO pg_monitor", "grant", "database to pg_monitor", "CREATE"),
        ("COMMENT ON DATABASE {fork} IS 'mine'", "comment", "database", "mine"),
        ("ALTER DATABASE {fork} OWNER TO pg_monitor", "database", "database", "owner pg_monitor"),
        (
            "ALTER DATABASE {fork} CONNECTION LIMIT 7",
            "database",
            "database",
            "owner an administrator, connection limit 7",
        ),
    ],
)
async def test_what_shared_catalogs_hold_of_the_fork_is_told(
    fork: Clone, statement: str, kind: str, name: str, new: str
) -> None:
    await fork.run(statement.format(fork=fork.name))
    told = (await fork.changes()).objects
    assert (kind, name, new) in [(change.kind, change.name, change.new) for change in told]
    assert {change.kind for change in told} <= {kind, "grant"}


@contextlib.asynccontextmanager
async def pooled(server: Server, template: Template) -> AsyncIterator[Fork]:
    """As a pool makes it: its role is let in after the fork's time began."""
    fork = await check_out(server, await create_warm(server, template), lifetime_s=600.0)
    try:
        yield fork
    finally:
        await drop_fork(server, fork)


async def objects_of(server: Server, template: Template, fork: Fork) -> tuple[ObjectChange, ...]:
    changes = await collect_changes(
        server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
    )
    return changes.objects


_SETTINGS = """
CREATE TABLE t (id int);
CREATE ROLE {app} LOGIN;
GRANT CREATE, USAGE ON SCHEMA public TO {app};
GRANT SELECT ON t TO {app};
ALTER ROLE {app} SET work_mem = '5MB';
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET search_path = public, side', current_database());
  EXECUTE format('ALTER ROLE {app} IN DATABASE %I SET lock_timeout = 77', current_database());
END $$;
"""


async def test_what_we_do_to_make_a_fork_is_no_change_and_its_roles_own_affairs_are_none(
    server: Server,
) -> None:
    # P25, P48
    app = "settings_app"
    async with made_template(server, _SETTINGS.format(app=app), role=app) as template:
        assert {setting.role for setting in template.settings} == {None, "", app}
        for making in (made_fork, pooled):
            async with making(server, template) as fork:
                assert await objects_of(server, template, fork) == ()
                async with connected_as(fork) as agent:
                    await agent.execute(
                        f"ALTER ROLE {fork.user} SET statement_timeout = 0;"
                        f"ALTER ROLE {fork.user} PASSWORD 'x';"
                        f"ALTER ROLE {fork.user} IN DATABASE {fork.name} RESET ALL"
                    )
                assert await objects_of(server, template, fork) == ()
                async with connected(server) as admin:
                    await admin.execute(f"ALTER ROLE {app} IN DATABASE {fork.name} RESET lock_timeout")
                    await admin.execute(f"ALTER DATABASE {fork.name} SET search_path = side, public")
                assert [
                    (change.op, change.name, change.old, change.new)
                    for change in await objects_of(server, template, fork)
                ] == [
                    ("alter", "database search_path", "public, side", "side, public"),
                    ("drop", f"role {app} lock_timeout", "77", None),
                ]


async def test_two_forks_that_made_the_same_objects_have_the_same_hash(server: Server) -> None:
    # Their roles have names of their own, and own what they made.
    app = "making_app"
    hashes, texts = [], ""
    async with made_template(server, _SETTINGS.format(app=app), role=app) as template:
        for _ in range(2):
            async with made_fork(server, template) as fork:
                async with connected_as(fork) as agent:
                    await agent.execute(
                        f"CREATE TABLE public.mine (id int); GRANT SELECT ON mine TO {app} WITH GRANT OPTION;"
                        f"ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO {app};"
                        f"ALTER TABLE mine ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON mine TO {fork.user}"
                    )
                changes = await collect_changes(
                    server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
                )
                hashes.append(changes.hash)
                texts += str(changes.to_json())
                assert fork.name not in texts
    assert hashes[0] == hashes[1]
    assert "owner <fork>" in texts


async def test_large_objects_of_equal_content_are_equal_however_they_were_written(fork: Clone) -> None:
    # A page that was never written reads as zeros.
    await fork.run(
        "SELECT lo_put(4711, 0, 'abc')",
        "SELECT lo_create(90), lo_put(90, 6000, 'z')",
        "SELECT lo_from_bytea(91, decode(repeat('00', 6000) || '7a', 'hex'))",
    )
    told = {change.name: change.new for change in (await fork.changes()).objects}
    assert told.keys() == {"90", "91"}
    assert told["90"] == told["91"]
    assert "6001 bytes" in (told["90"] or "")


async def test_without_the_right_to_read_them_large_objects_are_told_by_their_owner() -> None:
    async with (
        open_to_all() as server,
        stranger(server, "CREATEDB CREATEROLE") as dsn,
        open_server(dsn) as theirs,
    ):
        sql = "CREATE TABLE t (id int); SELECT lo_from_bytea(1, 'a'), lo_from_bytea(2, 'b')"
        async with baseline_of(theirs, sql) as name, cloned(theirs, name) as fork:
            await fork.run("SELECT lo_put(1, 0, 'z')")
            assert await fork.changes() == ChangeSet()
            await fork.run("SELECT lo_unlink(2), lo_from_bytea(3, 'c')")
            told = (await fork.changes()).objects
    owner = dsn.partition("//")[2].partition(":")[0]
    assert [(o.op, o.kind, o.name, o.old, o.new) for o in told] == [
        ("drop", "large object", "2", f"owner {owner}", None),
        ("create", "large object", "3", None, f"owner {owner}"),
    ]
