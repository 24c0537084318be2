"""Commands about a suite, and about what it would be launched on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import BuildServer, Collector, CollectorUrl, SuitePath

__all__ = ["check", "doctor", "init", "personas", "trust"]


def doctor(
    server: Annotated[
        str | None, typer.Option(metavar="DSN", help="This server; default: this user's embedded one.")
    ] = None,
    size: Annotated[int, typer.Option(min=1, max=4096, help="Size of the template to try, in MB.")] = 16,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what is here, what fits, and what a fork costs, measured now.

    Exit code: 0 fine, 3 the server cannot be used.
    """
    from redteam_harness.cli.doctoring import run_doctor
    from redteam_harness.cli.settings import read_settings

    raise typer.Exit(run_doctor(server, read_settings(), size_mb=size, as_json=json))


def check(
    suite: SuitePath = Path(),
    server: BuildServer = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, nothing else.")] = False,
) -> None:
    """Check a suite against its own data, and suggest column policies; no agent is started.

    Exit code: 0 nothing that a launch would stop at, 2 mistakes, 3 the server cannot be used.
    """
    from redteam_harness.cli.checking import run_check
    from redteam_harness.cli.settings import read_settings

    raise typer.Exit(run_check(suite, server, read_settings(), as_json=json))


def personas(
    suite: SuitePath = Path(),
    count: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Plan so many conversations; default: the suite's.")
    ] = None,
    draw: Annotated[
        int | None, typer.Option(help="Try another draw of personas; a launch takes the suite's `draw`.")
    ] = None,
    server: BuildServer = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print cast and plan as JSON, and nothing else.")
    ] = False,
) -> None:
    """Show who would come in a launch: rows, dispositions, what each persona knows and when it tells it.

    The plan is the one that `redteam launch SUITE` with the same --count holds. No agent is started and no
    fork is made. Facts are named; their values are not shown.

    Exit code: 0 shown, 2 usage, 3 the server cannot be used.
    """
    from redteam_harness.cli.casting import PersonasCommand, run_personas
    from redteam_harness.cli.settings import read_settings

    command = PersonasCommand(suite=suite, count=count, draw=draw, server=server, json=json)
    raise typer.Exit(run_personas(command, read_settings()))


def trust(
    suite: SuitePath = Path(),
    server: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Where launches fork; default: this user's embedded server."),
    ] = None,
    collector: Collector = None,
    collector_url: CollectorUrl = None,
) -> None:
    """Print what a deployed service must trust to be the suite's agent; give it as REDTEAM_TRUST.

    It holds public keys, the service's name, the fork server's host and the collector, and no secret. The
    signing key is made when there is none: REDTEAM_SIGNING_KEY, or signing-key.pem in the user's cache.
    """
    from redteam_harness.cli.trusting import print_trust

    print_trust(suite, server, collector=collector, collector_url=collector_url)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder to make.")],
) -> None:
    """Write a small suite that launches as it is, every key explained."""
    from redteam_harness.cli.starting import write_starter

    for path in write_starter(directory):
        typer.echo(f"wrote {path}")
    typer.echo(f"next: redteam launch {directory}")
