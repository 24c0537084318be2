"""Runs a scenario in a process of its own, and says how it came out."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.evidence.run import fingerprint
from redteam_harness.scenarios.score import SCORERS
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redteam_harness.scenarios.spec import ScenarioSpec

__all__ = ["Outcome", "ScenarioResult", "run_scenario"]

Outcome = Literal["passed", "completed", "failed", "not scored", "fault"]

_MAX_SAID = 64 * 2**20
_CHUNK = 2**16
_ENVIRONMENT = {
    # All that it has. -I would ignore a hash seed too, and then sets have another order each time.
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PATH": "/nonexistent",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """How a scenario went.

    Attributes:
        spec: the scenario.
        outcome: `passed` only where a scorer said so and no step had an error; `completed` without errors and
            without a scorer; `not scored` where the scorer that is asked for is not there.
        steps: of each step that was held its `output`, `calls`, `errors` and, where it was scored, `score`.
        fault: what ended it, where something of ours or of the process did; else empty.
        held: what confined the process: the version of Landlock, and how many system calls were refused.
        hash: SHA-256 over scenario, mocks, outputs, calls and errors; the same for the same.
    """

    spec: ScenarioSpec
    outcome: Outcome
    steps: tuple[Mapping[str, Any], ...]
    fault: str
    held: Mapping[str, int]
    hash: str

    def to_json(self) -> dict[str, Any]:
        """As it is printed and kept."""
        return {
            "scenario": self.spec.scenario,
            "description": self.spec.description,
            "agent": self.spec.agent,
            "outcome": self.outcome,
            "scorer": self.spec.scorer,
            "fault": self.fault or None,
            "confined_by": dict(self.held),
            "hash": self.hash,
            "steps": [
                {"say": asked.say, **done} for asked, done in zip(self.spec.steps, self.steps, strict=False)
            ],
        }


def run_scenario(spec: ScenarioSpec, folder: Path) -> ScenarioResult:
    """Run it, to its end or its deadline.

    Args:
        spec: the scenario.
        folder: where its agent is imported from.

    Raises:
        UsageError: its agent cannot be imported.
        EnvironmentFault: this system cannot confine a process, so nothing was run.
    """
    said, ending = _held(spec, folder)
    steps: list[dict[str, Any]] = []
    fault, held = ending, {}
    for line in said:
        match line.pop("op", None):
            case "step" if line.pop("step", None) == len(steps) + 1:
                steps.append(line)
            case "done":
                held, fault = line["held"], "" if len(steps) == len(spec.steps) else "it ended early"
            case "refused":
                raise UsageError(f"scenario {spec.scenario!r}: {line['message']}")
            case "unconfined":
                raise EnvironmentFault(
                    f"scenario {spec.scenario!r} was not run, because its process cannot be confined here: "
                    f"{line['message']}"
                )
            case "fault":
                fault = f"the runner failed: {line['message']}"
            case _:
                fault = "the process said something that is not of the protocol"
    scored = _scored(spec, steps)
    return ScenarioResult(
        spec=spec,
        outcome=_outcome(spec, scored, fault),
        steps=tuple(scored),
        fault=fault,
        held=held,
        hash=fingerprint({"scenario": spec.model_dump(mode="json"), "steps": steps, "fault": bool(fault)}),
    )


def _scored(spec: ScenarioSpec, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    score = SCORERS.get(spec.scorer or "")
    return [
        done
        if score is None or asked.expected is None
        else {**done, "score": done["output"] is not None and score(done["output"], asked.expected)}
        for asked, done in zip(spec.steps, steps, strict=False)
    ]


def _outcome(spec: ScenarioSpec, steps: list[dict[str, Any]], fault: str) -> Outcome:
    if fault:
        return "fault"
    if any(step["errors"] or step.get("score") is False for step in steps):
        return "failed"
    if spec.scorer is None:
        return "completed"
    return "passed" if spec.scorer in SCORERS else "not scored"


def _held(spec: ScenarioSpec, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """What the process said, and how it ended if it did not say so itself."""
    theirs = spec.model_dump(mode="json") | {"folder": str(folder.resolve())}
    ours, out = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="redteam-scenario-") as nowhere,
        os.fdopen(ours, "rb", 0) as reading,
    ):
        try:
            process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-m", "redteam_harness.scenarios.runner", str(out)],
                cwd=nowhere,
                env=_ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[out],
                start_new_session=True,
            )
        except OSError as error:
            raise EnvironmentFault(f"{sys.executable} cannot be started: {error.strerror}") from error
        finally:
            os.close(out)
        try:
            return _heard(process, reading, json.dumps(theirs).encode(), spec.timeout_s)
        finally:
            _end(process)


def _heard(
    process: subprocess.Popen[bytes], reading: Any, asked: bytes, timeout_s: float
) -> tuple[list[dict[str, Any]], str]:
    deadline = time.monotonic() + timeout_s
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    said, sent, ending = bytearray(), 0, ""
    with selectors.DefaultSelector() as both:
        both.register(reading, selectors.EVENT_READ)
        both.register(process.stdin, selectors.EVENT_WRITE)
        while not ending:
            ready = both.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                ending = f"it did not end within {timeout_s:g} s"
            for key, _ in ready:
                if key.fd == reading.fileno():
                    chunk = os.read(reading.fileno(), _CHUNK)
                    said += chunk
                    if len(said) > _MAX_SAID:
                        ending = "it said more than is kept"
                    elif not chunk:
                        ending = "its process ended before it had said how it went"
                    continue
                try:
                    sent += os.write(process.stdin.fileno(), asked[sent : sent + _CHUNK])
                except BrokenPipeError:
                    sent = len(asked)
                if sent == len(asked):
                    both.unregister(process.stdin)
                    process.stdin.close()
    return _parsed(bytes(said)), ending


def _parsed(said: bytes) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for line in said.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        lines.append(value if isinstance(value, dict) else {"op": None})
    return lines


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    process.wait()
