from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from redteam_harness.report.summary import Finished, summarise
from redteam_harness.report.terminal import print_report

ROW: dict[str, Any] = {
    "op": "insert",
    "key": {"id": "1"},
    "old": None,
    "new": {"id": "1"},
    "changed": [],
    "by": [],
}
CHANGES = {
    "tables": [{"schema": "public", "table": "t", "columns": {"id": "int"}, "rows": [ROW], "omitted": 0}],
    "objects": [],
    "hash": "",
}
OF_ROW = {"text": "A row was added to t.", "table": "t", "op": "insert", "key": {"id": "1"}}
OF_WRITE = {"text": "1 row of p was changed, and nothing of it is left.", "table": "p"}
OF_OBJECT = {"text": "The table public.x was created."}


def _printed(*verdicts: dict[str, Any], late: tuple[str, ...] = ()) -> str:
    facts = {"severity": 1, "status": "fail", "why": "Because.", "reason": "r"}
    one = Finished(
        id="c001",
        case="a",
        persona="1",
        disposition="cooperative",
        outcome="fail",
        turns=1,
        ending="ended",
        verdicts=[{**facts, **verdict} for verdict in verdicts],
        changes=CHANGES,
        seconds=1.0,
        late=late,
    )
    summary = summarise(
        [one], notice="n", suite="s", run="r", planned=1, forks=1, interrupted=False, seconds=1.0
    )
    console = Console(file=io.StringIO(), width=200)
    print_report(console, summary, "RUN", lambda _: ())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_gate_that_failed_on_no_row_that_is_left_is_shown_with_its_findings() -> None:
    printed = _printed({"rule": "collateral", "findings": [OF_WRITE, OF_OBJECT]})
    assert OF_WRITE["text"] in printed
    assert OF_OBJECT["text"] in printed


def test_what_is_no_row_is_shown_beside_rows_that_another_rule_has_shown() -> None:
    printed = _printed(
        {"rule": "own-rows", "findings": [OF_ROW]}, {"rule": "collateral", "findings": [OF_ROW, OF_WRITE]}
    )
    assert printed.count("t 1  +") == 1
    assert printed.count(OF_WRITE["text"]) == 1


def test_a_gate_whose_rows_all_stand_under_another_rule_is_not_shown_again() -> None:
    printed = _printed(
        {"rule": "own-rows", "findings": [OF_ROW]}, {"rule": "collateral", "findings": [OF_ROW]}
    )
    assert "collateral (severity 1)" not in printed


def test_what_was_late_is_at_the_end_of_the_report() -> None:
    printed = _printed({"rule": "own-rows", "findings": [OF_ROW]}, late=("a session was active: SELECT 1",))
    assert "late         c001: a session was active: SELECT 1" in printed
