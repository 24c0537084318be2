"""One change set less another: what was left out or written on the way."""

from __future__ import annotations

import pytest

from redteam_forker.changes import ChangeSet, RowChange, TableChanges, Write, since
from redteam_sdk.errors import UsageError


def table(
    name: str, *rows: RowChange, omitted: int = 0, kind: str = "text", key: bool = True
) -> TableChanges:
    return TableChanges(
        schema="public",
        table=name,
        key=("id",) if key else None,
        columns={"id": "integer", "v": kind},
        method="pages",
        reason=None,
        rows=rows,
        omitted=omitted,
    )


def insert(key: str | None, value: str, xid: int = 5) -> RowChange:
    return RowChange(
        op="insert", key={"id": key} if key else None, old=None, new={"id": key, "v": value}, xid=xid
    )


def delete(key: str | None, value: str, xid: int | None) -> RowChange:
    return RowChange(
        op="delete", key={"id": key} if key else None, old={"id": key, "v": value}, new=None, xid=xid
    )


def write(xid: int, name: str = "t") -> Write:
    return Write(xid=xid, schema="public", table=name, op="update", rows=1)


SETUP = ChangeSet(tables=(table("t", insert("1", "a", xid=5)),), writes=(write(4),))


def test_only_what_was_written_after_the_setup_is_kept() -> None:
    # 5 is known by a row alone: the versions of its page may have been too many to look at.
    total = ChangeSet(tables=SETUP.tables, writes=(write(4), write(5), write(6), write(7, "u")))
    assert since(total, SETUP).writes == (write(6), write(7, "u"))


def test_rows_left_out_of_a_table_that_the_setup_did_not_touch_stay_counted() -> None:
    much = table("u", insert("1", "a"), omitted=7)
    only = table("w", omitted=3)
    total = ChangeSet(tables=(*SETUP.tables, much, only))
    assert since(total, SETUP).tables == (much, only)


@pytest.mark.parametrize("left_out_of", ["earlier", "later"])
def test_a_table_that_both_change_and_one_left_rows_out_of_is_refused(left_out_of: str) -> None:
    whole = ChangeSet(tables=(table("t", insert("1", "a")),))
    cut = ChangeSet(tables=(table("t", insert("1", "a"), omitted=9),))
    now, then = (whole, cut) if left_out_of == "earlier" else (cut, whole)
    with pytest.raises(UsageError, match=r"9 changed rows of public\.t were left out.*keep_rows"):
        since(now, then)


def test_a_delete_keeps_who_did_it() -> None:
    total = ChangeSet(tables=(table("t", delete("2", "b", 9)),))
    assert since(total, SETUP).tables == (table("t", delete("2", "b", 9), delete("1", "a", None)),)


def test_of_equal_rows_those_that_the_setup_deleted_are_not_told_again() -> None:
    setup = ChangeSet(tables=(table("t", delete(None, "a", 5), key=False),))
    total = ChangeSet(tables=(table("t", *(delete(None, "a", xid) for xid in (5, 8, None, 7)), key=False),))
    assert [row.xid for row in since(total, setup).tables[0].rows] == [8, 7, None]


@pytest.mark.parametrize(
    ("kind", "one", "same", "other"),
    [
        ("numeric(10,2)[]", "{1.0}", "{1.00}", "{1.01}"),
        ("jsonb[]", '{"{\\"a\\": 1}"}', '{"{\\"a\\": 1.0}"}', '{"{\\"a\\": 2}"}'),
        ("numrange", "[1,2)", "[1.0,2)", "[1,3)"),
        ("nummultirange", "{[1,2)}", "{[1.0,2)}", "{[1,3)}"),
        ("numeric", "1.0", "1.00", "1.01"),
        ("text[]", "{1.0}", "{1.0}", "{1.00}"),
    ],
)
def test_values_are_compared_by_type_as_far_as_its_name_tells(
    kind: str, one: str, same: str, other: str
) -> None:
    def changes(value: str) -> ChangeSet:
        return ChangeSet(tables=(table("t", insert("1", value), kind=kind),))

    assert since(changes(same), changes(one)).tables == ()
    assert [row.op for row in since(changes(other), changes(one)).tables[0].rows] == ["update"]
