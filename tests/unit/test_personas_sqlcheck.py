"""Checks of a cast's SQL, before a server sees it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from redteam_personas import CastSpec, check_condition, check_select
from redteam_personas.sqlcheck import embeddable, position
from redteam_sdk.errors import UsageError


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS id",
        "select id from t; -- the end",
        "/* who */ WITH a AS (SELECT 1) SELECT * FROM a UNION ALL SELECT 2",
        "SELECT count(*), lower(name), now() FROM t GROUP BY name",
        "SELECT ';' AS \"FOR UPDATE\" FROM t",
        "TABLE t",
        "VALUES (1)",
    ],
)
def test_one_select_passes(sql: str) -> None:
    check_select(sql)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "is empty"),
        ("-- nothing", "is empty"),
        ("SELECT 1;\n  SELECT 2", "2 statements, the second at line 2, column 3"),
        ("SELECT 1; -- then\n/* x */ COMMIT", "2 statements, the second at line 2, column 9"),
        ("SELEC 1", 'does not parse: syntax error at or near "SELEC", at line 1, column 1'),
        ("SELECT 'é',\n  f(x", "does not parse: syntax error at end of input, at line 2, column 6"),
        ("INSERT INTO t VALUES (1)", "Insert stands at line 1, column 1"),
        ("UPDATE t SET a = 1", "Update"),
        ("DELETE FROM t", "Delete"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", "Merge"),
        ("COPY t TO STDOUT", "Copy"),
        ("DO $$ BEGIN END $$", "Do"),
        ("EXPLAIN ANALYZE SELECT 1", "Explain"),
        ("SET search_path = x", "VariableSet"),
        ("TRUNCATE t", "Truncate"),
        ("CREATE TABLE x AS SELECT 1", "CreateTableAs"),
        ("WITH d AS (\n DELETE FROM t RETURNING *) SELECT * FROM d", "DELETE stands at line 2, column 14"),
        ("WITH d AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT * FROM d", "INSERT stands"),
        ("WITH d AS (UPDATE t SET a = 1 RETURNING 1) SELECT * FROM d", "UPDATE stands"),
        ("SELECT * FROM (WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d) x", "DELETE stands"),
        ("SELECT 1 AS id\nINTO x FROM t", "INTO stands at line 2, column 6"),
        ("SELECT * FROM t\nFOR UPDATE", "may not lock rows \\(at line 2, column 1\\)"),
        ("SELECT * FROM (SELECT * FROM t FOR NO KEY UPDATE) x", "may not lock rows"),
        ("SELECT * FROM t WHERE id = $1", "no parameters, but \\$1 stands at line 1, column 28"),
    ],
)
def test_anything_but_one_reading_select_is_refused_with_its_place(sql: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"^personas.select .*{says}"):
        check_select(sql)


@pytest.mark.parametrize(
    "condition",
    [
        "visits > 0",
        "a AND (b OR c) -- why",
        "EXISTS (SELECT 1 FROM t)",
        "name = 'a;b)'",
        "true",
        "id IN (1, 2)",
    ],
)
def test_one_condition_passes(condition: str) -> None:
    check_condition(condition)


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("", "does not parse"),
        ("visits >", "does not parse: .*at line 1, column 9"),
        ("visits > 0;", "';' too many at line 1, column 11"),
        ("true) OR (true", "'\\)' too many at line 1, column 5"),
        ("1 = 1) UNION SELECT (1", "'\\)' too many"),
        ("(visits > 0", "1 unclosed"),
        ("a, b", "one condition"),
        ("visits > 0 AS x", "does not parse"),
        ("visits >\n $1", "no parameters, but \\$1 stands at line 2, column 2"),
        ("EXISTS (SELECT 1 FROM t FOR UPDATE)", "may not lock"),
        ("visits > 0 ORDER BY 1", "does not parse"),
    ],
)
def test_anything_but_one_condition_is_refused_with_its_place(condition: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)^case 'a', who .*{says}"):
        check_condition(condition, what="case 'a', who")


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_a_usage_error(condition: str) -> None:
    with suppress(UsageError):
        check_condition(condition)


@given(st.text(max_size=40).map(lambda tail: f"SELECT 1 {tail}"))
def test_any_text_is_a_select_or_a_usage_error(sql: str) -> None:
    with suppress(UsageError):
        check_select(sql)


def test_semicolons_become_blanks_where_they_end_a_statement_only() -> None:
    assert embeddable("SELECT ';é' AS a ; -- x;") == "SELECT ';é' AS a   -- x;"


def test_a_place_is_said_by_line_and_column_from_one() -> None:
    assert [position("ab\ncd", index) for index in (0, 1, 3, 4)] == [
        "at line 1, column 1",
        "at line 1, column 2",
        "at line 2, column 1",
        "at line 2, column 2",
    ]


@pytest.mark.parametrize(
    ("change", "loc", "says"),
    [
        ({"select": "DELETE FROM t"}, ("select",), "must be one SELECT"),
        ({"key": ""}, ("key",), "at least 1"),
        ({"keys": "id"}, ("keys",), "not permitted"),
        ({"dispositions": {"evasve": 1}}, ("dispositions", "evasve"), "did you mean 'evasive'.*confused"),
        ({"dispositions": {"evasive": -1}}, ("dispositions", "evasive"), "greater than or equal"),
        ({"dispositions": {"cooperative": 0}}, ("dispositions",), "nobody to play"),
    ],
)
def test_a_wrong_cast_is_refused_at_its_key(
    change: dict[str, object], loc: tuple[str, ...], says: str
) -> None:
    data = {"select": "SELECT 1 AS id", "key": "id", **change}
    with pytest.raises(ValidationError, match=says) as refusal:
        CastSpec.model_validate(data, context={"dispositions": ["cooperative", "confused", "evasive"]})
    assert refusal.value.errors()[0]["loc"][: len(loc)] == loc


@pytest.mark.parametrize(
    ("written", "weights"),
    [
        ({}, {"cooperative": 1}),
        ({"evasive": 2}, {"cooperative": 1, "evasive": 2}),
        ({"cooperative": 3, "evasive": 1}, {"cooperative": 3, "evasive": 1}),
        ({"cooperative": 0, "evasive": 1}, {"evasive": 1}),
    ],
)
def test_cooperative_people_stay_in_the_mix_unless_left_out_on_purpose(
    written: dict[str, int], weights: dict[str, int]
) -> None:
    spec = CastSpec.model_validate({"select": "SELECT 1 AS id", "key": "id", "dispositions": written})
    assert spec.weights == weights
