"""`redteam replay`: builds the replay from the command line and prints what it found."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
import typer
from rich.console import Console
from rich.text import Text

from redteam_harness.cli.rebuilding import rebuilt_end_states
from redteam_harness.cli.servers import chosen_server
from redteam_harness.cli.settings import read_settings
from redteam_harness.cli.suite_of_run import suite_of_run
from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import open_run
from redteam_harness.evidence.storage import json_text, write_json
from redteam_harness.judging.rejudge import RejudgeOptions, Rejudging
from redteam_harness.launch.interrupt import interruptible
from redteam_harness.launch.launch import LaunchOptions, launch
from redteam_harness.launch.players import Access, ModelOptions, choose_judge, choose_players
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.resume import resuming
from redteam_harness.launch.services import ServiceOptions, read_address
from redteam_harness.replaying.again import replaying
from redteam_harness.replaying.derail import CAUSES
from redteam_harness.replaying.rate import read_derails
from redteam_harness.replaying.stored import replay_stored
from redteam_harness.report.data import report_data
from redteam_harness.report.rendering import print_summary
from redteam_harness.report.thresholds import GatesSpec
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.cli.settings import Settings
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.launch import Launched
    from redteam_harness.launch.suite import Suite
    from redteam_harness.replaying.again import Replaying
    from redteam_harness.replaying.rate import Derails
    from redteam_harness.replaying.stored import Replayed

__all__ = ["ReplayCommand", "run_replay"]

_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCommand:
    """The arguments of `redteam replay`, as its `--help` explains them."""

    run: str
    level: int
    escalate: bool
    suite: Path | None
    parallel: int
    server: str | None
    allow_databases: tuple[str, ...]
    out: Path
    offline: bool
    resume: bool
    json: bool


def run_replay(command: ReplayCommand) -> int:
    """Replay, print, and return the exit code.

    Raises:
        RedteamError: nothing was replayed, or its evidence could not be written.
    """
    run = open_run(command.run, command.out)
    facts = read_facts(run)
    replay = _replay_of(command, run, facts)
    level = command.level if replay is None else replay.level
    if command.escalate and level != 2:
        raise UsageError("--escalate goes with --level 2: at the others nothing derails")
    suite = suite_of_run(command.suite, run, facts)
    console = Console(highlight=False)
    progress = Progress(
        console=console, suite=suite.name, live=console.is_terminal and not command.json, quiet=command.json
    )
    if replay is None:
        return _print_stored(command, console, anyio.run(_stored, command, run, suite, progress))
    replay.check_agent(suite)
    launched = anyio.run(_again, command, run, replay, suite, progress)
    derails = None
    if replay.level == 2:
        derails = read_derails(launched.run, replay.run.id, read_journal(launched.run.journal))
        write_json(launched.run.path / "replay.json", derails.to_json())
    _print_again(command, console, launched, derails)
    return launched.summary.exit_code


def _replay_of(command: ReplayCommand, run: RunDirectory, facts: Mapping[str, Any]) -> Replaying | None:
    """What levels 2 and 3 follow: the run, or what the replay that is gone on with followed."""
    if not command.resume:
        if command.level == 1:
            return None
        return replaying(run, level=_level(command.level), escalate=command.escalate)
    about = facts.get("replay")
    if about is None or about["level"] == 1:
        raise UsageError(
            f"run {run.id} is no replay of level 2 or 3, so there is none to go on with"
            + ("; `redteam launch --resume` goes on with a launch" if about is None else "")
        )
    base = open_run(about["at"] if Path(about["at"]).is_dir() else about["of"], run.path.parent)
    replay = replaying(base, level=_level(about["level"]), escalate=about["escalate"])
    if replay.evidence != about["evidence"]:
        raise UsageError(
            f"run {base.id} was added to since replay {run.id} of it began, so it cannot be gone on with; "
            "replay anew"
        )
    return replay


def _level(level: int) -> Literal[2, 3]:
    return cast("Literal[2, 3]", level)


async def _stored(command: ReplayCommand, run: RunDirectory, suite: Suite, progress: Progress) -> Replayed:
    settings, facts = read_settings(), read_facts(run)
    used = {name for case in suite.spec.cases for name in case.rubric}
    rules = {name: rule for name, rule in suite.rules.items() if name in used}
    asks_database = any(rule.asks_database for rule in rules.values())
    async with (
        choose_judge(suite, Access(), ModelOptions(offline=True, parallel=command.parallel)) as (calls, _),
        rebuilt_end_states(
            command.server, settings, suite, facts, progress, needed=asks_database
        ) as end_states,
    ):
        rejudging = Rejudging(
            run=run,
            suite=suite,
            options=RejudgeOptions(
                rules=rules,
                only=frozenset(),
                # Where stand-ins judged the launch, they do so again; elsewhere the stored answers stand.
                offline=facts["comparability"].get("judge") == "scripted",
                parallel=command.parallel,
            ),
            calls=calls,
            model=None,
            end_states=end_states,
            number=0,
            doing=progress.say,
        )
        return await replay_stored(run, suite, rejudging, command.out)


async def _again(
    command: ReplayCommand, run: RunDirectory, replay: Replaying, suite: Suite, progress: Progress
) -> Launched:
    settings = read_settings()
    models = ModelOptions(offline=command.offline, parallel=command.parallel)
    with ExitStack() as stack:
        resumed = stack.enter_context(resuming(run, retry_faults=False)) if command.resume else None
        gates = suite.spec.gates
        if resumed is not None:
            gates = GatesSpec.model_validate(resumed.facts.get("gates", {}))
            progress.say(
                f"resuming replay {run.id}: {len(resumed.entries)} of {resumed.planned} are finished"
            )
        options = LaunchOptions(
            parallel=command.parallel,
            count=replay.count,
            repeat=replay.repeat,
            server=partial(chosen_server, command.server, settings, allow_databases=command.allow_databases),
            out=command.out,
            keep="none",
            environment=settings.environment,
            service=ServiceOptions(signing_key=settings.signing_key, collector=read_address(None, None)),
            gates=gates,
            resume=resumed,
            replay=replay,
        )
        async with (
            choose_players(suite, _access(settings), models) as players,
            interruptible() as interrupt,
        ):
            progress.say(f"replay of {replay.run.id}, level {replay.level}; {players.notice}")
            return await launch(suite, options, players, progress, interrupt)


def _access(settings: Settings) -> Access:
    return Access(
        key=settings.api_key,
        base_url=settings.base_url,
        openai_key=settings.openai_key,
        openai_base_url=settings.openai_base_url,
    )


def _print_stored(command: ReplayCommand, console: Console, replayed: Replayed) -> int:
    if command.json:
        sys.stdout.write(json_text(report_data(replayed.summary)) + "\n")
        return replayed.summary.exit_code
    print_summary(console, replayed.run, replayed.summary)
    compared = replayed.compared
    console.print(
        f"\n{compared.changes} of the verdicts are others than in the launch"
        + ("; the same replay was there already, byte for byte" if replayed.existed else "")
    )
    for rule in compared.rules:
        for one in rule.changed:
            console.print(
                Text(f"  {one.conversation} {rule.rule}  {one.before} → {one.after}: {one.reason}"),
                soft_wrap=True,
            )
    for (name, why), conversations in compared.left.items():
        console.print(
            Text(f"  {name} was not judged anew in {len(conversations)} conversations: {why}"), soft_wrap=True
        )
    return replayed.summary.exit_code


def _print_again(
    command: ReplayCommand, console: Console, launched: Launched, derails: Derails | None
) -> None:
    summary = launched.summary
    if command.json:
        replay = None if derails is None else derails.to_json()
        sys.stdout.write(json_text({**report_data(summary), "replay": replay}) + "\n")
    else:
        print_summary(console, launched.run, summary)
        if derails is not None:
            _print_derails(console, derails)
    if launched.undropped:
        typer.echo(f"redteam: forks that could not be dropped: {' '.join(launched.undropped)}", err=True)


def _print_derails(console: Console, derails: Derails) -> None:
    facts = derails.to_json()
    count, followed = facts["derailed"], facts["followed"]
    console.print()
    if followed:
        low, high = 100 * facts["interval"]["low"], 100 * facts["interval"]["high"]
        console.print(
            f"derailed  {count} of {followed} ({100 * facts['share']:.0f} %, {low:.0f} to {high:.0f} %)",
            style="yellow" if count else "green",
        )
    for band in facts["bands"]:
        console.print(
            f"  measured for {band['change']}: {band['derailed']} of {band['followed']} ({band['measured']})",
            style="dim",
            soft_wrap=True,
        )
    for one in (*derails.derailed, *derails.unrecorded)[:_MAX_SHOWN]:
        after = "no verdict" if one.escalated is None else f"held freely: {one.escalated}"
        console.print(
            Text.assemble(
                (f"  {one.conversation}", "yellow"),
                f"  turn {one.turn}, {one.cause}: {one.message} ({after})",
            ),
            soft_wrap=True,
        )
    more = len(derails.derailed) + len(derails.unrecorded) - _MAX_SHOWN
    if more > 0:
        console.print(f"  ... and {more} more, in replay.json")
    for cause in sorted({one.cause for one in derails.derailed}):
        console.print(f"  {cause}: {CAUSES[cause]}", style="dim", soft_wrap=True)
    if any(one.escalated is None for one in derails.derailed):
        console.print("  --escalate holds them once more, freely; docs/replay.md says what a derail means")
