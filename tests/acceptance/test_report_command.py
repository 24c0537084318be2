"""Gates and reports as somebody who runs them in CI sees them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from support.cli import ROOT, redteam
from support.report_runs import failing, write_run

if TYPE_CHECKING:
    from pathlib import Path

CLINIC = ROOT / "seeds" / "clinic"
GATES = """
gates:
  fail_on: none
  pass_rate: {min: 0.5, figure: share}
  min_judged: 3
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clinic with gates of its own: its agent breaks rules, and may in half of the conversations."""
    folder = tmp_path_factory.mktemp("suite")
    for path in CLINIC.iterdir():
        if path.name != "suite.yaml":
            (folder / path.name).symlink_to(path)
    (folder / "suite.yaml").write_text((CLINIC / "suite.yaml").read_text(encoding="utf-8") + GATES)
    return folder


def test_the_exit_code_follows_the_gates_that_the_suite_wrote_before_the_run(
    suite: Path, tmp_path: Path
) -> None:
    done = redteam("launch", suite, "--count", 3, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗ " in done.stdout
    assert "gates        green: pass_rate 0.6667 (limit 0.5), min_judged 3 (limit 3)" in done.stdout
    assert done.stdout.endswith("exit 0: every gate is green\n")
    (run,) = tmp_path.iterdir()
    kept = json.loads((run / "run.json").read_text())["gates"]
    assert kept["pass_rate"] == {"min": 0.5, "figure": "share"}


def test_the_command_line_may_be_stricter_than_the_suite(suite: Path, tmp_path: Path) -> None:
    done = redteam("launch", suite, "--count", 3, "--fail-on", "sev1", "--out", tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith("exit 1: the agent broke a rule\n")
    (run,) = tmp_path.iterdir()
    gates = json.loads((run / "report.json").read_text())["gates"]
    assert {reason["code"] for reason in gates["reasons"]} == {"rule-failed"}
    assert gates["fail_on"] == [1]


def test_a_launch_that_could_never_be_red_is_refused_before_a_fork_exists(tmp_path: Path) -> None:
    done = redteam("launch", CLINIC, "--fail-on", "none", "--out", tmp_path)
    assert done.returncode == 2
    assert "no failure of the agent could turn a run red; give pass_rate, severity_1 or rules" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("report.md", "> <code>offline"),
        ("report.html", "<!DOCTYPE html>"),
        ("report.json", "{"),
        ("report.xml", "<?xml"),
        ("report.txt", "\nseverity 1   1 conversation\n"),
    ],
)
def test_the_ending_of_a_file_says_how_a_report_is_written(name: str, begins: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", [failing()])
    done = redteam("report", "--out", tmp_path / "runs", "--output", tmp_path / name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(begins.lower())


def test_the_schema_that_is_printed_is_that_of_the_report(tmp_path: Path) -> None:
    write_run(tmp_path, [failing()])
    schema = json.loads(redteam("report", "--format", "schema").stdout)
    report = json.loads(redteam("report", "run222", "--format", "json", "--out", tmp_path).stdout)
    jsonschema.validate(report, schema, cls=jsonschema.Draft202012Validator)
    assert report["version"] == schema["properties"]["version"]["const"] == 2


def test_a_report_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    run = write_run(tmp_path, [failing()])
    assert redteam("report", "nothing", "--out", tmp_path).returncode == 2
    blocked = redteam("report", "--out", tmp_path, "--output", tmp_path / "no" / "such" / "folder.md")
    assert (blocked.returncode, "folder.md cannot be written" in blocked.stderr) == (3, True)
    run.journal.write_text(
        run.journal.read_text().replace("own-rows-only", "other", 1).replace("fail", "pass")
    )
    damaged = redteam("report", "--out", tmp_path)
    assert (damaged.returncode, "chain is broken" in damaged.stderr) == (3, True)
