"""Commands about a suite, and about what it would be launched on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from redteam_harness.cli.commands.options import (
    AllowDatabase,
    BuildServer,
    Collector,
    CollectorUrl,
    SuitePath,
)

__all__ = ["check", "doctor", "init", "personas", "schema", "trust"]


def doctor(
    server: Annotated[
        str | None, typer.Option(metavar="DSN", help="This server; default: this user's embedded one.")
    ] = None,
    allow_database: AllowDatabase = None,
    size: Annotated[int, typer.Option(min=1, max=4096, help="Size of the template to try, in MB.")] = 16,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say what is here, what fits, and what a fork costs, measured now.

    Exit code: 0 fine, 3 the server cannot be used.
    """
    from redteam_harness.cli.doctoring import run_doctor
    from redteam_harness.cli.settings import read_settings

    allowed = tuple(allow_database or ())
    raise typer.Exit(run_doctor(server, read_settings(), allow_databases=allowed, size_mb=size, as_json=json))


def check(
    suite: SuitePath = Path(),
    server: BuildServer = None,
    allow_database: AllowDatabase = None,
    agent: Annotated[
        bool,
        typer.Option(
            "--agent/--no-agent",
            help="Start the suite's agent, as a launch does, for a first line each and to see its tools. "
            "A deployed service is never called.",
        ),
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, nothing else.")] = False,
) -> None:
    """Find mistakes in a suite before a launch: names, SQL, and rules that doing nothing satisfies.

    It builds the data, holds a few conversations with an agent that does nothing and some in which the
    person hangs up after one line, on forks that are dropped, and says what to correct. No model is called.

    Exit code: 0 no mistakes, 2 mistakes, 3 the server cannot be used, 130 interrupted.
    """
    from redteam_harness.cli.checking import CheckCommand, run_check
    from redteam_harness.cli.settings import read_settings

    command = CheckCommand(
        suite=suite,
        server=server,
        allow_databases=tuple(allow_database or ()),
        with_agent=agent,
        json=json,
    )
    raise typer.Exit(run_check(command, read_settings()))


def personas(
    suite: SuitePath = Path(),
    count: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Plan so many conversations; default: the suite's.")
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, max=100, help="Plan each so often; default: the suite's.")
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

    The plan is the one that `redteam launch SUITE` with the same --count and --repeat holds. No agent is
    started and no fork is made. Facts are named; their values are not shown.

    Exit code: 0 shown, 2 usage, 3 the server cannot be used.
    """
    from redteam_harness.cli.casting import PersonasCommand, run_personas
    from redteam_harness.cli.settings import read_settings

    command = PersonasCommand(suite=suite, count=count, repeat=repeat, draw=draw, server=server, json=json)
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
    seed: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Draft a suite for this: a SQL file, a dump, or a folder of them; repeat it, in order.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="AGENT",
            help="Yours: module:callable, an http(s) address, or a command line; default: a stand-in.",
        ),
    ] = None,
    people: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="The table of people, where the likeliest is not the right one."),
    ] = None,
    server: BuildServer = None,
) -> None:
    """Write a suite that launches as it is: a small one that explains every key, or one drafted for --seed.

    With --seed the data is built as a launch builds it, and read: who may call, what they own, what can be
    changed. What is written is a guess, and says where you must decide. Nothing that is there is overwritten.

    Exit code: 0 written, 2 usage or a seed that is refused, 3 the server cannot be used.
    """
    from redteam_harness.cli.settings import read_settings
    from redteam_harness.cli.starting import InitCommand, run_init

    command = InitCommand(
        directory=directory, seeds=tuple(seed or ()), agent=agent, people=people, server=server
    )
    for path in run_init(command, read_settings()):
        typer.echo(f"wrote {path}")
    typer.echo(f"next: redteam launch {directory}")


def schema(
    of: Annotated[Literal["rules", "suite"], typer.Argument(help="The file that it is for.")],
) -> None:
    """Print the JSON Schema of rules.yaml or suite.yaml, for an editor to complete keys and mark mistakes.

    An editor that knows yaml-language-server takes it from a first line in the file:

        # yaml-language-server: $schema=rules.schema.json
    """
    import json

    from redteam_harness.launch.schemas import schema_of

    typer.echo(json.dumps(schema_of(of), indent=2, ensure_ascii=False))
