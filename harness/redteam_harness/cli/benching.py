"""`redteam bench tau2`: runs the benchmark's tasks, and writes them as a suite where that is asked for."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import typer

from redteam_harness.benchmarks.tau2 import (
    BenchOptions,
    check_new,
    read_benchmark,
    run_benchmark,
    write_suite,
)
from redteam_harness.benchmarks.tau2.world import open_world_folder
from redteam_harness.cli.benched import facts_of, show
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text, writing
from redteam_harness.launch.interrupt import Interrupted, interruptible
from redteam_sdk import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from redteam_harness.benchmarks.tau2 import Benched, Benchmark, ReferenceAgent
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
        sys.stdout.write(json_text(facts_of(benched, command.parallel)) + "\n")
    else:
        show(benched, command.parallel)
        if written is not None:
            typer.echo(f"wrote {written} cases to {command.suite}; next: redteam launch {command.suite}")
    if benched.undropped:
        typer.echo(f"redteam: forks that could not be dropped: {' '.join(benched.undropped)}", err=True)
    if benched.has_faults:
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
