from __future__ import annotations

import io
import json
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from redteam_harness.evidence.run import StoredConversation
from redteam_harness.report.changed import changed_rows, row_line, rows_behind
from redteam_harness.report.data import report_data
from redteam_harness.report.junit import junit
from redteam_harness.report.summary import Finished, Outcome, Summary, summarise
from redteam_harness.report.terminal import print_conversation, print_report
from redteam_harness.report.words import exit_line

NOTICE = "offline: scripted models check the harness; nothing here is about a model"


def verdict(rule: str = "a-rule", status: str = "fail", severity: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "rule": rule,
        "severity": severity,
        "status": status,
        "source": "assertion",
        "reason": "said so",
        "findings": [],
        "vacuous": False,
        "why": "It matters.",
        **more,
    }


def finished(number: int, outcome: Outcome, **more: Any) -> Finished:
    status = {"pass": "pass", "fail": "fail"}.get(outcome)
    return Finished(
        id=f"c{number:03}",
        case="case",
        persona=str(number),
        disposition="cooperative",
        outcome=outcome,
        turns=3,
        ending="ended",
        seconds=0.5,
        **{
            "verdicts": [verdict(status=status)] if status else [],
            "cause": "" if status else "hang",
            "message": "" if status else "no answer",
            **more,
        },
    )


def summary(*outcomes: Outcome, planned: int | None = None, interrupted: bool = False) -> Summary:
    return summarise(
        [finished(number, outcome) for number, outcome in enumerate(outcomes, start=1)],
        notice=NOTICE,
        suite="suite",
        run="abc234",
        planned=len(outcomes) if planned is None else planned,
        forks=len(outcomes),
        interrupted=interrupted,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("outcomes", "planned", "interrupted", "code"),
    [
        pytest.param(["pass", "pass"], 2, False, 0, id="passed"),
        pytest.param(["pass", "fail"], 2, False, 1, id="broke-a-rule"),
        pytest.param(["fail", "infra-fault"], 2, False, 1, id="broke-a-rule-and-a-fault"),
        pytest.param(["pass", "sim-fault"], 2, False, 3, id="fault"),
        pytest.param(["pass", "judge-fault"], 2, False, 3, id="undecided"),
        pytest.param(["pass", "derailed"], 2, False, 3, id="derailed"),
        pytest.param(["pass"], 2, False, 3, id="one-never-held"),
        pytest.param([], 2, False, 3, id="none-held"),
        pytest.param(["fail"], 2, True, 130, id="interrupted"),
    ],
)
def test_the_exit_code_says_who_is_to_act(
    outcomes: list[Outcome], planned: int, interrupted: bool, code: int
) -> None:
    found = summary(*outcomes, planned=planned, interrupted=interrupted)
    assert found.exit_code == code
    assert exit_line(found).startswith(f"exit {code}: ")


def test_faults_are_in_no_rate_and_severity_1_is_a_count() -> None:
    found = summary("pass", "pass", "fail", "infra-fault", "sim-fault", "judge-fault")
    assert (found.rate.passed, found.rate.judged, found.severity_1, found.faults) == (2, 3, 1, 3)
    assert report_data(found)["pass_rate"]["share"] == pytest.approx(2 / 3)


def test_a_rate_of_nothing_is_undefined_and_not_zero() -> None:
    found = summary("infra-fault")
    assert report_data(found)["pass_rate"] == {
        "passed": 0,
        "judged": 0,
        "share": None,
        "interval": {"method": "wilson", "confidence": 0.95, "low": None, "high": None},
        "excluded": {"infra-fault": 1},
        "bounds": {"if_all_failed": 0.0, "if_all_passed": 1.0},
        "clusters": 0,
        "bootstrap": None,
    }
    assert "so there is no rate" in _printed(found)


def test_the_report_for_machines_is_json_whatever_was_said() -> None:
    odd = finished(1, "infra-fault", message='quote " newline \n control \x01 astral 🦆 lone \udcff')
    found = summarise(
        [odd], notice=NOTICE, suite="s", run="r", planned=1, forks=1, interrupted=False, seconds=1.0
    )
    assert json.loads(json.dumps(report_data(found)))["conversations"][0]["fault"]["message"] == odd.message
    assert next(iter(report_data(found))) == "notice"


def test_junit_counts_every_planned_conversation_once() -> None:
    suite, _ = ElementTree.fromstring(junit(summary("pass", "fail", "infra-fault", planned=5)))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "3")
    assert len(suite.findall("testcase")) == 5
    assert len(suite.findall("testcase/failure")) == 1
    assert len(suite.findall("testcase/error")) == 3


def test_junit_has_a_case_for_each_gate_beside_the_conversations() -> None:
    _, gates = ElementTree.fromstring(junit(summary("pass", "fail", "infra-fault")))
    assert (gates.get("tests"), gates.get("failures"), gates.get("errors")) == ("2", "1", "1")
    red = {case.get("name"): (case[0].tag, case[0].get("type")) for case in gates.findall("testcase")}
    assert red == {"fail_on": ("failure", "rule-failed"), "faults": ("error", "without-verdict")}


@pytest.mark.parametrize("text", ["<&>\"'", "bell \x07", "]]>", "--", "lone \udcff", "￾"])
def test_junit_is_well_formed_whatever_an_agent_said(text: str) -> None:
    bad = finished(1, "fail", verdicts=[verdict(findings=[{"text": text}])])
    fault = finished(2, "infra-fault", message=text)
    found = summarise(
        [bad, fault], notice=NOTICE, suite="s", run="r", planned=2, forks=2, interrupted=False, seconds=1.0
    )
    root = ElementTree.fromstring(junit(found).encode())
    assert len(root.findall("testsuite[1]/testcase")) == 2


