"""`redteam scenario`: runs scenarios one after the other and prints how each came out."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from redteam_forker.changes.render import visible
from redteam_harness.evidence.storage import json_text, write_json, writing
from redteam_harness.scenarios.run import run_scenario
from redteam_harness.scenarios.spec import read_scenario
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.scenarios.run import Outcome, ScenarioResult

__all__ = ["run_scenarios"]

_STYLES: Mapping[Outcome, str] = {
    "passed": "bold green",
    "completed": "bold",
    "failed": "bold red",
    "not scored": "bold yellow",
    "fault": "bold magenta",
}
_EXIT_FINE, _EXIT_FAILED, _EXIT_FAULT = 0, 1, 3
_MAX_OUTPUT = 200
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def run_scenarios(files: Sequence[Path], *, json: bool, out: Path | None) -> int:
    """Run, print, keep, and return the exit code.

    Raises:
        UsageError: a scenario is none, its agent cannot be imported, or two would be kept under one name.
        EnvironmentFault: no process can be confined here, or a result cannot be written.
    """
    read = [(path, read_scenario(path)) for path in files]
    names = [_NOT_A_NAME.sub("-", spec.scenario).strip("-.") or "scenario" for _, spec in read]
    if out is not None and len(set(names)) < len(names):
        raise UsageError("two scenarios would be kept under one name; give each a name of its own")
    console = Console(highlight=False)
    results = []
    for (path, spec), name in zip(read, names, strict=True):
        result = run_scenario(spec, path.resolve().parent)
        results.append(result)
        if out is not None:
            with writing(out):
                out.mkdir(parents=True, exist_ok=True)
            write_json(out / f"{name}.json", result.to_json())
        if not json:
            _print(console, result)
    if json:
        sys.stdout.write(json_text([result.to_json() for result in results]) + "\n")
    outcomes = {result.outcome for result in results}
    if "failed" in outcomes:
        return _EXIT_FAILED
    return _EXIT_FAULT if outcomes & {"fault", "not scored"} else _EXIT_FINE


def _print(console: Console, result: ScenarioResult) -> None:
    spec = result.spec
    console.print(result.outcome, style=_STYLES[result.outcome], end="  ")
    held, planned = len(result.steps), len(spec.steps)
    _say(
        console, f"{spec.scenario}  {held} of {planned} step{'' if planned == 1 else 's'}  {result.hash[:12]}"
    )
    if result.fault:
        _say(console, f"  fault: {result.fault}")
    if result.outcome == "not scored":
        _say(
            console, f"  there is no scorer {spec.scorer!r}, so nothing was scored; there are exact, contains"
        )
    for number, (asked, done) in enumerate(zip(spec.steps, result.steps, strict=False), start=1):
        for error in done["errors"]:
            _say(console, f"  step {number}: {error['kind']}: {error.get('type', '')} {error['message']}")
        if done.get("score") is False:
            _say(
                console,
                f"  step {number}: expected {_cut(asked.expected)}; the agent said {_cut(done['output'])}",
            )


def _say(console: Console, text: str) -> None:
    console.print(visible(text), markup=False, soft_wrap=True)


def _cut(text: str | None) -> str:
    if text is None:
        return "nothing"
    return repr(text if len(text) <= _MAX_OUTPUT else text[:_MAX_OUTPUT] + "\u2026")
