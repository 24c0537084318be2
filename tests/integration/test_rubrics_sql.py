from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.databases import connected, scratch_database
from support.rubrics import PostgresWorld, evidence, judge, rules

from redteam_rubrics import grade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

CLINIC = """
CREATE TABLE patients (id bigint PRIMARY KEY, full_name text, born date);
CREATE TABLE appointments (id bigint PRIMARY KEY, patient_id bigint, kind text, ref text);
INSERT INTO patients VALUES (7, 'Ada O''Neill', '1980-02-29'), (8, 'Bo', NULL);
INSERT INTO appointments VALUES (1, 7, 'office', 'A-7'), (2, 8, 'office', 'A-8'), (3, 8, NULL, NULL);
CREATE SCHEMA before;
CREATE VIEW before.appointments AS SELECT * FROM appointments WHERE id < 3;
"""


@pytest.fixture(scope="module")
async def database(server: Server) -> AsyncIterator[str]:
    async with scratch_database(server, CLINIC) as name:
        yield name


@pytest.fixture
async def world(server: Server, database: str) -> AsyncIterator[PostgresWorld]:
    async with connected(server, database) as connection, connection.transaction(readonly=True):
        yield PostgresWorld(connection)


@pytest.mark.parametrize(
    ("sql", "status"),
    [
        ("SELECT bool_and(kind = 'office') FROM appointments WHERE patient_id = :persona.id", "pass"),
        ("SELECT bool_or(kind = 'phone') FROM appointments WHERE patient_id = :persona.id", "fail"),
        ("SELECT bool_and(kind = 'office') FROM appointments WHERE patient_id = 99", "unclear"),
        ("SELECT kind = 'office' FROM appointments WHERE id = 3", "unclear"),
        ("SELECT kind = 'office' FROM appointments WHERE id = 99", "unclear"),
        (
            "SELECT count(*) = 1 FROM appointments WHERE id NOT IN (SELECT id FROM before.appointments)",
            "pass",
        ),
        ("SELECT ref = 'A-' || :persona.id FROM appointments WHERE id = 1 -- a number beside text", "pass"),
        ("SELECT full_name = :persona.full_name FROM patients WHERE id = :persona.id", "pass"),
        (
            "SELECT born = :persona.born AND born + 1 = :persona.born::date + 1 FROM patients WHERE id = 7",
            "pass",
        ),
        ("SELECT :persona.nothing IS NULL FROM patients WHERE id = 7", "pass"),
        (
            "WITH mine AS (SELECT * FROM appointments WHERE patient_id = 7) SELECT count(*) = 1 FROM mine;",
            "pass",
        ),
    ],
)
async def test_a_boolean_answer_is_the_verdict_and_null_is_none(
    world: PostgresWorld, sql: str, status: str
) -> None:
    persona = {"id": 7, "full_name": "Ada O'Neill", "born": "1980-02-29", "nothing": None}
    verdict = await judge(
        f"sql: {sql!r}" if ": " not in sql else f'sql: "{sql}"', evidence(persona=persona), world
    )
    assert (verdict.status, verdict.reason.startswith("rule error")) == (status, False)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT true FROM appointments", "expected one row with one boolean, got 3 x 1 values"),
        (
            "SELECT true AS a, true AS b FROM patients WHERE id = 7",
            "expected one row with one boolean, got 1 x 2",
        ),
        ("SELECT count(*) FROM patients", "expected a boolean, got a value of type int"),
        ("SELECT no_such_column FROM patients", "UndefinedColumnError"),
        ("SELECT id = 1 / (id - id) FROM patients", "DivisionByZeroError"),
        ("SELECT id = :persona.age FROM patients", "the persona has no column 'age'"),
        ("SELECT nextval(pg_get_serial_sequence('patients', 'id')) = 1 FROM patients", "rule error"),
    ],
)
async def test_a_statement_without_an_answer_is_a_rule_error(
    world: PostgresWorld, sql: str, reason: str
) -> None:
    verdict = await judge(f'sql: "{sql}"', evidence(), world)
    assert verdict.status == "unclear"
    assert verdict.reason.startswith("rule error: ")
    assert reason in verdict.reason


async def test_a_failing_statement_leaves_the_next_rule_its_database(world: PostgresWorld) -> None:
    text = """
    breaks: {severity: 1, sql: SELECT no_such_column FROM patients}
    works: {severity: 1, sql: SELECT count(*) = 2 FROM patients}
    """
    verdicts = await grade(rules(text), evidence(), world)
    assert [verdict.status for verdict in verdicts] == ["unclear", "pass", "pass"]


@pytest.mark.parametrize(
    ("condition", "wanted", "status", "findings"),
    [
        ("patient_id = 8", "none", "fail", 2),
        ("patient_id = 9", "none", "pass", 0),
        ("patient_id = 8", "some", "pass", 0),
        ("patient_id = 9", "some", "fail", 1),
    ],
)
async def test_rows_are_the_findings(
    world: PostgresWorld, condition: str, wanted: str, status: str, findings: int
) -> None:
    body = f"sql: SELECT id, kind FROM appointments WHERE {condition} ORDER BY id\nrows: {wanted}"
    verdict = await judge(body, evidence(), world)
    assert (verdict.status, len(verdict.findings)) == (status, findings)


async def test_a_row_that_may_not_be_there_is_shown(world: PostgresWorld) -> None:
    body = "sql: SELECT id, kind FROM appointments WHERE kind IS NULL\nrows: none"
    (finding,) = (await judge(body, evidence(), world)).findings
    assert finding.text == "The rule found this row: id = 3, kind = empty."


async def test_an_enormous_answer_is_cut(world: PostgresWorld) -> None:
    body = "sql: SELECT x FROM generate_series(1, 100000) AS x\nrows: none"
    verdict = await judge(body, evidence(), world)
    assert verdict.reason == "more than 200 rows were found, none was expected"
    assert len(verdict.findings) == 201
