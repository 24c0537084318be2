"""The cast, drawn from a real database."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import TYPE_CHECKING

import pytest

from redteam_personas import Cast, CastSpec, draw_cast
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from redteam_forker.servers import Server

WORLD = """
    CREATE TABLE patients (id int PRIMARY KEY, name text COLLATE "C", born date, visits int, twin int);
    INSERT INTO patients VALUES
        (10, 'Ada', '1984-03-07', 2, 1), (2, 'bo', '1990-01-02', 0, 1), (33, 'Cy', NULL, NULL, 2);
    CREATE SEQUENCE counter;
"""
PEOPLE = "SELECT id, name, born, visits FROM patients"


@pytest.fixture
async def baseline(server: Server) -> AsyncIterator[asyncpg.Connection]:
    """A session on a database with three patients."""
    name = f"personas_{secrets.token_hex(6)}"
    admin = await server.connect()
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        connection = await server.connect(name)
        try:
            await connection.execute(WORLD)
            yield connection
        finally:
            await connection.close()
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


def spec(select: str = PEOPLE, key: str = "id") -> CastSpec:
    return CastSpec(select=select, key=key)


async def refusal(baseline: asyncpg.Connection, cast: CastSpec, **conditions: str) -> str:
    with pytest.raises(UsageError) as refused:
        await draw_cast(baseline, cast, conditions)
    return str(refused.value)


async def test_the_cast_is_ordered_by_key_and_each_case_has_who_fits_it(baseline: asyncpg.Connection) -> None:
    cast = await draw_cast(
        baseline, spec(f"{PEOPLE};  -- all"), {"all": None, "old": "visits > 0 -- some", "new": "visits = 0"}
    )
    assert cast.columns == ("id", "name", "born", "visits")
    assert [persona.key for persona in cast.personas] == ["2", "10", "33"]
    assert dict(cast.personas[1].row) == {"id": 10, "name": "Ada", "born": dt.date(1984, 3, 7), "visits": 2}
    assert {case: [p.key for p in cast.rows_for(case)] for case in cast.members} == {
        "all": ["2", "10", "33"],
        "old": ["10"],
        "new": ["2"],
    }


async def test_nobody_fitting_a_case_is_an_empty_case(baseline: asyncpg.Connection) -> None:
    cast = await draw_cast(baseline, spec(), {"none": "visits > 9"})
    assert cast.rows_for("none") == ()


async def test_the_same_rows_make_the_same_cast_in_whatever_order_they_come(
    baseline: asyncpg.Connection,
) -> None:
    async def drawn(order: str) -> Cast:
        return await draw_cast(baseline, spec(f"{PEOPLE} ORDER BY {order}", "name"), {"a": "visits > 0"})

    up, down = await drawn("id"), await drawn("id DESC")
    assert up.personas == down.personas
    assert up.digest == down.digest
    await baseline.execute("UPDATE patients SET visits = 5 WHERE id = 2")
    assert (await drawn("id")).digest != up.digest


@pytest.mark.parametrize(
    ("select", "key", "says"),
    [
        (
            PEOPLE,
            "idd",
            "no column of personas.select; did you mean 'id'? There are: born, id, name, visits;",
        ),
        ("SELECT twin FROM patients", "twin", "'twin' is not unique: 1 of its values"),
        ("SELECT born, id FROM patients", "born", "'born' is NULL in some rows"),
        ("SELECT id, twin AS id FROM patients", "id", "gives 'id' twice"),
        (f"{PEOPLE} WHERE false", "id", "gives no rows"),
        ("SELECT id,\n  nmae FROM patients", "id", 'column "nmae" does not exist, at line 2, column 3'),
        ("SELECT id FROM patient", "id", 'relation "patient" does not exist, at line 1, column 16'),
        ("SELECT 1 / (id - 10) AS id FROM patients", "id", "fails on the database: division by zero"),
        ("SELECT nextval('counter') AS id", "id", "read-only transaction"),
        ("SELECT set_config('transaction_read_only', 'off', true) AS id", "id", "read-write mode"),
    ],
)
async def test_a_select_that_cannot_be_a_cast_is_refused_with_what_to_do(
    baseline: asyncpg.Connection, select: str, key: str, says: str
) -> None:
    message = await refusal(baseline, spec(select, key))
    assert message.startswith("personas.")
    assert says in message


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("visit > 0", 'column "visit" does not exist, at line 1, column 1'),
        ("visits", "must be type boolean"),
        ("visits > 0) OR (true", "too many"),
        ("visits > nextval('counter')", "read-only transaction"),
    ],
)
async def test_a_condition_that_fails_names_its_case(
    baseline: asyncpg.Connection, condition: str, says: str
) -> None:
    message = await refusal(baseline, spec(), odd=condition)
    assert message.startswith("case 'odd', who ")
    assert says in message


async def test_a_select_that_takes_too_long_is_stopped(baseline: asyncpg.Connection) -> None:
    slow = spec("SELECT id FROM patients, pg_sleep(30)")
    with pytest.raises(UsageError, match=r"took longer than 0.05 s"):
        await draw_cast(baseline, slow, {}, timeout_s=0.05)


async def test_drawing_leaves_the_session_as_it_was(baseline: asyncpg.Connection) -> None:
    asked = "SELECT current_setting('statement_timeout'), current_setting('app.x', true)"
    before = await baseline.fetchrow(asked)
    await draw_cast(baseline, spec("SELECT id, set_config('app.x', 'y', false) FROM patients"), {})
    with pytest.raises(UsageError):
        await draw_cast(baseline, spec("SELECT 1 / 0 AS id"), {})
    after = await baseline.fetchrow(asked)
    assert (before[0], before[1] or "") == (after[0], after[1] or "")
    assert not baseline.is_in_transaction()


async def test_a_session_that_is_gone_is_a_fault_of_ours(baseline: asyncpg.Connection) -> None:
    await baseline.close()
    with pytest.raises(EnvironmentFault, match="could not be drawn") as fault:
        await draw_cast(baseline, spec(), {})
    assert fault.value.retryable
