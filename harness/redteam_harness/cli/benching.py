"""`redteam bench tau2`: runs the benchmark's tasks and prints which end as its oracle says."""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import typer
from rich.console import Console

from redteam_forker.changes.render import ALL, print_changes, shown
from redteam_harness.benchmarks.tau2 import (
    BenchOptions,
    check_new,
    read_benchmark,
    run_benchmark,
    write_suite,
)
from redteam_harness.benchmarks.tau2.world import open_world_folder
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text, writing
from redteam_harness.launch.interrupt import Interrupted, interruptible
from redteam_sdk import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redteam_forker import ChangeSet
    from redteam_harness.benchmarks.tau2 import Benched, Benchmark, ReferenceAgent, TaskRun
    from redteam_harness.benchmarks.tau2.world import World
    from redteam_harness.cli.settings import Settings

__all__ = ["BenchCommand", "benchmark_suite", "run_bench"]

_EXIT_MISMATCH = 1
_EXIT_FAULT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCommand:
    """The arguments of `redteam bench tau2`, as `redteam bench tau2 --help` explains them."""

    data: Path
    parallel: int
    server: str | None
    allow_databases: tuple[str, ...]
    world: Path
    suite: Path | None
    agent: ReferenceAgent
    json: bool


def run_bench(command: BenchCommand, settings: Settings) -> int:
    """Run the benchmark, print what was found, and return the exit code.

    Raises:
        UsageError: the files or the options cannot work.
        EnvironmentFault: the server failed.
        Interrupted: a person stopped it.
    """
    if command.suite is not None:
        check_new(command.suite)
    benchmark, world = read_benchmark(command.data), open_world_folder(command.world)
    said: Callable[[str], None] = _say_nothing if command.json else typer.echo
    benched = anyio.run(_bench, command, settings, benchmark, world, said)
    written = None
    if command.suite is not None:
        written = write_suite(benchmark, world, benched, command.suite, agent=command.agent)
    if command.json:
        sys.stdout.write(json_text(_facts(benched, command.parallel)) + "\n")
    else:
        _show(benched, command.parallel)
        if written is not None:
            typer.echo(f"wrote {written} cases to {command.suite}; next: redteam launch {command.suite}")
    if benched.undropped:
        typer.echo(f"redteam: forks that could not be dropped: {' '.join(benched.undropped)}", err=True)
    if any(run.fault is not None for run in benched.runs):
        return _EXIT_FAULT
    return 0 if benched.matches == len(benched.runs) else _EXIT_MISMATCH


def benchmark_suite(command: BenchCommand, settings: Settings, base: Path) -> Path:
    """The suite of a benchmark's tasks under `base`, made once for the same data, world and version.

    Raises:
        UsageError: the files cannot work, or no task matches.
        EnvironmentFault: the server failed.
        Interrupted: a person stopped it; nothing is left.
    """
    benchmark, world = read_benchmark(command.data), open_world_folder(command.world)
    files = sorted(path for folder in (command.data, command.world) for path in folder.glob("*.*"))
    digest = hashlib.sha256(__version__.encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    suite = base / f"tau2-{digest.hexdigest()[:12]}"
    if not (suite / "suite.yaml").is_file():
        said: Callable[[str], None] = _say_nothing if command.json else typer.echo
        said("the gold actions are run once, for the rules of the suite")
        benched = anyio.run(_bench, command, settings, benchmark, world, said)
        with writing(base):
            base.mkdir(parents=True, exist_ok=True)
            private = Path(tempfile.mkdtemp(prefix=".tau2-", dir=base))
        try:
            write_suite(benchmark, world, benched, private / "suite", agent=command.agent)
            with writing(suite):
                (private / "suite").rename(suite)
        finally:
            shutil.rmtree(private, ignore_errors=True)
    return suite


def _say_nothing(_: str) -> None:
    """Where only JSON is printed."""


async def _bench(
    command: BenchCommand, settings: Settings, benchmark: Benchmark, world: World, said: Any
) -> Benched:
    options = BenchOptions(
        parallel=command.parallel,
        server=partial(chosen_server, command.server, settings, allow_databases=command.allow_databases),
        environment=settings.environment,
    )
    benched: Benched | None = None
    async with interruptible() as interrupt:
        with interrupt.scope():
            benched = await run_benchmark(benchmark, world, options, said)
    if benched is None:
        raise Interrupted("interrupted; no fork is left, and nothing was decided")
    return benched


def _show(benched: Benched, parallel: int) -> None:
    for run in benched.runs:
        if not run.is_match:
            _show_mismatch(run)
    actions = sum(len(run.task.actions) for run in benched.runs)
    refused = sum(len(run.refused) for run in benched.runs)
    typer.echo(
        f"{benched.matches} of {len(benched.runs)} tasks match: "
        f"{actions} actions, {refused} of them refused; {_of_unchanged(benched)}"
    )
    typer.echo(
        f"{benched.seconds:.1f} s at --parallel {parallel}: {benched.forks_per_second:.1f} forks a second, "
        "each made, used, compared, exported and dropped"
    )


def _of_unchanged(benched: Benched) -> str:
    unchanged = [run for run in benched.runs if run.task.expected.unchanged]
    return f"{len(unchanged)} tasks rightly end as they began"


def _show_mismatch(run: TaskRun) -> None:
    """What a task left beside what was expected of it."""
    task, expected = run.task, run.task.expected
    if run.fault is not None:
        typer.echo(f"task {task.id}  fault of ours: {run.fault}")
        return
    typer.echo(f"task {task.id}  does not match")
    same = " (as expected)" if run.sha256 == expected.end_state_sha256 else ""
    typer.echo(f"  end state  {run.sha256}{same}")
    if not same:
        like = ", the initial one" if expected.unchanged else ""
        typer.echo(f"  expected   {expected.end_state_sha256}{like}")
    refused = {one.index: f"{one.type}: {one.message}" for one in run.refused}
    for index, action in enumerate(task.actions):
        due = index in expected.failing_action_indexes
        if index in refused or due:
            told = refused.get(index, "done")
            typer.echo(f"  action {index}  {action.name}  {told}; expected: {'refused' if due else 'done'}")
        else:
            typer.echo(f"  action {index}  {action.name}  done")
    if run.changes is not None:
        typer.echo("  what changed:")
        typer.echo(_changes_text(run.changes))


def _changes_text(changes: ChangeSet) -> str:
    file = io.StringIO()
    print_changes(Console(file=file, width=110, highlight=False), shown(changes, bounds=ALL))
    return file.getvalue().rstrip()


def _facts(benched: Benched, parallel: int) -> Mapping[str, Any]:
    return {
        "benchmark": "tau2-retail",
        "server": benched.server,
        "template": benched.template,
        "parallel": parallel,
        "tasks": len(benched.runs),
        "matches": benched.matches,
        "seconds": round(benched.seconds, 3),
        "forks_per_second": round(benched.forks_per_second, 2),
        "runs": [
            {
                "task": run.task.id,
                "match": run.is_match,
                "end_state_sha256": run.sha256,
                "expected_sha256": run.task.expected.end_state_sha256,
                "unchanged": run.task.expected.unchanged,
                "refused": [
                    {"index": one.index, "tool": one.tool, "type": one.type, "message": one.message}
                    for one in run.refused
                ],
                "expected_refused": list(run.task.expected.failing_action_indexes),
                "seconds": round(run.seconds, 3),
                "fault": run.fault,
                "changes": None if run.changes is None or run.is_match else run.changes.to_json(),
            }
            for run in benched.runs
        ],
    }
