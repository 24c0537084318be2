"""Reading seeds, and cutting scripts into statements."""

from __future__ import annotations

import bz2
import gzip
import lzma
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_forker import seeds
from redteam_forker.errors import SeedError
from redteam_forker.seeds import Seed, SeedFile, read_seed
from redteam_forker.seeds.statements import ScriptError, split_script

if TYPE_CHECKING:
    from pathlib import Path

_ANCHOR = date(2026, 11, 30)


def write(base: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = base / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name.replace("_sql", ".sql")).write_bytes(data)
    return base


def test_the_room_promises_what_it_lists() -> None:
    assert seeds.__all__ == sorted(seeds.__all__)
    assert all(hasattr(seeds, name) for name in seeds.__all__)


def test_a_folder_is_its_sql_files_in_natural_order(tmp_path: Path) -> None:
    write(tmp_path, m__10_c_sql=b"10", m__2_b_sql=b"2", m__1_a_sql=b"1", m__notes_txt=b"no")
    seed = read_seed(tmp_path, ["m"], anchor=None, moves=())
    assert [file.name for file in seed.files] == ["m/1_a.sql", "m/2_b.sql", "m/10_c.sql"]


@pytest.mark.parametrize(
    ("names", "kept", "note"),
    [
        pytest.param(
            ["1_a.down.sql", "1_a.up.sql", "2_only.down.sql"],
            ["1_a.up.sql", "2_only.down.sql"],
            ".: not run: the ways back down 1_a.down.sql",
            id="golang-migrate",
        ),
        pytest.param(
            ["R__views.sql", "U1__a.sql", "V10__c.sql", "V1__a.sql", "V2.1__b.sql"],
            ["V1__a.sql", "V2.1__b.sql", "V10__c.sql", "R__views.sql"],
            ".: not run: the ways back down U1__a.sql",
            id="flyway",
        ),
        pytest.param(
            ["sub/schema.sql", "sub/migrations/1.sql"],
            ["sub/schema.sql"],
            "sub: not read: the folders migrations; list those that belong to the seed",
            id="schema-and-migrations",
        ),
        pytest.param(
            [
                "supabase/seed.sql",
                "supabase/migrations/2.sql",
                "supabase/migrations/1.sql",
                "supabase/roles.sql",
            ],
            [
                "supabase/roles.sql",
                "supabase/migrations/1.sql",
                "supabase/migrations/2.sql",
                "supabase/seed.sql",
            ],
            None,
            id="supabase",
        ),
        pytest.param(["db/migration/1.up.sql", "db/.x/2.sql"], ["db/migration/1.up.sql"], None, id="nested"),
        pytest.param(["1.sql.gz", "2.SQL", ".3.sql", "4.txt"], ["1.sql.gz", "2.SQL"], None, id="names"),
    ],
)
def test_a_folder_says_what_is_to_be_loaded_and_what_was_left_out(
    tmp_path: Path, names: list[str], kept: list[str], note: str | None
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"SELECT 1;")
    seed = read_seed(tmp_path, ["."], anchor=None, moves=())
    assert [file.name for file in seed.files] == kept
    assert seed.notes == ((note,) if note else ())


def test_several_folders_of_sql_are_to_be_listed_in_order(tmp_path: Path) -> None:
    write(tmp_path, m__data__1_sql=b"x", m__tables__1_sql=b"x")
    with pytest.raises(SeedError, match="list them in load order: m/data, m/tables"):
        read_seed(tmp_path, ["m"], anchor=None, moves=())


@pytest.mark.parametrize(
    ("up", "down"),
    [
        ("-- +goose Up", "-- +goose Down"),
        ("-- migrate:up", "-- migrate:down"),
        ("-- +migrate Up", "-- +migrate Down"),
    ],
    ids=["goose", "dbmate", "sql-migrate"],
)
def test_the_way_back_down_in_a_file_is_left_out_and_lines_stay(tmp_path: Path, up: str, down: str) -> None:
    write(tmp_path, a_sql=f"{up}\nCREATE TABLE t ();\n{down}\nDROP TABLE t;\n{up}\nTABLE t;".encode())
    seed = read_seed(tmp_path, ["a.sql"], anchor=None, moves=())
    assert seed.files[0].text == f"{up}\nCREATE TABLE t ();\n{down}\n\n{up}\nTABLE t;"
    assert seed.notes == ("a.sql:3: the way back down is left out",)


