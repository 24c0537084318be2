"""`redteam launch`: builds the launch from the command line and prints what it found."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import typer
from rich.console import Console

from redteam_harness.cli.servers import chosen_server
from redteam_harness.cli.settings import read_settings
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import open_run
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.interrupt import interruptible
from redteam_harness.launch.launch import LaunchOptions, launch
from redteam_harness.launch.players import Access, ModelOptions, choose_players
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.resume import resuming
from redteam_harness.launch.services import ServiceOptions, read_address
from redteam_harness.launch.suite import load_suite
from redteam_harness.report.data import report_data
from redteam_harness.report.rendering import print_summary
from redteam_harness.report.thresholds import with_fail_on
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_harness.cli.settings import Settings
    from redteam_harness.launch.launch import Launched
    from redteam_harness.launch.stage import Keep
    from redteam_harness.launch.suite import Suite
    from redteam_harness.models.budget import Limits
    from redteam_harness.registers.degraded import IsolationLevel
    from redteam_harness.report.thresholds import FailOn

__all__ = ["LaunchCommand", "run_launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """The arguments of `redteam launch`, as `redteam launch --help` explains them."""

    suite: Path
    parallel: int
    count: int | None
    repeat: int | None
    server: str | None
    allow_databases: tuple[str, ...]
    collector: str | None
    collector_url: str | None
    out: Path
    keep: Keep
    offline: bool
    json: bool
    resume: str | None
    retry_faults: bool
    limits: Limits
    call_cache: Path | None
    data: Path | None
    fail_on: FailOn | None
    require_isolation: bool
    allow_unguarded: bool

    @property
    def isolation(self) -> IsolationLevel | None:
        """What every conversation's isolation must have."""
        if not self.require_isolation:
            return None
        return "database" if self.allow_unguarded else "full"


def run_launch(command: LaunchCommand) -> int:
    """Launch, print, and return the exit code.

    Raises:
        RedteamError: nothing was launched, or its evidence could not be written.
    """
    if command.retry_faults and command.resume is None:
        raise UsageError(
            "--retry-faults goes with --resume RUN: it holds a run's faulted conversations again"
        )
    if command.allow_unguarded and not command.require_isolation:
        raise UsageError("--allow-unguarded goes with --require-isolation, which it eases; leave it out")
    settings = read_settings()
    suite = load_suite(_suite_of(command, settings))
    console = Console(highlight=False)
    progress = Progress(
        console=console, suite=suite.name, live=console.is_terminal and not command.json, quiet=command.json
    )
    launched = anyio.run(_launch, command, suite, settings, progress)
    summary = launched.summary
    if command.json:
        sys.stdout.write(json_text(report_data(summary)) + "\n")
    else:
        print_summary(console, launched.run, summary)
    if launched.reached:
        typer.echo(
            f"redteam: forks' roles may also connect to {', '.join(launched.reached)} on this server: "
            "nobody put anything there, or it was allowed by name; docs/security.md says what that means",
            err=True,
        )
    if launched.undropped:
        typer.echo(f"redteam: forks that could not be dropped: {' '.join(launched.undropped)}", err=True)
    return summary.exit_code


async def _launch(command: LaunchCommand, suite: Suite, settings: Settings, progress: Progress) -> Launched:
    options = LaunchOptions(
        parallel=command.parallel,
        count=command.count,
        repeat=command.repeat,
        server=partial(chosen_server, command.server, settings, allow_databases=command.allow_databases),
        out=command.out,
        keep=command.keep,
        environment=settings.environment,
        service=ServiceOptions(
            signing_key=settings.signing_key,
            collector=read_address(command.collector, command.collector_url),
        ),
        gates=with_fail_on(suite.spec.gates, command.fail_on),
        isolation=command.isolation,
    )
    access = Access(
        key=settings.api_key,
        base_url=settings.base_url,
        openai_key=settings.openai_key,
        openai_base_url=settings.openai_base_url,
    )
    models = ModelOptions(
        offline=command.offline, parallel=command.parallel, limits=command.limits, cache=command.call_cache
    )
    with ExitStack() as stack:
        if command.resume is not None:
            run = open_run(command.resume, command.out)
            if "replay" in read_facts(run):
                raise UsageError(
                    f"run {run.id} is a replay; `redteam replay {run.id} --resume` goes on with it"
                )
            resumed = stack.enter_context(resuming(run, retry_faults=command.retry_faults))
            progress.say(
                f"resuming run {resumed.run.id}: {len(resumed.entries)} of {resumed.planned} are finished"
                + (f", {len(resumed.retried)} faults are tried again" if resumed.retried else "")
            )
            fail_on = command.fail_on or resumed.facts.get("gates", {}).get("fail_on")
            options = replace(
                options,
                resume=resumed,
                gates=with_fail_on(suite.spec.gates, fail_on),
                # What was demanded of the run's first conversations is demanded of the others.
                isolation=command.isolation or resumed.facts.get("isolation"),
            )
        async with (
            choose_players(suite, access, models) as players,
            interruptible() as interrupt,
        ):
            progress.say(players.notice)
            return await launch(suite, options, players, progress, interrupt)


def _suite_of(command: LaunchCommand, settings: Settings) -> Path:
    """The suite that is named, or that of the run that is gone on with, or that of a benchmark's tasks."""
    if command.data is not None:
        return _benchmark_suite(command, command.data, settings)
    if command.resume is None or command.suite != Path():
        return command.suite
    run = open_run(command.resume, command.out)
    where = read_facts(run).get("suite_at")
    if where is None:
        raise UsageError(f"run {run.id} does not say where its suite is; name the suite, too")
    return Path(where)


def _benchmark_suite(command: LaunchCommand, data: Path, settings: Settings) -> Path:
    from redteam_harness.cli.benching import BenchCommand, benchmark_suite

    bench = BenchCommand(
        data=data,
        parallel=command.parallel,
        server=command.server,
        allow_databases=command.allow_databases,
        world=command.suite,
        suite=None,
        agent="gold",
        json=command.json,
    )
    return benchmark_suite(bench, settings, command.out.parent / "benchmarks")
