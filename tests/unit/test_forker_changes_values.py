"""Equality of cells, the text of rows, the change set's JSON form, and what came after a setup."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_forker import changes as room
from redteam_forker.changes import (
    ChangeSet,
    ObjectChange,
    RowChange,
    SequenceChange,
    TableChanges,
    Write,
    since,
)
from redteam_forker.changes.types import kind_named, kinds_of
from redteam_forker.changes.values import (
    ArrayOf,
    Kind,
    MultirangeOf,
    RangeOf,
    RecordOf,
    canonical,
    parse_record,
)
from redteam_sdk.errors import UsageError


def test_the_room_promises_what_it_lists() -> None:
    assert room.__all__ == sorted(room.__all__)
    assert all(hasattr(room, name) for name in room.__all__)


@pytest.mark.parametrize(
    ("kind", "one", "other", "equal"),
    [
        ("number", "1.0", "1.00", True),
        ("number", "100", "1", False),
        ("number", "0.00", "0", True),
        ("number", "NaN", "NaN", True),
        ("number", "12345678901234567890.10", "12345678901234567890.1", True),
        ("number", "12345678901234567890", "12345678901234567891", False),
        ("json", '{"a": 1, "b": [true]}', '{"b":[true],"a":1.0}', True),
        ("json", "1", "true", False),
        ("json", '"1"', "1", False),
        ("json", "9007199254740993", "9007199254740992", False),
        ("json", "[1, 2]", "[2, 1]", False),
        ("json", "null", None, False),
        ("text", "1.0", "1.00", False),
        ("text", "", None, False),
        ("text", None, None, True),
        ("json", '{"a": 1, "a": 2}', '{"a": 2}', False),
        ("json", '{"a": 1, "b": 3, "a": 2}', '{"a": 1, "a": 2, "b": 3.0}', True),
        ("json", "1e400", "10e399", True),
        ("json", "1e99999999999999999999", "1e99999999999999999998", False),
        ("json", "[" * 100_000 + "]" * 100_000, "[" * 100_000 + "]" * 100_000, True),
        (ArrayOf("number"), "{1.0,NULL}", "{1,NULL}", True),
        (ArrayOf("number"), "{1,2}", "{2,1}", False),
        (ArrayOf("number"), "{{1,2}}", "{{1},{2}}", False),
        (ArrayOf("number"), "[2:2]={1}", "{1}", False),
        (ArrayOf("number"), "{}", "{NULL}", False),
        (ArrayOf("number"), "{}", "{}", True),
        (ArrayOf("json"), '{"{\\"a\\": 1}","null"}', '{"{\\"a\\":1.0}","null"}', True),
        (ArrayOf("json"), '{"null"}', "{NULL}", False),
        (ArrayOf("number", ";"), "{1.0;2}", "{1;2.0}", True),
        (RangeOf("number"), "[1.0,2)", "[1,2.00)", True),
        (RangeOf("number"), "[1,2)", "(1,2)", False),
        (RangeOf("number"), "(,2)", "(0,2)", False),
        (RangeOf("number"), "empty", "empty", True),
        (RangeOf("number"), "empty", "(,)", False),
        (MultirangeOf("number"), "{[1.0,2),[3,4)}", "{[1,2),[3.0,4)}", True),
        (MultirangeOf("number"), "{[1,2)}", "{[1,2),[3,4)}", False),
        (MultirangeOf("number"), "{}", "{}", True),
        (RecordOf(("text", "number")), "(1.0,1.0)", "(1.0,1)", True),
        (RecordOf(("text", "number")), "(1.0,1.0)", "(1,1.0)", False),
        (RecordOf(("text", "number")), "(,1)", '("",1)', False),
        (RecordOf(("number",)), "()", "()", True),
        (RecordOf((ArrayOf("number"),)), '("{1.0,2}")', '("{1,2.0}")', True),
    ],
)
def test_cells_are_equal_by_value_and_not_by_spelling(
    kind: Kind, one: str | None, other: str | None, equal: bool
) -> None:
    assert (canonical(kind, one) == canonical(kind, other)) is equal


@pytest.mark.parametrize(
    "kind",
    [
        ArrayOf("number"),
        RangeOf("number"),
        MultirangeOf("number"),
        RecordOf(("number", "json")),
        "json",
        "number",
    ],
    ids=str,
)
@given(text=st.text(st.sampled_from('[](){},"\\\\1.0 NULLempty;'), max_size=12))
def test_a_text_that_is_none_of_its_kind_stands_for_itself(kind: Kind, text: str) -> None:
    assert canonical(kind, text) == canonical(kind, text)
    hash(canonical(kind, text))
    assert canonical(kind, text) != canonical(kind, text + "\\")


_SPELT = st.tuples(st.integers(-99, 99), st.integers(0, 3)).map(
    lambda drawn: (f"{drawn[0]}", f"{drawn[0]}" + ("." + "0" * drawn[1] if drawn[1] else ""))
)
# Pairs of texts of one value, by kind: as Postgres prints what they are part of.
_NESTED = st.recursive(
    st.tuples(st.just("number"), _SPELT),
    lambda inner: st.one_of(
        inner.map(lambda item: (ArrayOf(item[0]), tuple(_print_array([text, None]) for text in item[1]))),
        inner.map(lambda item: (RangeOf(item[0]), tuple(f"[{_quoted(text)},)" for text in item[1]))),
        inner.map(
            lambda item: (RecordOf((item[0], "text")), tuple(_print_record([text, ""]) for text in item[1]))
        ),
    ),
    max_leaves=4,
)


def _print_array(cells: list[str | None]) -> str:
    """As array_out does."""

    def one(cell: str | None) -> str:
        if cell is None:
            return "NULL"
        if cell and cell.upper() != "NULL" and not re.search(r'[\s"\\{},]', cell):
            return cell
        return '"' + re.sub(r'(["\\])', r"\\\1", cell) + '"'

    return "{" + ",".join(one(cell) for cell in cells) + "}"


def _quoted(text: str) -> str:
    """A bound, as range_out prints it."""
    if re.search(r'[\s"\\()\[\],]', text) or not text:
        return '"' + re.sub(r'(["\\])', r"\1\1", text) + '"'
    return text


@given(_NESTED)
def test_values_in_values_are_equal_by_value_to_any_depth(drawn: tuple[Kind, tuple[str, str]]) -> None:
    kind, (one, other) = drawn
    assert canonical(kind, one) == canonical(kind, other)
    assert (canonical("text", one) == canonical("text", other)) is (one == other)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("integer", "number"),
        ("numeric(5,2)", "number"),
        ("numeric(5,-2)[]", ArrayOf("number")),
        ("jsonb[]", ArrayOf("json")),
        ("nummultirange", MultirangeOf("number")),
        ("numrange[]", ArrayOf(RangeOf("number"))),
        ("text", "text"),
        ("character varying(5)[]", "text"),
        ('public."numeric"', "text"),
        ("public.amount", "text"),
        ("double precision", "text"),
    ],
)
def test_a_kind_is_known_by_the_name_of_a_built_in_type(name: str, kind: Kind) -> None:
    assert kind_named(name) == kind


def test_a_type_that_seems_to_hold_itself_is_compared_by_its_text() -> None:
    row = {
        "oid": 9,
        "shape": "c",
        "base": None,
        "element": None,
        "delimiter": ",",
        "bound": None,
        "fields": [9],
    }
    assert kinds_of([row]) == {}


def _print_record(cells: list[str | None]) -> str:
    """As record_out does."""

    def one(cell: str | None) -> str:
        if cell is None:
            return ""
        if cell and not re.search(r'[\s"\\(),]', cell):
            return cell
        return '"' + cell.replace("\\", "\\\\").replace('"', '""') + '"'

    return "(" + ",".join(one(cell) for cell in cells) + ")"


@given(st.lists(st.none() | st.text(st.sampled_from('a,"\\() \n\té'), max_size=6), min_size=1, max_size=5))
def test_a_printed_row_reads_back_as_its_cells(cells: list[str | None]) -> None:
    assert parse_record(_print_record(cells)) == cells


def _table(*rows: RowChange, key: tuple[str, ...] | None = ("id",)) -> TableChanges:
    return TableChanges(
        schema="public",
        table="t",
        key=key,
        columns={"id": "integer", "v": "numeric(5,2)"},
        method="xmin",
        reason=None,
        rows=rows,
    )


def _insert(number: str, value: str, xid: int = 7) -> RowChange:
    return RowChange(op="insert", key={"id": number}, old=None, new={"id": number, "v": value}, xid=xid)


def _update(number: str, old: str, new: str, xid: int = 7) -> RowChange:
    return RowChange(
        op="update",
        key={"id": number},
        old={"id": number, "v": old},
        new={"id": number, "v": new},
        changed=("v",),
        xid=xid,
    )


def _delete(number: str, value: str) -> RowChange:
    return RowChange(op="delete", key={"id": number}, old={"id": number, "v": value}, new=None)


_ALL = ChangeSet(
    tables=(_table(_insert("1", "1.00"), _update("2", "1.00", "2.00"), _delete("3", "3.00")),),
    sequences=(SequenceChange(schema="public", name="t_id_seq", old="41", new="42"),),
    objects=(ObjectChange(op="create", kind="table", name="public.u", old=None, new="(a integer)"),),
)


def test_the_json_form_is_the_documented_one_and_reads_back() -> None:
    data = json.loads(json.dumps(_ALL.to_json()))
    assert ChangeSet.from_json(data) == _ALL
    assert list(data) == ["version", "tables", "sequences", "objects", "writes", "hash", "digest"]
    assert data["version"] == 2
    assert data["tables"][0]["rows"][2] == {
        "op": "delete",
        "key": {"id": "3"},
        "old": {"id": "3", "v": "3.00"},
        "new": None,
        "changed": [],
        "xid": None,
        "by": None,
    }
    assert data["sequences"] == [{"schema": "public", "name": "t_id_seq", "old": "41", "new": "42"}]


def test_the_hash_does_not_hang_on_the_order_of_json_keys() -> None:
    shuffled = json.loads(json.dumps(_ALL.to_json(), sort_keys=True))
    assert ChangeSet.from_json(shuffled).hash == _ALL.hash
    assert len(_ALL.hash) == 64


def test_the_hash_says_what_differs_and_not_who_did_it_or_how_it_was_found() -> None:
    one = ChangeSet(tables=(_table(_insert("1", "1.00", xid=7)),))
    other = ChangeSet(
        tables=(replace(_table(replace(_insert("1", "1.00", xid=9), by=("call-1",))), method="keys"),),
        writes=(Write(xid=9, schema="public", table="t", op="insert", rows=1),),
    )
    assert (one.hash, one.digest != other.digest) == (other.hash, True)
    assert ChangeSet(tables=(_table(_insert("1", "1.01")),)).hash != one.hash


def test_an_edited_change_set_is_refused() -> None:
    data = json.loads(json.dumps(_ALL.to_json()).replace("3.00", "4.00"))
    with pytest.raises(UsageError, match="digest"):
        ChangeSet.from_json(data)


def test_a_change_set_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match="version 3"):
        ChangeSet.from_json({**_ALL.to_json(), "version": 3})


@pytest.mark.parametrize(
    ("setup", "total", "after"),
    [
        pytest.param([_insert("1", "1")], [_insert("1", "1")], [], id="untouched-setup-row"),
        pytest.param(
            [_insert("1", "1")], [_insert("1", "1"), _insert("2", "2")], [_insert("2", "2")], id="insert"
        ),
        pytest.param(
            [_insert("1", "1")], [_insert("1", "2", 9)], [_update("1", "1", "2", 9)], id="update-of-it"
        ),
        pytest.param([_insert("1", "1")], [], [_delete("1", "1")], id="delete-of-it"),
        pytest.param([_delete("1", "1")], [], [_insert("1", "1", 0)], id="insert-of-what-setup-deleted"),
        pytest.param(
            [_update("1", "1", "2")], [_delete("1", "1")], [_delete("1", "2")], id="delete-of-an-update"
        ),
        pytest.param([_update("1", "1", "2")], [], [_update("1", "2", "1", 0)], id="update-back"),
        pytest.param([_insert("1", "1.0")], [_insert("1", "1.00")], [], id="same-value"),
    ],
)
def test_what_came_after_the_setup_is_told_from_the_state_it_left(
    setup: list[RowChange], total: list[RowChange], after: list[RowChange]
) -> None:
    def changes(rows: list[RowChange]) -> ChangeSet:
        # A row that went back to the baseline's image is in no change set, so its writer is not known.
        cleaned = [row if row.xid else replace(row, xid=None) for row in rows]
        return ChangeSet(tables=(_table(*cleaned),) if rows else ())

    assert since(changes(total), changes(setup)) == changes(after)


def test_rows_without_a_key_are_told_from_the_setup_by_count() -> None:
    def row(value: str, xid: int | None) -> RowChange:
        return RowChange(op="insert", key=None, old=None, new={"id": "1", "v": value}, xid=xid)

    setup = ChangeSet(tables=(_table(row("a", 5), row("a", 5), row("b", 5), key=None),))
    total = ChangeSet(tables=(_table(row("a", 5), row("a", 5), row("a", 9), key=None),))
    gone = RowChange(op="delete", key=None, old={"id": "1", "v": "b"}, new=None)
    assert since(total, setup) == ChangeSet(tables=(_table(row("a", 9), gone, key=None),))


def test_sequences_and_objects_go_on_from_where_the_setup_left_them() -> None:
    def changes(value: str, definition: str) -> ChangeSet:
        return ChangeSet(
            sequences=(SequenceChange(schema="s", name="q", old="1", new=value),),
            objects=(ObjectChange(op="alter", kind="view", name="v", old="a", new=definition),),
        )

    assert since(changes("3", "c"), changes("2", "b")) == ChangeSet(
        sequences=(SequenceChange(schema="s", name="q", old="2", new="3"),),
        objects=(ObjectChange(op="alter", kind="view", name="v", old="b", new="c"),),
    )
