from __future__ import annotations

import pytest
from pydantic import ValidationError
from support.rubrics import rules

from redteam_rubrics import check_names

CATALOG = {
    "appointments": ["id", "patient_id", "kind"],
    "public.patients": ["id", "full_name"],
    "billing.claims": ["id", "patient_id"],
}


def problems(body: str) -> list[tuple[tuple[str | int, ...], str]]:
    found = check_names(
        rules(f"a: {{severity: 1, {body}}}"),
        CATALOG,
        persona=["id"],
        tools=["find", "book"],
        externals=["send_sms"],
    )
    return [(problem.loc, problem.message) for problem in found]


@pytest.mark.parametrize(
    "body",
    [
        "sql: SELECT a.id = :persona.id FROM appointments a JOIN before.appointments b USING (id)",
        'sql: SELECT true FROM public.patients CROSS JOIN billing.claims CROSS JOIN before."billing.claims"',
        "sql: SELECT true FROM pg_class CROSS JOIN information_schema.tables",
        "sql: WITH x AS (SELECT 1 FROM patients) SELECT true FROM x",
        "changes: [appointments: {do: update, columns: [kind], where: 'appointments.id = :persona.id'}]",
        "changes: [billing.claims: {do: insert, where: 'claims.id IN (SELECT p.id FROM patients p)'}]",
        "changes: [public.patients: {do: insert}]",
        "changes: [objects: public.anything]",
        "transcript: {agent_says: x, before_tool: book, after_tool: find}",
        "tools: {order: [find, book], arguments: {book: {patient_id: ':persona.id'}}}",
        "outbox: {sent: {tool: send_sms, where: {to: ':persona.id'}}}",
        "outbox: {at_most: 1}",
        "sql: SELECT c.tool = e.text FROM evidence.calls c JOIN evidence.lines e USING (turn)",
        "sql: SELECT evidence.calls.tool = 'x' FROM evidence.calls",
        # The name stands for two things, so nothing is said of it.
        "sql: SELECT c.nothing FROM evidence.calls c WHERE EXISTS (SELECT c.kind FROM appointments c)",
        "sql: SELECT :claimed.id = id FROM patients",
        "tools: {preceded_by: {book: find}, confirmed: {book: sure}, after_error: {'*': {never_says: x}}}",
        "tools: {retry_after: {book: {tools: find, same: id}}}",
    ],
)
def test_names_that_exist_are_no_problem(body: str) -> None:
    assert problems(body) == []


@pytest.mark.parametrize(
    ("body", "loc", "message"),
    [
        ("sql: SELECT true FROM apointments", ("sql",), "no table apointments; did you mean appointments?"),
        ("sql: SELECT true FROM before.claims", ("sql",), "there is no table claims"),
        ("sql: SELECT true FROM billing.appointments", ("sql",), "there is no table billing.appointments"),
        ("sql: SELECT id = :persona.age FROM patients", ("sql",), "no column of the cast age; there are: id"),
        ("changes: [visits: {do: insert}]", ("changes", 0), "there is no table visits"),
        (
            "changes: [appointments: {do: update, columns: [kind, knd]}]",
            ("changes", 0, "appointments", "columns"),
            "there is no column of appointments knd; did you mean kind?",
        ),
        (
            "changes: [public.patients: {do: insert, where: 'name = 1'}]",
            ("changes", 0, "public.patients", "where"),
            "there is no column of patients name",
        ),
        (
            "changes: [patients: {do: insert, where: 'id IN (SELECT id FROM visits)'}]",
            ("changes", 0, "patients", "where"),
            "there is no table visits",
        ),
        ("transcript: {agent_says: x, before_tool: bok}", ("transcript", "before_tool"), "mean book?"),
        ("tools: {never_called: cancel}", ("tools", "never_called"), "there is no tool cancel"),
        ("tools: {at_most: {cancel: 1}}", ("tools", "at_most"), "there is no tool cancel"),
        (
            "tools: {arguments: {book: {x: ':persona.name'}}}",
            ("tools", "arguments", "book"),
            "there is no column of the cast name",
        ),
        ("sql: SELECT c.tol FROM evidence.calls c", ("sql",), "of evidence.calls tol; did you mean tool?"),
        ("sql: SELECT evidence.calls.tol FROM evidence.calls", ("sql",), "did you mean tool?"),
        ("sql: SELECT :claimed.age = id FROM patients", ("sql",), "no column of the cast age"),
        ("tools: {preceded_by: {book: fnd}}", ("tools", "preceded_by"), "did you mean find?"),
        ("tools: {confirmed: {bok: sure}}", ("tools", "confirmed"), "did you mean book?"),
        ("tools: {after_error: {bok: {never_says: x}}}", ("tools", "after_error"), "did you mean book?"),
        ("tools: {retry_after: {book: fnd}}", ("tools", "retry_after"), "did you mean find?"),
        ("outbox: {sent: {tool: book}}", ("outbox", "sent"), "there is no external tool book"),
        ("outbox: {at_most: {charge: 1}}", ("outbox", "at_most"), "there is no external tool charge"),
    ],
)  # fmt: skip
def test_a_name_that_refers_to_nothing_is_a_problem_at_its_place(
    body: str, loc: tuple[str | int, ...], message: str
) -> None:
    ((found, text),) = problems(body)
    assert found == ("a", *loc)
    assert message in text


def test_names_that_nobody_can_know_yet_are_not_checked() -> None:
    loaded = rules("a: {severity: 1, tools: {called: anything}}")
    assert check_names(loaded, CATALOG) == []


def test_a_table_that_the_evidence_hides_is_told() -> None:
    text = "a: {severity: 1, sql: SELECT count(*) = 0 FROM evidence.calls}"
    (problem,) = check_names(rules(text), {**CATALOG, "evidence.calls": ["id"]})
    assert "read that through a view in another schema" in problem.message
    assert check_names(rules(text), {**CATALOG, "evidence.others": ["id"]}) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sql: SELECT id FROM evidence.call", "there is no evidence.call"),
        (
            "changes: [patients: {do: insert, where: 'id IN (SELECT event FROM evidence.calls)'}]",
            "only a `sql` rule reads schema evidence",
        ),
    ],
)
def test_what_is_no_evidence_is_refused_when_it_is_loaded(body: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        rules(f"a: {{severity: 1, {body}}}")