def test_includes_are_put_in_place(tmp_path: Path) -> None:
    write(
        tmp_path,
        db__all_sql=b"SELECT 1; \\ir parts/one.sql\nSELECT 4;\n\\i 'db/two.sql'",
        db__parts__one_sql=b"\xef\xbb\xbf\\ir ../three.sql\nSELECT 3",
        db__two_sql=b"SELECT 5;",
        db__three_sql=b"SELECT 2 \n",
    )
    file = read_seed(tmp_path, ["db/all.sql"], anchor=None, moves=()).files[0]
    pieces = split_script(file.text)
    assert [piece.text.strip() for piece in pieces] == [f"SELECT {n}" for n in (1, 2, 3, 4, 5)]
    assert [file.place(piece.line) for piece in pieces] == [
        "db/all.sql:1",
        "db/three.sql:1",
        "db/parts/one.sql:2",
        "db/all.sql:2",
        "db/two.sql:1",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("\\i ../outside.sql", "it is not in the seed's folder"),
        ("\\i /etc/passwd", "it is not in the seed's folder"),
        ("\\ir link.sql", "it is not in the seed's folder"),
        ("\\i nowhere.sql", "there is no such file"),
        ("\\i :name", "not the plain name of one file"),
        ("\\i `cat x`", "not the plain name of one file"),
        ("\\i a.sql b.sql", "not the plain name of one file"),
        ("\\ir all.sql", "all.sql includes itself"),
        ("\\i circle.sql", "includes itself"),
        ("SELECT\n\\i fine.sql\n;", "it stands inside a statement"),
        ("\\i packed.sql", "byte 0x8b is not utf-8"),
    ],
)
def test_an_include_that_leaves_the_folder_or_cannot_be_read_is_refused(
    tmp_path: Path, line: str, words: str
) -> None:
    write(tmp_path, outside_sql=b"SELECT 1;")
    folder = write(
        tmp_path / "seed",
        all_sql=line.encode(),
        fine_sql=b"SELECT 1;",
        circle_sql=b"\\i all.sql",
        packed_sql=gzip.compress(b"SELECT 1;"),
    )
    (folder / "link.sql").symlink_to(tmp_path / "outside.sql")
    with pytest.raises(SeedError) as refusal:
        read_seed(folder, ["all.sql"], anchor=None, moves=())
    assert words in str(refusal.value)


def test_two_files_that_an_include_may_mean_are_refused(tmp_path: Path) -> None:
    write(tmp_path, db__all_sql=b"\\i a.sql", db__a_sql=b"x", a_sql=b"y")
    with pytest.raises(SeedError, match=r"there are two: .*; write \\ir"):
        read_seed(tmp_path, ["db/all.sql"], anchor=None, moves=())


def test_an_option_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    write(tmp_path, a_sql=b"x")
    with pytest.raises(SeedError, match=r"seed\.allow: fdw is no name .* foreign-server"):
        read_seed(tmp_path, ["a.sql"], anchor=None, moves=(), allow=["fdw"])
    with pytest.raises(SeedError, match=r"seed\.owners is 'drop'; write create or strip"):
        read_seed(tmp_path, ["a.sql"], anchor=None, moves=(), owners="drop")  # type: ignore[arg-type]


