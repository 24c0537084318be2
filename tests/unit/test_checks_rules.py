"""What is wrong with rules by themselves, and where a line of their SQL stands in rules.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.cli import write_suite

from redteam_harness.checks.rules import futile, lonely_judges, too_few, toothless, unused
from redteam_harness.checks.statements import statement_line
from redteam_harness.launch.suite import load_suite
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_harness.launch.suite import Suite

GOOD = "the-rule: {severity: 1, sql: SELECT count(*) > 1 FROM people}\n"


def _suite(folder: Path, rules: str, rubric: str = "the-rule", more: str = "") -> Suite:
    path = write_suite(folder, schema="", agent="", rules=rules)
    text = (path / "suite.yaml").read_text()
    (path / "suite.yaml").write_text(text.replace("[the-rule]", f"[{rubric}]") + more)
    return load_suite(path)


def test_a_rule_that_never_fails_is_a_mistake_at_its_line(tmp_path: Path) -> None:
    suite = _suite(
        tmp_path, GOOD + "said:\n  severity: 2\n  transcript: {agent_says: {matches: '.*.'}}", "said"
    )
    (finding,) = futile(suite)
    assert (finding.severity, finding.about) == ("mistake", "said")
    assert finding.place == f"{suite.rules_document.path}:4"
    assert "never fails" in finding.message


def test_rules_of_one_case_that_cannot_both_hold_are_a_mistake(tmp_path: Path) -> None:
    rules = "calls: {severity: 1, tools: {called: book}}\nnot: {severity: 1, tools: {never_called: book}}"
    (finding,) = futile(_suite(tmp_path, rules, "calls, not"))
    assert finding.about == "not"
    assert "calls demands a call of book" in finding.message


def test_what_decides_nothing_and_is_used_by_no_case_is_told_as_unused_only(tmp_path: Path) -> None:
    suite = _suite(tmp_path, GOOD + "said: {severity: 2, transcript: {agent_says: {matches: '.*.'}}}")
    assert list(futile(suite)) == []
    (finding,) = unused(suite)
    assert (finding.severity, finding.about) == ("suggestion", "said")
    assert finding.place == f"{suite.rules_document.path}:2"


@pytest.mark.parametrize(
    ("rule", "is_lonely"),
    [
        ('{severity: 1, judge: "Was it safe?"}', True),
        ('{severity: 2, judge: "Was it safe?"}', False),
        ('{severity: 1, transcript: {agent_says: safe}, judge: "Was it safe?"}', False),
    ],
    ids=["severity-1", "severity-2", "beside-an-assertion"],
)
def test_severity_1_without_an_assertion_is_a_mistake(tmp_path: Path, rule: str, is_lonely: bool) -> None:
    found = list(lonely_judges(_suite(tmp_path, f"the-rule: {rule}")))
    assert [finding.severity for finding in found] == ["mistake"] * is_lonely
    assert all("no conversation of only can pass" in finding.message for finding in found)


def test_a_case_with_rules_of_severity_3_only_is_told(tmp_path: Path) -> None:
    suite = _suite(tmp_path, GOOD + "kind: {severity: 3, transcript: {agent_says: please}}", "kind")
    (finding,) = toothless(suite)
    assert (finding.severity, finding.about) == ("suggestion", "only")
    assert "beside the collateral gate" in finding.message
    assert list(toothless(_suite(tmp_path / "two", GOOD))) == []


def test_a_gate_on_a_rule_that_no_case_has_stops_the_suite_from_loading(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"suite\.yaml:\d+: gates\.rules names 'absent'"):
        _suite(tmp_path, GOOD, more="gates: {rules: {absent: {max_failed: 0}}}\n")


def test_a_count_that_leaves_cases_out_or_a_gate_red_is_told(tmp_path: Path) -> None:
    suite = _suite(tmp_path, GOOD, more="gates: {min_judged: 9}\nrepeat: 2\n")
    (gate,) = too_few(suite)  # a launch of 4, twice
    assert (gate.severity, gate.place) == ("suggestion", f"{suite.document.path}:16")
    assert "wants 9 conversations with a verdict, and a launch holds 8" in gate.message
    assert "`count` to 5 or more" in gate.advice
    (suite.folder / "suite.yaml").write_text(
        (suite.folder / "suite.yaml")
        .read_text()
        .replace("count: 4", "count: 1")
        .replace("cases:\n", "cases:\n  - {id: other, demand: Do it., ends: when done, rubric: [the-rule]}\n")
        .replace("gates: {min_judged: 9}\n", "")
    )
    (left_out,) = too_few(load_suite(suite.folder))
    assert "so nobody comes to only" in left_out.message


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("sql: |\n    SELECT true\n    FROM people\n    WHERE nme = 'x'", 5),
        ("why: It matters.\n  sql: >\n    SELECT true\n    FROM people WHERE nme = 'x'", 4),
        ("sql: SELECT true FROM people WHERE nme = 'x'", 3),
    ],
    ids=["literal", "folded", "plain"],
)
def test_a_line_of_sql_is_found_in_the_file(tmp_path: Path, written: str, line: int) -> None:
    suite = _suite(tmp_path, f"the-rule:\n  severity: 1\n  {written}\n")
    sql = suite.rules["the-rule"].sql
    assert sql is not None
    last = len(sql.strip().splitlines()) - 1
    found = statement_line(suite.rules_document, ("the-rule", "sql"), sql, last)
    assert found == line + (1 if written.startswith("sql: |") else 0)