CHANGES: dict[str, Any] = {
    "tables": [
        {
            "schema": "public",
            "table": "visits",
            "columns": {
                "id": "bigint",
                "kind": "text",
                "at": "timestamp with time zone",
                "note": "text",
                "paid": "boolean",
            },
            "rows": [
                {
                    "op": "insert",
                    "key": {"id": "7"},
                    "old": None,
                    "new": {
                        "id": "7",
                        "at": "2026-11-30 09:00:00+00",
                        "kind": "follow_up",
                        "note": "x" * 90,
                        "paid": "f",
                    },
                    "changed": [],
                    "by": ["1"],
                },
                {
                    "op": "update",
                    "key": {"id": "8"},
                    "old": {"id": "8", "kind": None},
                    "new": {"id": "8", "kind": "long"},
                    "changed": ["kind"],
                    "by": [],
                },
            ],
        },
        {
            "schema": "billing",
            "table": "log",
            "columns": {"line": "text"},
            "rows": [
                {
                    "op": "delete",
                    "key": None,
                    "old": {"line": "gone"},
                    "new": None,
                    "changed": [],
                    "by": None,
                }
            ],
        },
    ],
    "objects": [{"op": "create", "kind": "table", "name": "public.extra"}],
}
EVENTS = [
    {"kind": "tool_call", "turn": 2, "call": "1", "name": "book", "arguments": {}},
    {"kind": "tool_result", "turn": 2, "call": "1", "name": "book", "value": 1},
]


def test_a_changed_row_is_told_with_its_key_its_cells_and_who_wrote_it() -> None:
    assert changed_rows(CHANGES, EVENTS) == [
        f"visits 7  + at Mon 2026-11-30 09:00 UTC, kind follow_up, note {'x' * 39}…, paid false   "
        "by book, turn 2",
        "visits 8  ~ kind null → long   outside any call",
        "billing.log (no key)  - line gone",
        "create table public.extra",
    ]


def test_without_a_trace_nobody_is_named() -> None:
    assert not any("by " in line or "outside" in line for line in changed_rows(CHANGES))


def test_a_brief_row_begins_with_what_the_rule_speaks_of_and_ends_with_times() -> None:
    table = CHANGES["tables"][0]
    line = row_line(table, table["rows"][0], None, first=["kind"])
    assert line == f"visits 7  + kind follow_up, note {'x' * 39}…, paid false, …"


def test_rows_that_were_too_many_to_keep_are_counted() -> None:
    changes = {"tables": [{**CHANGES["tables"][1], "omitted": 5}]}
    assert changed_rows(changes)[-1] == "billing.log  … 5 rows more were too many to keep"


def test_the_rows_behind_a_verdict_are_those_that_its_findings_name() -> None:
    findings = [{"text": "t", "table": "visits", "op": "update", "key": {"id": "8"}}]
    assert rows_behind(verdict(findings=findings), CHANGES, ()) == [
        "visits 8  ~ kind null → long   outside any call"
    ]
    assert len(rows_behind(verdict(tables=["visits"]), CHANGES, ())) == 2
    assert rows_behind(verdict(), CHANGES, ()) == []


def test_a_verdict_of_a_hostile_text_cannot_style_the_terminal() -> None:
    one = finished(1, "fail", verdicts=[verdict(rule="[red]rule[/]", why="[link=x]y[/link]")])
    found = summarise(
        [one], notice=NOTICE, suite="s", run="r", planned=1, forks=1, interrupted=False, seconds=1.0
    )
    printed = _printed(found)
    assert "[red]rule[/]" in printed
    assert "[link=x]y[/link]" in printed


def test_nothing_that_an_agent_did_can_command_the_terminal_that_shows_it() -> None:
    evil = "a\x1b]0;title\x07\x1b[2Jb\u202ec"
    events = (
        {"kind": "user", "turn": 1, "text": f"two\nlines {evil}"},
        {"kind": "agent", "turn": 1, "text": evil},
        {"kind": "tool_call", "turn": 1, "call": "1", "name": evil, "arguments": {"x": evil}},
        {"kind": "tool_result", "turn": 1, "call": "1", "name": evil, "value": evil},
        {"kind": "tool_error", "turn": 1, "call": "2", "type": evil, "message": evil},
        {"kind": "printed", "turn": 1, "text": evil},
        {"kind": "fault", "turn": 1, "whose": "infra", "cause": "hang", "message": evil},
    )
    row: dict[str, Any] = {
        "op": "insert",
        "key": None,
        "old": None,
        "new": {"v": evil},
        "changed": [],
        "by": None,
    }
    table = {"schema": "public", "table": evil, "columns": {"v": "text"}, "rows": [row]}
    stored = StoredConversation(
        about={"id": "c001", "case": "x", "persona": "1", "disposition": "angry", "demand": "d"},
        events=events,
        changes={"tables": [table], "objects": [{"op": "create", "kind": "table", "name": evil}]},
        verdicts=(verdict(findings=[{"text": evil}]),),
    )
    output = io.StringIO()
    print_conversation(Console(file=output, width=120, highlight=False), stored, NOTICE)
    printed = output.getvalue()
    assert "lines a⟨ESC⟩]0;title⟨BEL⟩⟨ESC⟩[2Jb⟨U+202E⟩c" in printed
    assert not set(printed) & {"\x1b", "\x07", "\u202e"}


def _printed(found: Summary) -> str:
    output = io.StringIO()
    print_report(Console(file=output, width=120, highlight=False), found, "runs/r", lambda _: ())
    return output.getvalue()
