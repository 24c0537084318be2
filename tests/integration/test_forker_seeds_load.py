"""Loading: a seed loads whole, or is refused with file, line, reason and the way out."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from support.databases import connected, scratch_database

from redteam_forker.errors import SeedError, ServerUnavailable
from redteam_forker.seeds import Seed, SeedFile, lint, load, read_seed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

_INPUTS = Path(__file__).resolve().parents[2].parent / "shared" / "inputs"
needs_inputs = pytest.mark.skipif(
    not _INPUTS.is_dir(), reason="the folder of public seeds is not beside the repository"
)


def seed_of(*scripts: str) -> Seed:
    return Seed(
        files=tuple(
            SeedFile(name=f"{place}.sql", data=text.encode()) for place, text in enumerate(scripts, 1)
        )
    )


@contextlib.asynccontextmanager
async def roles_for(server: Server, seed: Seed) -> AsyncIterator[None]:
    """The roles that a seed needs and the server lacks, gone afterwards."""
    async with connected(server) as admin:
        there = {row[0] for row in await admin.fetch("SELECT rolname FROM pg_roles")}
        missing = [role for role in lint(seed).roles if role not in there]
        for role in missing:
            await admin.execute(f'CREATE ROLE "{role}" NOLOGIN')
        try:
            yield
        finally:
            for role in missing:
                await admin.execute(f'DROP ROLE "{role}"')


async def loaded_tables(server: Server, seed: Seed) -> int:
    async with roles_for(server, seed), scratch_database(server) as database:
        return (await load(server, database, seed)).tables


@needs_inputs
@pytest.mark.parametrize(
    ("folder", "files", "tables"),
    [
        ("petclinic", ["schema.sql", "data.sql"], 7),
        ("pagila_neon", ["pagila.sql"], 22),
        ("openelis_clinic", ["OpenELIS-Global.sql"], 167),
        ("chinook_neon", ["chinook.sql"], 11),
        ("simplebank_migrations", ["db/migration"], 6),
        ("procrastinate", ["procrastinate/sql/schema.sql"], 4),
        ("derived", ["petclinic.crlf.sql"], 7),
        ("derived", ["petclinic.utf8bom.sql"], 7),
        ("derived", ["petclinic.plain_restrict.sql"], 7),
    ],
)
async def test_a_public_seed_loads_whole(server: Server, folder: str, files: list[str], tables: int) -> None:
    seed = read_seed(_INPUTS / folder, files, anchor=None, moves=())
    assert await loaded_tables(server, seed) == tables


@needs_inputs
async def test_a_public_seed_loads_whole_once_its_extension_is_there(server: Server) -> None:
    kitchen = read_seed(
        _INPUTS / "postgraphile_kitchen",
        ["kitchen-sink-schema.sql", "kitchen-sink-permissions.sql", "kitchen-sink-data.sql"],
        anchor=None,
        moves=(),
    )
    with pytest.raises(
        SeedError, match=r'kitchen-sink-schema\.sql:\d+: type "citext" .* put CREATE EXTENSION'
    ):
        await loaded_tables(server, kitchen)
    first = SeedFile(name="extensions.sql", data=b"CREATE EXTENSION citext;")
    assert await loaded_tables(server, Seed(files=(first, *kitchen.files))) == 142


@needs_inputs
@pytest.mark.parametrize(
    ("folder", "files", "words"),
    [
        ("chinook_lerocha", ["Chinook_PostgreSql.sql"], "Chinook_PostgreSql.sql:19: DROP DATABASE"),
        ("derived", ["petclinic.create_clean.sql"], "petclinic.create_clean.sql:21: DROP DATABASE"),
        ("derived", ["petclinic.truncated_mid_copy.sql"], "the file is cut off"),
        ("derived", ["petclinic.fc.dump"], "pg_restore"),
        ("derived", ["petclinic.fd"], "pg_restore"),
        ("derived", ["petclinic.utf16.sql"], "UTF-16"),
        ("derived", ["petclinic.dataonly.sql"], "check that all files are listed, in order"),
        ("derived", ["petclinic.latin1.sql"], "save the file as UTF-8"),
        ("derived", ["pg_dumpall.roles.sql"], "SUPERUSER"),
        ("omop_cdm", ["OMOPCDM_postgresql_5.4_ddl.sql"], "fill in the placeholder @cdmDatabaseSchema"),
        ("evalsupport", ["supabase/migrations/0001_initial_schema.sql"], 'near "position"'),
    ],
)
async def test_a_public_seed_that_cannot_load_is_refused_with_the_reason(
    server: Server, folder: str, files: list[str], words: str
) -> None:
    with pytest.raises(SeedError) as refusal:
        await loaded_tables(server, read_seed(_INPUTS / folder, files, anchor=None, moves=()))
    assert words in str(refusal.value)


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
        pytest.param(["CREATE EXTENSION no_such;"], "name another one with --server", id="missing-extension"),
        pytest.param(
            ["CREATE TABLE t (a int); CREATE TABLE t (a int);"], "the seed makes it twice", id="twice"
        ),
    ],
)
async def test_a_failed_statement_is_told_by_file_and_line(
    server: Server, scripts: list[str], words: str
) -> None:
    with pytest.raises(SeedError) as refusal:
        await loaded_tables(server, seed_of(*scripts))
    assert words in str(refusal.value)


async def test_a_seed_with_its_own_roles_loads_again_and_again(server: Server) -> None:
    seed = seed_of(
        "CREATE ROLE seed_load_own LOGIN PASSWORD 'x'; CREATE TABLE t (a int);",
        "GRANT SELECT ON t TO seed_load_own;",
    )
    async with roles_for(server, seed):
        for _ in range(2):
            async with scratch_database(server) as database:
                assert (await load(server, database, seed)).tables == 1
        async with connected(server) as admin:
            assert await admin.fetchval(
                "SELECT NOT rolcanlogin FROM pg_roles WHERE rolname = 'seed_load_own'"
            )


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
    assert await loaded_tables(server, seed_of('CREATE TABLE "tä" (a int); SELECT * FROM "tä";')) == 1


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
        await loaded_tables(server, seed)


async def test_a_seed_that_takes_too_long_is_stopped(server: Server) -> None:
    async with scratch_database(server) as database:
        with pytest.raises(ServerUnavailable, match="took longer than"):
            await load(server, database, seed_of("SELECT pg_sleep(50);"), timeout_s=0.3)
