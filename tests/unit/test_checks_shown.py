"""How findings are shown: none, and so many that nobody reads them all."""

from __future__ import annotations

import io
import re

from rich.console import Console

from redteam_harness.checks import Finding, Satisfied
from redteam_harness.cli.checking import show_findings

LONG = "a-rule-whose-name-is-as-long-as-names-may-be-and-then-a-little-longer-still"


def _shown(*findings: Finding, table: tuple[Satisfied, ...] = (), width: int = 60) -> str:
    file = io.StringIO()
    show_findings(Console(file=file, width=width, highlight=False), findings, table)
    return file.getvalue()


def test_nothing_found_is_one_line() -> None:
    assert _shown() == "nothing to improve\n"


def test_each_of_forty_findings_is_one_line_and_the_same_advice_is_given_once() -> None:
    found = [
        Finding(
            severity="mistake" if number < 30 else "suggestion",
            place=f"rules.yaml:{number}",
            message=f"rule r{number}: {'this is wrong [really] ' * 5}",
            advice="Write it in another way.",
            about=f"r{number}",
        )
        for number in range(40)
    ]
    shown = _shown(*found)
    lines = re.findall(r"^(?:mistake|suggestion)  rules\.yaml:\d+: rule r\d+: (.*)", shown, re.MULTILINE)
    assert [line.strip() for line in lines] == [("this is wrong [really] " * 5).strip()] * 40
    assert shown.count("Write it in another way.") == 1
    assert shown.count("→ as for r0 above") == 39
    assert shown.splitlines()[-1] == "30 mistakes, 10 suggestions"


def test_lines_to_paste_stand_alone_and_unchanged() -> None:
    advice = "compare:\n  columns:\n    updated_at: any"
    shown = _shown(Finding(severity="suggestion", place="suite.yaml:1", message="paste:", advice=advice))
    assert f"\n\n{advice}\n\n" in shown


def test_the_table_folds_long_names_on_a_narrow_terminal_and_loses_none() -> None:
    row = Satisfied(
        case="a-case",
        kind="does-nothing",
        by="nothing",
        conversations=3,
        passed=0,
        satisfied=(LONG, "b"),
        mixed=("c",),
        not_asked=("d",),
    )
    shown = _shown(table=(row,), width=40)
    assert LONG in "".join(line.strip() for line in shown.splitlines()).replace(" ", "")
    assert all(len(line) <= 40 or line.startswith(("What", "When")) for line in shown.splitlines())
    assert all(word in shown for word in ("a-case", "satisfied", "now so, now so", "not asked"))
