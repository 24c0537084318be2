"""Other people's seeds load whole, or are refused with the reason and the way out; docs/seeds.md says which.

The table there is made here: run these tests with WRITE_SEEDS_TABLE=1 in the environment, in one process.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.databases import connected
from support.seeds import INPUTS, loading, needs_inputs

from redteam_forker.errors import SeedError
from redteam_forker.seeds import lint, read_seed

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_PAGE = Path(__file__).resolve().parents[2] / "docs/seeds.md"
_BEGIN, _END = "<!-- begin: tests/integration/test_forker_seeds_inputs.py -->\n", "<!-- end -->\n"
_HEAD = "| seed | shape | outcome | tables | rows | said of it |\n|---|---|---|---|---|---|\n"

# What all files of a seed's names begin with.
_LONG = re.compile(r"\A(?:OMOPCDM_postgresql_5\.4_|kitchen-sink-)")
_AUTH = """
    CREATE SCHEMA auth;
    CREATE TABLE auth.users (id uuid PRIMARY KEY, raw_user_meta_data jsonb);
    CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE
      AS $$SELECT nullif(current_setting('request.jwt.claim.sub', true), '')::uuid$$;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One way to name a public seed.

    Attributes:
        folder: below the inputs.
        files: as a suite would list them.
        shape: what is particular about it.
        first: SQL to put into a file before it, as the refusal without it says.
        change: text to replace in each file, and by what; as the refusal without it says.
        way: `first` or `change` in words.
    """

    folder: str
    files: tuple[str, ...]
    shape: str
    first: str = ""
    change: tuple[str, str] = ("", "")
    way: str = ""

    @property
    def label(self) -> str:
        names = [_LONG.sub("", file) for file in self.files]
        return f"{self.folder}: {', '.join(names)}" + (f" ({self.way})" if self.way else "")


_OMOP = tuple(
    f"OMOPCDM_postgresql_5.4_{part}.sql" for part in ("ddl", "primary_keys", "constraints", "indices")
)
_KITCHEN = tuple(f"kitchen-sink-{part}.sql" for part in ("schema", "data", "permissions"))


def _derived(name: str, shape: str) -> Input:
    return Input(folder="derived", files=(name,), shape=shape)


_INPUTS = (
    Input(folder="petclinic", files=("schema.sql", "data.sql"), shape="two files in order"),
    Input(folder="petclinic", files=(".",), shape="a folder whose names do not give the order"),
    Input(folder="openelis_clinic", files=(".",), shape="155 COPY blocks; an owner that is not there"),
    Input(folder="omop_cdm", files=_OMOP, shape="a placeholder in the SQL"),
    Input(
        folder="omop_cdm",
        files=_OMOP,
        shape="tables, keys, constraints, indexes",
        first="CREATE SCHEMA cdm;",
        change=("@cdmDatabaseSchema", "cdm"),
        way="placeholder filled in",
    ),
    Input(folder="chinook_neon", files=(".",), shape="quoted names of mixed case, COPY"),
    Input(
        folder="chinook_lerocha", files=("Chinook_PostgreSql.sql",), shape="DROP and CREATE DATABASE, `\\c`"
    ),
    Input(
        folder="chinook_lerocha",
        files=("Chinook_PostgreSql_AutoIncrementPKs.sql",),
        shape="DROP and CREATE DATABASE, `\\c`",
    ),
    Input(folder="pagila_neon", files=(".",), shape="partitions, triggers, materialized view"),
    Input(
        folder="sanbase_structure",
        files=(".",),
        shape="`\\restrict`; extensions vector and citext; a newer SET",
    ),
    Input(folder="simplebank_migrations", files=(".",), shape="golang-migrate pairs, nested"),
    Input(folder="supabase_saas", files=(".",), shape="what Supabase has and Postgres has not"),
    Input(
        folder="supabase_saas",
        files=(".",),
        shape="policies on `auth.uid()`, publication",
        first=_AUTH,
        way="after a file that makes schema auth",
    ),
    Input(folder="postgraphile_kitchen", files=_KITCHEN, shape="an extension that nobody creates"),
    Input(
        folder="postgraphile_kitchen",
        files=_KITCHEN,
        shape="32 schemas, every type",
        first="CREATE EXTENSION citext;",
        way="after CREATE EXTENSION citext",
    ),
    Input(folder="procrastinate", files=(".",), shape="schema.sql beside migrations of the same objects"),
    Input(
        folder="procrastinate",
        files=("procrastinate/sql/migrations",),
        shape="38 migrations in natural order",
    ),
    Input(folder="evalsupport", files=(".",), shape="migrations, then seed.sql; a reserved word"),
    Input(
        folder="evalsupport",
        files=(".",),
        shape="migrations, then seed.sql; extension vector",
        change=("  position integer,\n  similarity", '  "position" integer,\n  similarity'),
        way="reserved word quoted",
    ),
    _derived("petclinic.fc.dump", "pg_dump -Fc"),
    _derived("petclinic.ft.tar", "pg_dump -Ft"),
    _derived("petclinic.fd", "pg_dump -Fd"),
    _derived("petclinic.plain.sql.gz", "gzip"),
    _derived("petclinic.plain_restrict.sql", "plain"),
    _derived("petclinic.create_clean.sql", "pg_dump -C --clean"),
    _derived("petclinic.inserts.sql", "pg_dump --inserts"),
    _derived("petclinic.dataonly.sql", "pg_dump --data-only"),
    Input(
        folder="derived",
        files=("../petclinic/schema.sql", "petclinic.dataonly.sql"),
        shape="pg_dump --data-only",
        way="after its schema",
    ),
    _derived("petclinic.crlf.sql", "CRLF"),
    _derived("petclinic.utf8bom.sql", "byte order mark"),
    _derived("petclinic.utf16.sql", "UTF-16"),
    _derived("petclinic.latin1.sql", "Latin-1, which it does not say"),
    _derived("petclinic.truncated_mid_copy.sql", "cut off in a COPY"),
    _derived("largeobject_lo_manage.sql", "large objects"),
    _derived("pg_dumpall.roles.sql", "roles only, one a superuser"),
    Input(
        folder="derived",
        files=("pg_dumpall.roles.sql", "petclinic.fc.dump"),
        shape="roles only, one a superuser",
        way="before a dump",
    ),
)


async def outcome(server: Server, case: Input, folder: Path) -> str:
    """The row of the table."""
    base = INPUTS / case.folder
    files = case.files
    if case.first or case.change[0]:
        for path in base.rglob("*.sql"):
            target = folder / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            target.write_text(text.replace(*case.change) if case.change[0] else text)
        base = folder
    if case.first:
        (base / ".first").mkdir()
        (base / ".first/first.sql").write_text(case.first)
        files = (".first/first.sql", *files)
    try:
        seed = read_seed(base, files, anchor=None, moves=())
        async with loading(server, seed) as (database, facts), connected(server, database) as session:
            said = list(facts.notes)
            if facts.set_aside:
                said.append(f"{len(facts.set_aside)} statements set aside")
            if roles := lint(seed).roles:
                said.append(f"roles: {', '.join(roles)}")
            tables = await session.fetch(
                "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind IN ('r', 'p') "
                "AND NOT relispartition AND relnamespace::regnamespace::text !~ '^(pg_|information_schema)'"
            )
            rows = [await session.fetchval(f"SELECT count(*) FROM {table['name']}") for table in tables]
            return _row(case, "loads", f"{facts.tables}", f"{sum(rows)}", "; ".join(said))
    except SeedError as error:
        first, *more = str(error).splitlines()
        return _row(case, "refused", "", "", first + (" ..." if more else ""))


def _row(case: Input, *cells: str) -> str:
    outcome, tables, rows, said = (cell.replace("|", "\\|") for cell in cells)
    return f"| {case.label} | {case.shape} | {outcome} | {tables} | {rows} | {said} |\n"


def _table() -> list[str]:
    text = _PAGE.read_text()
    return (
        text[text.index(_BEGIN) + len(_BEGIN) : text.index(_END)]
        .removeprefix(_HEAD)
        .splitlines(keepends=True)
    )


def _write(row: str) -> None:
    labels = [case.label for case in _INPUTS]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in (*_table(), row)}
    kept = [rows[label] for label in labels if label in rows]
    text = _PAGE.read_text()
    before, after = text[: text.index(_BEGIN)], text[text.index(_END) :]
    _PAGE.write_text(before + _BEGIN + _HEAD + "".join(kept) + after)


@needs_inputs
@pytest.mark.parametrize("case", _INPUTS, ids=lambda case: case.label)
async def test_a_public_seed_loads_whole_or_is_refused_as_the_docs_say(
    server: Server, tmp_path: Path, case: Input
) -> None:
    row = await outcome(server, case, tmp_path)
    if os.environ.get("WRITE_SEEDS_TABLE"):
        _write(row)
    assert row in _table(), "docs/seeds.md is stale: run this with WRITE_SEEDS_TABLE=1"


def test_the_table_in_the_docs_has_a_row_for_each_seed_and_no_other() -> None:
    assert [line.split(" | ")[0].removeprefix("| ") for line in _table()] == [case.label for case in _INPUTS]


@needs_inputs
def test_no_public_seed_is_forgotten() -> None:
    folders = {path.name for path in INPUTS.iterdir() if path.is_dir()}
    assert folders == {case.folder for case in _INPUTS}
    derived = {path.name for path in (INPUTS / "derived").iterdir()} - {"SOURCE.txt"}
    assert derived <= {file for case in _INPUTS for file in case.files}


@needs_inputs
async def test_a_dump_that_recreates_its_database_leaves_a_live_one_of_that_name_alone(
    server: Server,
) -> None:
    seed = read_seed(INPUTS / "derived", ["petclinic.create_clean.sql"], anchor=None, moves=())
    state = "SELECT oid, datacl::text, datdba FROM pg_database WHERE datname = 's_petclinic'"
    async with connected(server) as admin:
        await admin.execute("CREATE DATABASE s_petclinic STRATEGY FILE_COPY")
        try:
            async with connected(server, "s_petclinic") as live:
                await live.execute("CREATE TABLE owners AS SELECT 7 AS id")
                before = await admin.fetchrow(state)
                async with loading(server, seed) as (database, facts):
                    assert facts.tables == 7
                    async with connected(server, database) as session:
                        assert await session.fetchval("SELECT count(*) FROM owners") == 10
                # The same session as before: nobody was thrown out.
                assert await live.fetchval("SELECT array_agg(id) FROM owners") == [7]
                assert await admin.fetchrow(state) == before
        finally:
            await admin.execute("DROP DATABASE s_petclinic WITH (FORCE)")