def test_a_byte_order_mark_is_no_part_of_a_seed(tmp_path: Path) -> None:
    write(tmp_path, a_sql=b"\xef\xbb\xbfSELECT 1;")
    assert read_seed(tmp_path, ["a.sql"], anchor=None, moves=()).files[0].data == b"SELECT 1;"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"PGDMP\x01\x0e", "is an archive that pg_restore cannot read", id="broken-archive"),
        pytest.param(b"x\0" + b"\0" * 255 + b"ustar\x0000", "a tar file that pg_dump did not make", id="tar"),
        pytest.param(
            gzip.compress(b"SELECT 1;")[:-6], "is cut off: its gzip data never end", id="gzip-cut-off"
        ),
        pytest.param(b"\x1f\x8b\x08garbage that is none", "is damaged", id="gzip-damaged"),
        pytest.param(
            bz2.compress(b"SELECT 1;")[:-6], "is cut off: its bzip2 data never end", id="bzip2-cut-off"
        ),
        pytest.param(b"BZhgarbage that is none", "is damaged", id="bzip2-damaged"),
        pytest.param(lzma.compress(b"SELECT 1;")[:-6], "is cut off: its xz data never end", id="xz-cut-off"),
        pytest.param(b"\xfd7zXZ\x00garbage that is none", "is damaged", id="xz-damaged"),
        pytest.param(b"\x04\x22\x4d\x18...", "is compressed by lz4; unpack it with unlz4", id="lz4"),
        pytest.param(b"PK\x03\x04", "a zip file; unpack it", id="zip"),
        pytest.param(b"\x28\xb5\x2f\xfd", "unzstd", id="zstd"),
        pytest.param(b"-- MySQL dump 10.13", "a MySQL dump; convert it", id="mysql"),
        pytest.param(b"SELECT 1;\nSELECT\0 2;", "backup.sql:2: a NUL byte", id="nul"),
        pytest.param(
            "SELECT 1;\n-- \u00e4".encode("latin-1"), "backup.sql:2: byte 0xe4 is not utf-8", id="latin-1"
        ),
        pytest.param(b"SET client_encoding = 'MULE_INTERNAL';", "which cannot be converted", id="mule"),
        pytest.param(
            b"SET client_encoding = LATIN1;\nSET client_encoding = 'WIN1252';",
            "a second encoding",
            id="two-encodings",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_content_with_the_way_out(
    tmp_path: Path, data: bytes, words: str
) -> None:
    (tmp_path / "backup.sql").write_bytes(data)
    with pytest.raises(SeedError, match=r"backup\.sql") as refusal:
        read_seed(tmp_path, ["backup.sql"], anchor=None, moves=())
    assert words in str(refusal.value)


_GREETING = "SELECT 'Gr\u00fc\u00dfe \u20ac';\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_GREETING.encode(), id="utf-8"),
        pytest.param(_GREETING.encode("utf-8-sig"), id="utf-8-with-mark"),
        pytest.param(_GREETING.encode("utf-16"), id="utf-16"),
        pytest.param(b"\xfe\xff" + _GREETING.encode("utf-16-be"), id="utf-16-be"),
        pytest.param(_GREETING.encode("utf-32"), id="utf-32"),
        pytest.param(gzip.compress(_GREETING.encode()), id="gzip"),
        pytest.param(bz2.compress(_GREETING.encode()), id="bzip2"),
        pytest.param(lzma.compress(_GREETING.encode()), id="xz"),
        pytest.param(gzip.compress(lzma.compress(bz2.compress(_GREETING.encode()))), id="all-of-them"),
        pytest.param(
            gzip.compress(gzip.compress(b"SELECT") + gzip.compress(_GREETING[6:].encode())), id="gzip-twice"
        ),
    ],
)
def test_text_is_utf_8_whatever_the_file_was(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert read_seed(tmp_path, ["a"], anchor=None, moves=()).files[0].text == _GREETING


@pytest.mark.parametrize(
    ("declared", "codec"),
    [("LATIN1", "latin-1"), ("WIN1252", "cp1252"), ("latin-9", "iso8859-15"), ("SJIS", "cp932")],
)
def test_a_declared_encoding_is_converted(tmp_path: Path, declared: str, codec: str) -> None:
    word = "\u7530" if codec == "cp932" else "\u00e4"
    text = f"-- a dump\nSET client_encoding TO '{declared}';\nSELECT '{word}';"
    (tmp_path / "a.sql").write_bytes(text.encode(codec))
    assert read_seed(tmp_path, ["a.sql"], anchor=None, moves=()).files[0].text == text


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redteam_forker.seeds.content.MOST_BYTES", 1 << 20)
    (tmp_path / "a.sql.gz").write_bytes(gzip.compress(b" " * (2 << 20)))
    with pytest.raises(SeedError, match="unpacks to more than 1 MiB"):
        read_seed(tmp_path, ["a.sql.gz"], anchor=None, moves=())


def test_a_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, schema_sql=b"x")
    with pytest.raises(SeedError, match=r"'shema.sql' is not in .*; there are schema\.sql"):
        read_seed(tmp_path, ["shema.sql"], anchor=None, moves=())


def test_moves_without_an_anchor_are_refused(tmp_path: Path) -> None:
    write(tmp_path, a_sql=b"x")
    with pytest.raises(SeedError, match=r"set seed\.anchor"):
        read_seed(tmp_path, ["a.sql"], anchor=None, moves=["t.c"])


def _seed(*contents: bytes, anchor: date | None = None, moves: tuple[str, ...] = ()) -> Seed:
    files = tuple(SeedFile(name=f"{place}.sql", data=data) for place, data in enumerate(contents))
    return Seed(files=files, anchor=anchor, moves=moves)


def test_the_hash_is_over_contents_order_and_options() -> None:  # P13
    seeds_ = [
        replace(_seed(b"ab", b"c"), owners="strip"),
        replace(_seed(b"ab", b"c"), allow=frozenset({"cron"})),
        _seed(b"ab", b"c"),
        _seed(b"a", b"bc"),
        _seed(b"c", b"ab"),
        _seed(b"ab", b"c", anchor=_ANCHOR),
        _seed(b"ab", b"c", anchor=_ANCHOR, moves=("t.c",)),
        _seed(b"ab", b"c", moves=("2026-11-30",)),
    ]
    assert len({seed.hash for seed in seeds_}) == len(seeds_)


