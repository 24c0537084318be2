"""Loading: a seed loads whole, or is refused with file, line, reason and the way out."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from support.databases import connected, scratch_database
from support.seeds import loaded, loading, seed_of

from redteam_forker.errors import SeedError, ServerUnavailable
from redteam_forker.seeds import load, read_seed

if TYPE_CHECKING:
    from redteam_forker.servers import Server


@pytest.mark.parametrize(
    ("scripts", "words"),
    [
        pytest.param(
            ["CREATE TABLE t (a int);", "\nSELECT 1;\nINSERT INTO t\nVALUES\n(1,\n2);"],
            "2.sql:3: INSERT has more expressions than target columns",
            id="the-line-where-the-statement-begins",
        ),
        pytest.param(
            ["CREATE TABLE t (a int);\nCOPY t FROM stdin;\n1\n2\nx\n\\.\n"],
            "1.sql:5: invalid input syntax for type integer",
            id="the-line-of-a-copied-row",
        ),
        pytest.param(
            [
                "DO $$ BEGIN FOR i IN 1..5000 LOOP RAISE WARNING '%', repeat('x', 100); END LOOP; END $$;\n"
                "SELECT 1/0;"
            ],
            "1.sql:2: division by zero",
            id="after-any-number-of-notices",
        ),
        pytest.param(["SELECT 1;"], "made no table", id="no-table"),
        pytest.param(
            ["CREATE TABLE t (a int); CREATE TABLE t (a int);"], "the seed makes it twice", id="twice"
        ),
    ],
)
async def test_a_failed_statement_is_told_by_file_and_line(
    server: Server, scripts: list[str], words: str
) -> None:
    with pytest.raises(SeedError) as refusal:
        await loaded(server, seed_of(*scripts))
    assert words in str(refusal.value)


async def test_psql_reads_nothing_from_around_us(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (".psqlrc", ".pgpass"):
        (tmp_path / name).write_text("SELECT 1/0;")
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {
        "PSQLRC": str(tmp_path / ".psqlrc"),
        "PGDATABASE": "nowhere",
        "PGHOST": "nowhere.invalid",
        "PGOPTIONS": "-c nonsense=1",
        "PGCLIENTENCODING": "LATIN1",
        "PGSERVICE": "nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    seed = seed_of('CREATE TABLE "tä" (a int); SELECT * FROM "tä";')
    assert (await loaded(server, seed)).tables == 1


async def test_a_large_file_and_its_output_pass_through(server: Server) -> None:
    rows = "".join(f"{n}\t{'x' * 100}\n" for n in range(20_000))
    seed = seed_of(
        f"CREATE TABLE t (a int, b text);\nCOPY t FROM stdin;\n{rows}\\.\nSELECT * FROM t;\n\\echo done\n"
    )
    async with scratch_database(server) as database:
        await load(server, database, seed)
        async with connected(server, database) as session:
            assert await session.fetchval("SELECT count(*) FROM t") == 20_000


async def test_an_error_stops_a_file_that_is_still_being_sent(server: Server) -> None:
    seed = seed_of("SELECT 1/0;\n" + "SELECT 'some text that is long';\n" * 50_000)
    with pytest.raises(SeedError, match=r"1\.sql:1: division by zero"), anyio.fail_after(30):
        await loaded(server, seed)


async def test_a_seed_that_takes_too_long_is_stopped(server: Server) -> None:
    async with scratch_database(server) as database:
        with pytest.raises(ServerUnavailable, match="took longer than"):
            await load(server, database, seed_of("SELECT pg_sleep(50);"), timeout_s=0.3)


_SHOP = r"""
    CREATE TABLE items (id int PRIMARY KEY, name text, made bytea DEFAULT '\x00ff');
    CREATE VIEW names AS SELECT name FROM items;
    INSERT INTO items SELECT g, 'Grüße ' || g || E'\t\n\\' FROM generate_series(1, 500) g;
    SELECT lo_from_bytea(4711, '\xdeadbeef');
