from __future__ import annotations

from typing import Any

import pytest

from redteam_harness.checks.sources import Assignment, assignments, moving_functions, moving_part
from redteam_harness.checks.volatile import volatile_columns


def trigger_function(body: str) -> str:
    return (
        "CREATE OR REPLACE FUNCTION public.f() RETURNS trigger LANGUAGE plpgsql AS "
        f"$function$ {body} $function$"
    )


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("BEGIN NEW.updated_at := now(); RETURN NEW; END", [("updated_at", "now()")]),
        ("BEGIN new.Updated_At = now(); RETURN NEW; END", [("updated_at", "now()")]),
        ('BEGIN NEW."Last Seen" := now(); RETURN NEW; END', [("Last Seen", "now()")]),
        ("BEGIN /* NEW.a := now(); */ NEW.b := 1; -- NEW.c := now()\n RETURN NEW; END", [("b", "1")]),
        ("BEGIN IF x THEN NEW.a := 1; ELSE NEW.b := 2; END IF; RETURN NEW; END", [("a", "1"), ("b", "2")]),
        ("BEGIN RAISE NOTICE 'NEW.a := now()'; RETURN NEW; END", []),
        ("DECLARE r record; BEGIN SELECT 1 AS a INTO r; r.a := now(); RETURN NEW; END", []),
        ("BEGIN OLD.a := now(); RETURN NEW; END", []),
        ("BEGIN SELECT now() INTO NEW.seen; RETURN NEW; END", [("seen", "SELECT now()")]),
        ("BEGIN this is no code", []),
    ],
)  # fmt: skip
def test_what_a_trigger_assigns_is_read_from_its_code(body: str, found: list[tuple[str, str]]) -> None:
    read = [(one.column, " ".join(one.expression.split())) for one in assignments(trigger_function(body))]
    assert [(column, expression.replace(" INTO NEW.seen", "")) for column, expression in read] == found


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("now()", "now()"),
        ("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("(CURRENT_DATE + 7)", "CURRENT_DATE"),
        ("timezone('utc'::text, now())", "now()"),
        ("pg_catalog.clock_timestamp()", "clock_timestamp()"),
        ("gen_random_uuid()", "gen_random_uuid()"),
        ("office_time()", "office_time(), which calls now()"),
        ("'now()'::text", None),
        ("NEW.now", None),
        ("0", None),
        ("-- now()\n 1", None),
        ("not sql '", None),
    ],
)
def test_what_moves_in_an_expression_is_named(expression: str, part: str | None) -> None:
    assert moving_part(expression, {"office_time": "now()"}) == part


def test_a_function_that_calls_a_clock_is_a_clock_however_far_away() -> None:
    sources = {
        "today": "SELECT office_time()::date",
        "office_time": "RETURN (now() AT TIME ZONE 'America/Chicago')",
        "tax": "SELECT $1 * 0.19",
        "again": "SELECT again()",
    }
    assert moving_functions(sources) == {"office_time": "now()", "today": "office_time()"}


@pytest.mark.parametrize(
    ("expression", "counts"),
    [
        ("OLD.version + 1", True),
        ("coalesce(NEW.version, 0) + 1", True),
        ("OLD.other + 1", False),
        ("OLD.version", False),
        ("1 + 1", False),
    ],
)
def test_a_counter_is_what_it_was_and_more(expression: str, counts: bool) -> None:
    assert Assignment(column="version", expression=expression).counts_up is counts


def column(name: str, kind: str, default: str | None = None) -> dict[str, Any]:
    return {
        "table_oid": 1,
        "schema": "public",
        "table": "t",
        "column": name,
        "type": kind,
        "default": default,
    }


@pytest.mark.parametrize(
    ("given", "why", "on_update"),
    [
        (column("updated_at", "timestamp with time zone", "now()"), "its default is now()", True),
        (column("modifiedOn", "date"), "by its name only", True),
        (column("last_update", "timestamp without time zone"), "by its name only", True),
        (column("lock_version", "integer", "0"), "by its name only", True),
        (column("created_at", "timestamp with time zone", "now()"), "default now()", False),
        (column("id", "uuid", "gen_random_uuid()"), "default gen_random_uuid()", False),
        (column("id", "bigint", "nextval('t_id_seq'::regclass)"), None, False),
        (column("updated_by", "text"), None, False),
        (column("update_count", "integer"), None, False),
        (column("version", "text"), None, False),
        (column("born", "date"), None, False),
    ],
)  # fmt: skip
def test_without_a_trigger_defaults_and_names_are_the_evidence(
    given: dict[str, Any], why: str | None, on_update: bool
) -> None:
    found = volatile_columns([given], [], {})
    assert [(one.why.startswith(why or ""), one.on_update) for one in found] == (
        [] if why is None else [(True, on_update)]
    )
