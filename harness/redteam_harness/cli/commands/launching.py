"""`redteam launch`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Collector, CollectorUrl, Out, SuitePath

__all__ = ["launch"]


class KeepChoice(StrEnum):
    """Which forks stay after their conversation."""

    failed = "failed"
    all = "all"
    none = "none"


class FailOnChoice(StrEnum):
    """Failures of which rules turn the exit code to 1."""

    sev1 = "sev1"
    sev2 = "sev2"
    any = "any"
    none = "none"


def launch(
    suite: SuitePath = Path(),
    parallel: Annotated[int, typer.Option(min=1, max=1000, help="Conversations at once.")] = 4,
    count: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Different conversations; default: the suite's.")
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help="Hold each so often, to see if it goes the same way; default: the suite's."
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="DSN", help="Fork on this server, or in docker:IMAGE; default: this user's embedded one."
        ),
    ] = None,
    allow_database: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A database of --server that forks could enter, and may; any other refuses the launch. "
            "May be repeated.",
        ),
    ] = None,
    collector: Collector = None,
    collector_url: CollectorUrl = None,
    out: Out = DEFAULT_OUT,
    keep: Annotated[
        KeepChoice, typer.Option(help="Forks that stay afterwards, for `redteam forks`.")
    ] = KeepChoice.none,
    offline: Annotated[
        bool, typer.Option("--offline", help="Scripted stand-ins, even where a model's key is set.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Go on with this run, or `latest`: what is finished stays, the rest is held."
        ),
    ] = None,
    retry_faults: Annotated[
        bool,
        typer.Option("--retry-faults", help="With --resume: hold conversations that faults ended again."),
    ] = False,
    max_usd: Annotated[
        float | None, typer.Option(min=0, metavar="USD", help="Start no conversation once models cost this.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Start none once models used so many tokens.")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="Start none after so many minutes.")
    ] = None,
    call_cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep models' answers here, and use those kept before."),
    ] = None,
    fail_on: Annotated[
        FailOnChoice | None,
        typer.Option(
            help="Exit with 1 if a rule of this severity failed (sev2: 1 or 2); default: the suite's, or any."
        ),
    ] = None,
    require_isolation: Annotated[
        bool,
        typer.Option(
            "--require-isolation",
            help="Launch nothing unless the server is ours, a fork's role enters its fork alone, and the "
            "egress guard is in the agent.",
        ),
    ] = False,
    allow_unguarded: Annotated[
        bool,
        typer.Option(
            "--allow-unguarded",
            help="With --require-isolation: do without the egress guard, as commands and services must.",
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="SUITE is a benchmark's world, such as seeds/retail, and this its data: its tasks are held.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")] = False,
) -> None:
    """Hold and judge the conversations of a suite, each on its own fork.

    Exit code: 0 every gate is green, 1 the agent broke one (any rule, unless the suite says more), 2 usage,
    3 faults of ours left planned conversations without a verdict, 130 interrupted.
    """
    from redteam_harness.cli.launching import LaunchCommand, run_launch
    from redteam_harness.models.budget import Limits

    raise typer.Exit(
        run_launch(
            LaunchCommand(
                suite=suite,
                parallel=parallel,
                count=count,
                repeat=repeat,
                server=server,
                allow_databases=tuple(allow_database or ()),
                collector=collector,
                collector_url=collector_url,
                out=out,
                keep=keep.value,
                offline=offline,
                json=json,
                resume=resume,
                retry_faults=retry_faults,
                limits=Limits(
                    usd=max_usd, tokens=max_tokens, seconds=None if max_minutes is None else max_minutes * 60
                ),
                call_cache=call_cache,
                data=data,
                fail_on=None if fail_on is None else fail_on.value,
                require_isolation=require_isolation,
                allow_unguarded=allow_unguarded,
            )
        )
    )
