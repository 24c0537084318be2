from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_interface
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pglast import ast, parse_sql

from redteam_rubrics.parameters import bind, find_parameters, literal, placeholders, value_parameter
from redteam_sdk.errors import UsageError


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("a = :persona.id", ["id"]),
        ("a = :persona.ID AND b = :persona.\"Full \"\"Name\"", ["id", 'Full "Name']),
        (":persona.name::text", ["name"]),
        ("':persona.id'", []),
        ("E'\\':persona.id'", []),
        ("$$:persona.id$$", []),
        ('":persona.id"', []),
        ("a -- :persona.id", []),
        ("a /* :persona.id */", []),
        ("a::persona.id", []),
        ("a[1:persona]", []),
        ("'é😀' = :persona.größe", ["größe"]),
    ],
)  # fmt: skip
def test_parameters_are_found_where_sql_has_code_only(sql: str, columns: list[str]) -> None:
    assert [found.column for found in find_parameters(sql)] == columns


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("a = :person.id", ":person is not a parameter"),
        ("a = :persona", ":persona is not a parameter"),
        ("a = :persona.1", ":persona is not a parameter"),
        ("a = $1", "$1 has no value"),
        ("a = 'open", "unterminated"),
    ],
)
def test_what_only_looks_like_a_parameter_is_refused(sql: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_parameters(sql)
    assert message in str(caught.value)


def test_placeholders_keep_the_position_of_everything_else() -> None:
    sql = "x :persona.id y"
    assert placeholders(sql) == "x  $1         y"


def test_unknown_column_names_those_of_the_cast() -> None:
    with pytest.raises(UsageError, match=r"no column 'age'; the cast's SELECT gives: id, name"):
        bind("a = :persona.age", {"id": 1, "name": "x"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (True, "'true'"),
        (7, "'7'"),
        (Decimal("1.50"), "'1.50'"),
        ("O'Neill", "'O''Neill'"),
        ("a\\'b", "E'a\\\\''b'"),
        (date(1980, 1, 31), "'1980-01-31'"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "'2026-01-02 03:04:00+00:00'"),
        (timedelta(days=1, seconds=2), "'1 days 2 seconds 0 microseconds'"),
        (b"\x00\xff", "E'\\\\x00ff'"),
        (ip_interface("10.0.0.1/8"), "'10.0.0.1/8'"),
        (UUID(int=0), "'00000000-0000-0000-0000-000000000000'"),
        (["a", None, 'b"'], '\'{"a",NULL,"b\\\\""}\''.replace("'{", "E'{")),
    ],
)
def test_values_become_constants_that_postgres_reads(value: object, expected: str) -> None:
    assert literal(value) == expected


@pytest.mark.parametrize("value", [object(), {"a": 1}, "a\0b"])
def test_values_without_a_constant_are_refused(value: object) -> None:
    with pytest.raises(UsageError):
        literal(value)


@given(st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8")))
def test_no_text_can_leave_its_constant(text: str) -> None:
    (statement,) = parse_sql(f"SELECT {bind(':persona.x', {'x': text})}")
    assert isinstance(statement.stmt, ast.SelectStmt)
    (target,) = statement.stmt.targetList or ()
    assert target.val.val.sval == text


def test_values_of_rules_refer_to_the_persona_only_as_a_whole() -> None:
    assert value_parameter(":persona.id") == ("persona", "id")
    assert value_parameter(":claimed.id") == ("claimed", "id")
    assert value_parameter("persona.id") is None
    assert value_parameter(7) is None
    with pytest.raises(UsageError, match="nothing else"):
        value_parameter(":persona.id or so")


def test_the_claimed_row_is_bound_beside_the_personas_and_is_null_where_there_is_none() -> None:
    sql = "SELECT :claimed.id, ':claimed.id', :persona.id -- :claimed.id"
    assert bind(sql, {"id": 7}, {"id": 8}) == "SELECT  ('8'), ':claimed.id',  ('7') -- :claimed.id"
    assert bind(sql, {"id": 7}) == "SELECT  (NULL), ':claimed.id',  ('7') -- :claimed.id"
    with pytest.raises(UsageError, match="no column 'age'"):
        bind("SELECT :claimed.age", {"id": 7}, {"id": 8})
