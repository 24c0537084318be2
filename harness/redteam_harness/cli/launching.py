"""`redteam launch`: builds the launch from the command line and prints what it found."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import typer
from rich.console import Console

from redteam_harness.cli.servers import chosen_server
from redteam_harness.cli.settings import read_settings
from redteam_harness.evidence.run import read_conversation
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.interrupt import interruptible
from redteam_harness.launch.launch import LaunchOptions, launch
from redteam_harness.launch.players import choose_players
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.suite import load_suite
from redteam_harness.report.data import report_data
from redteam_harness.report.terminal import print_report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_harness.cli.settings import Settings
    from redteam_harness.launch.launch import Launched
    from redteam_harness.launch.stage import Keep
    from redteam_harness.launch.suite import Suite

__all__ = ["LaunchCommand", "run_launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """The arguments of `redteam launch`, as `redteam launch --help` explains them."""

    suite: Path
    parallel: int
    count: int | None
    server: str | None
    out: Path
    keep: Keep
    offline: bool
    json: bool


def run_launch(command: LaunchCommand) -> int:
    """Launch, print, and return the exit code.

    Raises:
        RedteamError: nothing was launched, or its evidence could not be written.
    """
    suite = load_suite(command.suite)
    settings = read_settings()
    console = Console(highlight=False)
    progress = Progress(
        console=console, suite=suite.name, live=console.is_terminal and not command.json, quiet=command.json
    )
    launched = anyio.run(_launch, command, suite, settings, progress)
    summary = launched.summary
    if command.json:
        sys.stdout.write(json_text(report_data(summary)) + "\n")
    else:
        print_report(console, summary, str(launched.run.path), _traces(launched))
    if launched.reached:
        typer.echo(
            f"redteam: forks' roles may also connect to {', '.join(launched.reached)} on this server: "
            "PUBLIC or the application's role may; docs/security.md says what that means",
            err=True,
        )
    if launched.undropped:
        typer.echo(f"redteam: forks that could not be dropped: {' '.join(launched.undropped)}", err=True)
    return summary.exit_code


async def _launch(command: LaunchCommand, suite: Suite, settings: Settings, progress: Progress) -> Launched:
    options = LaunchOptions(
        parallel=command.parallel,
        count=command.count,
        server=partial(chosen_server, command.server, settings),
        out=command.out,
        keep=command.keep,
        environment=settings.environment,
    )
    async with (
        choose_players(
            suite, key=settings.api_key, base_url=settings.base_url, offline=command.offline
        ) as players,
        interruptible() as interrupt,
    ):
        progress.say(players.notice)
        return await launch(suite, options, players, progress, interrupt)


def _traces(launched: Launched) -> dict[str, Sequence[Any]]:
    return {
        one.id: read_conversation(launched.run, one.id).events
        for one in launched.summary.finished
        if one.outcome == "fail"
    }