def test_the_hash_is_not_over_file_names() -> None:
    renamed = Seed(files=(SeedFile(name="other.sql", data=b"ab"),))
    assert renamed.hash == _seed(b"ab").hash


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        pytest.param("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"], id="last-without-semicolon"),
        pytest.param("SELECT ';' , \";\" ; x", ["SELECT ';' , \";\" ", "x"], id="quotes"),
        pytest.param(r"SELECT E'\';' ; x", [r"SELECT E'\';' ", "x"], id="escape-string"),
        pytest.param(
            "SELECT type'a\\';x", ["SELECT type'a\\'", "x"], id="a-word-that-ends-in-e-is-no-escape"
        ),
        pytest.param("SELECT $$;$$, $a$;$$;$a$; x", ["SELECT $$;$$, $a$;$$;$a$", "x"], id="dollar-quotes"),
        pytest.param("SELECT a$b$; x", ["SELECT a$b$", "x"], id="dollar-in-a-name"),
        pytest.param("-- ;\n/* ; /* ; */ ; */ SELECT 1; x", ["SELECT 1", "x"], id="comments-nest"),
        pytest.param("CREATE RULE r AS ON INSERT TO t DO (a; b); x", None, id="semicolons-in-parentheses"),
        pytest.param(
            "CREATE OR REPLACE FUNCTION f() BEGIN ATOMIC SELECT CASE WHEN a THEN b END; END; x",
            None,
            id="atomic-body",
        ),
        pytest.param("SELECT 1\\; SELECT 2;", ["SELECT 1", "SELECT 2"], id="backslash-semicolon"),
        pytest.param("SELECT 1 \\gset\nx", ["SELECT 1 ", "\\gset", "x"], id="gset-sends"),
        pytest.param(";;  ; SELECT 1;", ["SELECT 1"], id="empty-statements"),
    ],
)
def test_a_script_is_cut_where_psql_cuts_it(text: str, pieces: list[str] | None) -> None:
    found = [piece.text for piece in split_script(text)]
    assert found == (pieces or [text.removesuffix("; x"), "x"])


def test_copy_data_are_no_statements() -> None:
    text = "COPY t (a) FROM stdin;\n1;'\n\\N\n\\.\nSELECT 1;\nCOPY u TO stdout;\n"
    found = [(piece.text, piece.line, piece.data_line) for piece in split_script(text)]
    assert found == [("COPY t (a) FROM stdin", 1, 2), ("SELECT 1", 5, None), ("COPY u TO stdout", 6, None)]


def test_a_command_inside_a_statement_leaves_its_lines_in_place() -> None:
    found = split_script("SELECT\n\\timing on\n 1;\n")
    assert [(piece.meta, piece.line, piece.last_line) for piece in found] == [("timing", 2, 2), (None, 1, 3)]
    assert found[1].text == "SELECT\n          \n 1"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("SELECT 1;\nSELECT 'a;\n", 2, "quote ' that begins here"),
        ("\n\nDO $x$ BEGIN", 3, r"quote \$x\$"),
        ("/* a /* b */", 1, "comment"),
        ("SELECT 1;\nSELECT (1;\n", 2, "parenthesis"),
        ("SELECT 1;\nCOPY t FROM stdin;\n1\n2\n", 2, "the file is cut off"),
    ],
)
def test_a_script_that_is_cut_off_names_the_line_where_the_loss_begins(
    text: str, line: int, words: str
) -> None:
    with pytest.raises(ScriptError, match=words) as refusal:
        split_script(text)
    assert refusal.value.line == line


_QUOTED = st.sampled_from(
    [
        "'it''s; '",
        '"a;b"',
        "$$;'$$",
        "$t$ $$;\n$t$",
        "E'\\';'",
        "/* ; */",
        "-- ;\n",
        "(1; 2)",
        "\n",
        " ",
        "x1",
    ]
)
_STATEMENT = st.lists(_QUOTED, max_size=6).map(lambda parts: "SELECT " + " ".join(parts) + "\n")
_ITEM = st.one_of(
    _STATEMENT.map(lambda text: (text, text + ";")),
    st.just(("\\restrict a", "\n\\restrict a\n")),
    st.just(("COPY t FROM stdin", "COPY t FROM stdin;\n1;\t'\n\\.\n")),
)


@given(st.lists(_ITEM, max_size=8), st.sampled_from(["", "\n", " -- note ;\n", "/*;*/"]))
def test_no_statement_is_lost_and_each_has_its_line(items: list[tuple[str, str]], between: str) -> None:
    text, expected = "", []
    for wanted, written in items:
        text += between
        lead = len(written) - len(written.lstrip("\n"))
        expected.append((wanted, text.count("\n") + 1 + lead))
        text += written
    assert [(piece.text, piece.line) for piece in split_script(text)] == expected