"""


async def dumped(server: Server, database: str, path: Path, *options: str) -> None:
    """Run the pg_dump that is beside psql."""
    command = server.psql(database)
    program = str(Path(command.argv[0]).with_name("pg_dump"))
    await anyio.to_thread.run_sync(
        lambda: subprocess.run([program, *options, "-f", path], env=dict(command.env), check=True)
    )


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-Fc"], id="custom"),
        pytest.param(["-Ft"], id="tar"),
        pytest.param(["-Fd"], id="directory"),
        pytest.param(["-Fd", "-Z0"], id="directory-not-compressed"),
        pytest.param(["-Fp"], id="plain"),
        pytest.param(["-Fp", "-C", "--clean", "--if-exists"], id="plain-with-its-database"),
        pytest.param(["-Fc", "--encoding=LATIN1"], id="custom-in-latin-1"),
        pytest.param(["-Fp", "--encoding=LATIN1"], id="plain-in-latin-1"),
        pytest.param(["-Fp", "--inserts"], id="plain-inserts"),
    ],
)
async def test_every_format_of_pg_dump_gives_the_same_world_whatever_its_name(
    server: Server, tmp_path: Path, options: list[str]
) -> None:
    state = "SELECT count(*), md5(string_agg(i::text, ',' ORDER BY id)), lo_get(4711) FROM items i"
    async with scratch_database(server, _SHOP) as source:
        await dumped(server, source, tmp_path / "seed.txt", *options)
        async with connected(server, source) as session:
            before = await session.fetchrow(state)
        names = ["seed.txt"]
        if (tmp_path / "seed.txt").is_file():
            (tmp_path / "packed").write_bytes(gzip.compress((tmp_path / "seed.txt").read_bytes()))
            names.append("packed")
        for name in names:
            seed = read_seed(tmp_path, [name], anchor=None, moves=())
            assert seed.hash == read_seed(tmp_path, [name], anchor=None, moves=()).hash
            async with loading(server, seed) as (database, facts):
                assert facts.tables == 1
                async with connected(server, database) as session:
                    assert await session.fetchrow(state) == before
        async with connected(server, source) as session:  # -C names it, and it is alive
            assert await session.fetchrow(state) == before


async def test_an_archive_is_checked_like_any_script(server: Server, tmp_path: Path) -> None:
    schema = "CREATE EXTENSION dblink; CREATE TABLE t (a int)"
    async with scratch_database(server, schema) as source:
        await dumped(server, source, tmp_path / "seed", "-Fc")
    with pytest.raises(SeedError, match=r"seed:\d+: extension dblink: .* \(a line of what pg_restore -f -"):
        await loaded(server, read_seed(tmp_path, ["seed"], anchor=None, moves=()))
    (tmp_path / "cut").write_bytes((tmp_path / "seed").read_bytes()[:1500])
    with pytest.raises(SeedError, match="'cut' is an archive that pg_restore cannot read"):
        read_seed(tmp_path, ["cut"], anchor=None, moves=())


async def test_a_seeds_database_is_the_templates_and_another_of_that_name_is_untouched(
    server: Server,
) -> None:
    precious = "CREATE TABLE precious (a int); INSERT INTO precious VALUES (7)"
    state = """
        SELECT oid, datacl::text, (SELECT count(*) FROM pg_db_role_setting WHERE setdatabase = d.oid)
        FROM pg_database d WHERE datname = $1
    """
    async with scratch_database(server, precious) as live, connected(server) as admin:
        seed = seed_of(
            f"DROP DATABASE {live};\nCREATE DATABASE {live};\nALTER DATABASE {live} SET work_mem = '3MB';\n"
            f"ALTER ROLE ALL IN DATABASE {live} SET lock_timeout = '9s';\n\\connect {live}\n"
            "CREATE TABLE t (a int);\nCREATE TABLE u AS SELECT current_database() AS name;\n"
        )
        before = await admin.fetchrow(state, live)
        async with loading(server, seed) as (database, facts):
            assert facts.set_aside == (
                f"1.sql:1: DROP DATABASE {live}",
                f"1.sql:2: CREATE DATABASE {live}",
                f"1.sql:5: \\connect {live}",
            )
            async with connected(server, database) as session:
                assert await session.fetchval("SELECT name FROM u") == database
                settings = await session.fetchval(
                    "SELECT array_agg(s ORDER BY s) FROM pg_db_role_setting, unnest(setconfig) s "
                    "WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = $1)",
                    database,
                )
                assert settings == ["lock_timeout=9s", "work_mem=3MB"]
        assert await admin.fetchrow(state, live) == before
        async with connected(server, live) as session:
            assert await session.fetchval("SELECT a FROM precious") == 7


async def test_included_files_run_in_one_session_and_fail_by_their_own_lines(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "all.sql").write_text("CREATE TEMP TABLE m (a int);\n\\ir sub/a.sql\nSELECT 1/0;\n")
    copied = "CREATE TABLE t (a int);\nCOPY t FROM stdin;\n1\n\\.\nINSERT INTO m VALUES (1)"
    (tmp_path / "sub/a.sql").write_text(copied)
    with pytest.raises(SeedError, match=r"^all\.sql:3: division by zero"):
        await loaded(server, read_seed(tmp_path, ["all.sql"], anchor=None, moves=()))
    (tmp_path / "sub/a.sql").write_text("CREATE TABLE t (a int);\n\nCOPY t FROM stdin;\n1\nx\n\\.\n")
    with pytest.raises(SeedError, match=r"^sub/a\.sql:5: invalid input syntax"):
        await loaded(server, read_seed(tmp_path, ["all.sql"], anchor=None, moves=()))


async def test_owners_are_ours_when_they_are_stripped(server: Server) -> None:
    script = "CREATE TABLE t (a int); ALTER TABLE t OWNER TO seed_load_stranger; CREATE SCHEMA s;"
    async with loading(server, seed_of(script, owners="strip")) as (database, facts):
        assert facts.stripped_owners == ("1.sql:1: ALTER TABLE t OWNER TO seed_load_stranger",)
        async with connected(server, database) as session:
            owner = "SELECT tableowner::text = current_user FROM pg_tables WHERE tablename = 't'"
            assert await session.fetchval(owner)
            assert not await session.fetch("SELECT FROM pg_roles WHERE rolname = 'seed_load_stranger'")
