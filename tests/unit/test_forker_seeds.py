"""Reading seeds, and cutting scripts into statements."""

from __future__ import annotations

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


def test_a_down_migration_is_left_out_when_its_up_is_there(tmp_path: Path) -> None:
    for name in ("1_a.down.sql", "1_a.up.sql", "2_only.down.sql"):
        (tmp_path / name).write_bytes(b"x")
    seed = read_seed(tmp_path, ["."], anchor=None, moves=())
    assert [file.name for file in seed.files] == ["1_a.up.sql", "2_only.down.sql"]


def test_a_byte_order_mark_is_no_part_of_a_seed(tmp_path: Path) -> None:
    write(tmp_path, a_sql=b"\xef\xbb\xbfSELECT 1;")
    assert read_seed(tmp_path, ["a.sql"], anchor=None, moves=()).files[0].data == b"SELECT 1;"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"PGDMP\x01\x0e", "pg_restore --no-owner -f seed.sql backup.sql", id="custom-archive"),
        pytest.param(b"\0" * 257 + b"ustar\x0000", "a tar archive", id="tar"),
        pytest.param(b"\x1f\x8b\x08", "gunzip", id="gzip"),
        pytest.param("SELECT 1;".encode("utf-16"), "iconv -f UTF-16", id="utf-16"),
        pytest.param(b"SELECT 1;\nSELECT\0 2;", "backup.sql:2: a NUL byte", id="nul"),
    ],
)
def test_what_is_no_plain_sql_is_refused_by_content_with_the_way_out(
    tmp_path: Path, data: bytes, words: str
) -> None:
    (tmp_path / "backup.sql").write_bytes(data)
    with pytest.raises(SeedError, match=r"backup\.sql") as refusal:
        read_seed(tmp_path, ["backup.sql"], anchor=None, moves=())
    assert words in str(refusal.value)


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


def test_the_hash_is_over_contents_order_moves_and_anchor() -> None:
    seeds_ = [
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
