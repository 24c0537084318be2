"""The sample workflow and the page on gates: shell that parses, and commands that the command line takes."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from redteam_harness.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "deploy" / "ci" / "redteam.yml"
PAGES = (ROOT / "docs" / "gates.md", ROOT / "docs" / "fidelity.md")
_REDIRECTION = re.compile(r"\s*(>>|>|\|\|).*$")


def jobs() -> dict[str, Any]:
    found = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    assert isinstance(found, dict)
    return found


def scripts() -> list[str]:
    return [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]


def commands(text: str) -> list[str]:
    """The lines that call `redteam`, without a redirection, a prompt or what follows a command's end."""
    lines = (line.strip().removeprefix("$ ") for line in text.splitlines())
    return [_REDIRECTION.sub("", line) for line in lines if line.startswith("redteam ")]


def taken(line: str) -> str:
    """The name of the command that takes the line.

    Raises:
        typer's usage error: none does, or not with these options.
    """
    # What a shell puts in is one word here.
    words = shlex.split(re.sub(r'"\$\(.*?\)"', "VALUE", line), comments=True)[1:]
    command: Any = typer.main.get_command(app)
    context = command.make_context("redteam", words, resilient_parsing=False)
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, left = command.resolve_command(context, rest)
        context = command.make_context(name, list(left), parent=context)
    return str(context.command_path).partition(" ")[2]


LINES = sorted(
    {line for script in scripts() for line in commands(script)}
    | {
        line
        for page in PAGES
        for block in re.findall(r"```(?:sh|console)\n([\s\S]*?)```", page.read_text())
        for line in commands(block)
    }
)


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_workflow_or_page_is_one_that_the_command_line_takes(line: str) -> None:
    assert taken(line)


@pytest.mark.parametrize(
    "line", ["redteam replay latest --level 4", "redteam launch --require-walls", "redteam gate latest"]
)
def test_a_line_that_it_does_not_take_is_found(line: str) -> None:
    with pytest.raises(Exception, match=r"less than or equal to 3|require-walls|gate"):
        taken(line)


@pytest.mark.parametrize("script", scripts())
def test_every_script_of_the_workflow_is_shell(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_each_level_has_its_moment_and_only_the_compared_launch_may_fail_unseen() -> None:
    runs = {
        name: [taken(line) for step in job["steps"] for line in commands(step.get("run", ""))]
        for name, job in jobs().items()
    }
    assert set(runs["commit"]) == {"check", "fidelity", "replay", "report"}
    assert set(runs["merge"]) == {"replay", "report"}
    assert set(runs["nightly"]) == {"launch", "report"}
    assert runs["release"] == ["power", "replay", "compare"]
    levels = {name: re.findall(r"--level (\d)", str(job)) for name, job in jobs().items()}
    assert levels == {"commit": ["1"], "merge": ["2"], "nightly": [], "release": ["3"]}
    loose = [step["id"] for job in jobs().values() for step in job["steps"] if step.get("continue-on-error")]
    assert loose == ["candidate"]
    assert not any("|| true" in script for script in scripts())


def test_each_job_runs_for_one_event_only_and_reads_no_more_than_it_must() -> None:
    whole = yaml.safe_load(WORKFLOW.read_text())
    events = set(whole[True])  # YAML 1.1 reads the key `on` as true
    assert events == {"push", "schedule", "workflow_dispatch"}
    assert {re.findall(r"event_name == '(\w+)'", job["if"])[0] for job in jobs().values()} == events
    assert whole["permissions"] == {"contents": "read", "actions": "read"}
    # A secret goes to the jobs that call a model, not to every commit's.
    assert [name for name, job in jobs().items() if "secrets." in str(job)] == ["merge", "nightly", "release"]
