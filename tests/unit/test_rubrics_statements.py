from __future__ import annotations

import pytest

from redteam_rubrics.statements import (
    ColumnUse,
    TableUse,
    check_condition,
    check_select,
    columns_of,
    tables_of,
)
from redteam_sdk.errors import UsageError


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "empty"),
        ("DELETE FROM t", "exactly one SELECT"),
        ("SELECT a FROM t; SELECT b FROM t", "exactly one SELECT"),
        ("WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT a FROM x", "may not contain INSERT"),
        ("WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x", "may not contain DELETE"),
        ("SELECT a INTO u FROM t", "may not contain INTO"),
        ("SELECT a FROM t FOR UPDATE", "may not contain FOR UPDATE"),
        ("SELECT true", "reads no table"),
        ("SELECT a\nFROM t\nWHERE b = = c", "(line 3 of it)"),
    ],
)
def test_a_statement_that_is_no_reading_select_is_refused(sql: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_select(sql)
    assert message in str(caught.value)


def test_a_semicolon_at_the_end_is_dropped() -> None:
    assert check_select("SELECT a FROM t ; -- the end") == "SELECT a FROM t "
    assert check_select("SELECT ';' FROM t") == "SELECT ';' FROM t"


@pytest.mark.parametrize(
    "text",
    [
        "a = 1), (b = 2",
        "a = 1) FROM t WHERE (b",
        "a = 1; SELECT 2",
        "a AS b",
        "a = 1) UNION SELECT (true",
        "a, b",
        "*",
    ],
)
def test_more_than_one_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        check_condition(text)


def test_tables_are_listed_without_those_that_the_statement_makes() -> None:
    sql = (
        'WITH x AS (SELECT 1 FROM a) SELECT 1 FROM x, before."billing.claims" '
        "WHERE EXISTS (SELECT 1 FROM billing.claims)"
    )
    assert set(tables_of(sql)) == {
        TableUse(schema=None, table="a"),
        TableUse(schema="before", table="billing.claims"),
        TableUse(schema="billing", table="claims"),
    }


def test_columns_of_subqueries_are_not_those_of_the_row() -> None:
    condition = "a = :persona.id AND t.b IN (SELECT c FROM u WHERE u.d = e)"
    assert columns_of(condition) == (ColumnUse(table=None, column="a"), ColumnUse(table="t", column="b"))
