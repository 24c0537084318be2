r"""Rows that a script copies from files beside it, and archives whose inside is packed in another way."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from support.databases import connected, scratch_database
from support.seeds import loading

from redteam_forker.errors import SeedError
from redteam_forker.seeds import lint, load, read_seed
from redteam_forker.servers import binaries

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker.seeds import Seed
    from redteam_forker.servers import Server

_TABLE = "CREATE TABLE t (id int PRIMARY KEY, note text);\n"


def seed_in(folder: Path, script: str, **files: bytes) -> Seed:
    """A seed of one script beside files of rows (`__` is a slash, `_` at the end a dot)."""
    for name, data in {**files, "seed_sql": script.encode()}.items():
        path = folder / ".".join(name.replace("__", "/").rsplit("_", 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return read_seed(folder, ["seed.sql"], anchor=None, moves=())


@pytest.mark.parametrize(
    ("line", "data"),
    [
        pytest.param("\\copy t from 'rows.txt'", b"1\ta\n2\t\\N\n", id="text"),
        pytest.param("\\copy t from rows.txt", b"1\ta\n2\t\\N", id="unquoted-and-no-last-newline"),
        pytest.param("\\copy t (id, note) from 'rows.txt';", b"1\ta\n2\t\\N\n\\.\n", id="with-its-end"),
        pytest.param(
            "\\copy t FROM 'rows.txt' WITH (FORMAT csv, HEADER)", b"id,note\r\n1,a\r\n2,\r\n", id="csv-crlf"
        ),
        pytest.param(
            "\\copy public.t from 'rows.txt' csv header", b"\xef\xbb\xbfid,note\n1,a\n2,\n", id="mark"
        ),
        pytest.param("\\COPY t from 'rows.txt'".lower(), b"1\ta\n2\t\\N\n", id="lower"),
    ],
)
async def test_rows_are_copied_from_a_file_of_the_seeds_folder(
    server: Server, tmp_path: Path, line: str, data: bytes
) -> None:
    seed = seed_in(tmp_path, f"{_TABLE}{line}\nINSERT INTO t VALUES (3, 'after');\n", rows_txt=data)
    (tmp_path / "rows.txt").unlink()  # what was read is what is loaded
    async with loading(server, seed) as (name, _), connected(server, name) as session:
        rows = await session.fetch("SELECT id, note FROM t ORDER BY id")
    assert [tuple(row) for row in rows] == [(1, "a"), (2, None), (3, "after")]


async def test_an_included_script_copies_from_its_own_folder(server: Server, tmp_path: Path) -> None:
    seed = seed_in(
        tmp_path,
        _TABLE + "\\ir data/all.sql\n",
        data__all_sql=b"\\copy t from 'rows.csv' csv\n",
        data__rows_csv=b"1,a\n",
    )
    async with loading(server, seed) as (name, _), connected(server, name) as session:
        assert await session.fetchval("SELECT note FROM t") == "a"


async def test_a_row_that_does_not_fit_is_told_by_its_own_file_and_line(
    server: Server, tmp_path: Path
) -> None:
    seed = seed_in(
        tmp_path, f"{_TABLE}\\copy t from 'rows.csv' csv header\n", rows_csv=b"id,note\n1,a\nx,b\n"
    )
    async with scratch_database(server) as name:
        with pytest.raises(SeedError, match=r"^rows\.csv:3: invalid input syntax for type integer"):
            await load(server, name, seed)


def test_what_follows_a_copy_keeps_its_line(tmp_path: Path) -> None:
    seed = seed_in(
        tmp_path,
        f"{_TABLE}\\copy t from 'rows.csv' csv\nSELECT 1;\nDROP DATABASE x;\n",
        rows_csv=b"1,a\n2,b\n",
    )
    with pytest.raises(SeedError, match=r"^seed\.sql:4: DROP DATABASE"):
        lint(seed)


def test_rows_are_part_of_a_seeds_hash(tmp_path: Path) -> None:
    script = f"{_TABLE}\\copy t from 'rows.csv' csv\n"
    hashes = [seed_in(tmp_path, script, rows_csv=data).hash for data in (b"1,a\n", b"1,b\n", b"1,a\n")]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("\\copy t from '/etc/passwd'", "/etc/passwd: it is not in the seed's folder; copy it there"),
        ("\\copy t from '../outside.csv'", "../outside.csv: it is not in the seed's folder"),
        ("\\copy t from 'link.csv'", "link.csv: it is not in the seed's folder"),
        ("\\copy t from 'nowhere.csv'", "nowhere.csv: there is no such file in the seed's folder"),
        ("\\copy t from 'rows.csv' with (format binary)", "and it says BINARY; export them as text"),
        ("\\copy t from 'rows.csv' encoding 'latin1'", "and it says ENCODING"),
        ("\\copy t from 'latin.csv' csv", "latin.csv:2: byte 0xe4 is not UTF-8"),
        ("\\copy t from 'packed.csv' csv", "packed.csv:1: byte 0x8b is not UTF-8"),
        ("\\copy t from 'ends.csv' csv", "ends.csv:2: a line that ends COPY data"),
        ("\\copy t from program 'cat rows.csv'", "\\copy: it reads or writes a file or a program"),
        ("\\copy t to 'rows.csv'", "\\copy: it reads or writes a file or a program"),
    ],
)
def test_rows_from_elsewhere_or_that_cannot_be_read_are_refused(
    tmp_path: Path, line: str, words: str
) -> None:
    (tmp_path / "outside.csv").write_bytes(b"1,a\n")
    folder = tmp_path / "seed"
    folder.mkdir()
    (folder / "link.csv").symlink_to(tmp_path / "outside.csv")
    with pytest.raises(SeedError) as refusal:
        lint(
            seed_in(
                folder,
                f"{_TABLE}{line}\n",
                rows_csv=b"1,a\n",
                latin_csv=b"1,a\n2,\xe4\n",
                packed_csv=b"\x1f\x8b\x08",
                ends_csv=b"1,a\n\\.\n2,b\n",
            )
        )
    assert words in str(refusal.value)


@pytest.mark.parametrize("shape", ["custom", "directory"])
@pytest.mark.parametrize(("number", "packing"), [(2, "lz4"), (3, "zstd")])
async def test_an_archive_that_pg_restore_cannot_unpack_is_refused_and_never_loaded_without_its_rows(
    server: Server, tmp_path: Path, shape: str, number: int, packing: str
) -> None:
    async with scratch_database(server, f"{_TABLE} INSERT INTO t VALUES (1, 'a');") as name:
        program = binaries.installed() / "pginstall/bin/pg_dump"
        await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                [program, f"--format={shape}", "-f", tmp_path / "dump", name],
                env=dict(server.psql(name).env),
                check=True,
            )
        )
    # As a pg_dump that was built with it marks it: no such program is at hand here.
    toc = tmp_path / "dump" / "toc.dat" if shape == "directory" else tmp_path / "dump"
    data = bytearray(toc.read_bytes())
    assert data[:6] == b"PGDMP\x01"
    assert data[11] == 1
    data[11] = number
    toc.write_bytes(data)
    with pytest.raises(SeedError, match=f"'dump' is compressed by {packing} inside, .* --compress=gzip"):
        read_seed(tmp_path, ["dump"], anchor=None, moves=())
    shutil.rmtree(tmp_path / "dump", ignore_errors=True)
