"""`redteam scenario`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["scenario"]


def scenario(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenarios (YAML).")],
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, nothing else.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep each result there, as SCENARIO.json.")
    ] = None,
) -> None:
    """Run an agent that needs no database against mocked answers, in a process that reaches nothing.

    Every function that the agent's code marks with @tool or @external is answered by the scenario's mocks and
    never runs. A call that no mock has is an error of its step, and the scenario goes on. The process has no
    network, no environment, no other program, nothing to write, and of files its own code only.

    Exit code: 0 passed, or completed where nothing is scored; 1 a step had an error or an unexpected reply;
    2 usage; 3 a fault, or the scorer that is asked for is not there.
    """
    from redteam_harness.cli.scenarios import run_scenarios

    raise typer.Exit(run_scenarios(files, json=json, out=out))
