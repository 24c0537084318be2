"""docs/reports.md says what the code does: its table of codes is made from it, its examples load."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from redteam_harness.cli.commands.launching import FailOnChoice
from redteam_harness.cli.commands.reporting import ReportFormat
from redteam_harness.launch.suite import SuiteSpec
from redteam_harness.report.codes import CODES
from redteam_harness.report.markdown import SUMMARY_BYTES
from redteam_harness.report.schema import report_schema
from redteam_harness.report.thresholds import GatesSpec, severities

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_table_of_reason_codes_is_that_of_the_code() -> None:
    rows = ["| code | key under `gates` | exit | when |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {f'`{code.key}`' if code.key else 'always there'} | {code.exit} | {code.means} |"
        for name, code in CODES.items()
    ]
    expected = "<!-- codes -->\n" + "\n".join(rows) + "\n<!-- codes -->"
    assert re.findall(r"<!-- codes -->[\s\S]*<!-- codes -->", TEXT) == [expected]


def test_the_example_names_every_gate_there_is_and_loads() -> None:
    (example,) = re.findall(r"```yaml\n# suite\.yaml\n([\s\S]*?)```", TEXT)
    gates = yaml.safe_load(example)["gates"]
    assert set(gates) == set(GatesSpec.model_fields)
    assert GatesSpec.model_validate(gates).fail_on == "sev1"
    assert SuiteSpec.model_fields["gates"].annotation is GatesSpec


def test_the_choices_of_the_command_line_are_those_of_the_code_and_of_the_page() -> None:
    assert [severities(choice.value) for choice in FailOnChoice] == [(1,), (1, 2), (1, 2, 3), ()]
    assert all(f"`{choice.value}`" in TEXT for choice in ReportFormat if choice.value != "schema")
    assert f"{SUMMARY_BYTES:,} bytes at most" in TEXT


def test_the_page_names_every_key_of_the_json() -> None:
    section = TEXT.partition("## report.json")[2]
    named = set(re.findall(r"`(\w+)`", section))
    assert set(report_schema()["properties"]) - named <= {"suite", "run"}
