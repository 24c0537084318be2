"""`redteam`: the command line, and the boundary at which errors become messages and exit codes.

Heavy imports (the forker, pglast, pydantic models) happen inside the commands, so that `--help` and a typo
answer at once.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli import forks
from redteam_sdk.errors import RedteamError, UsageError

__all__ = ["app", "main"]

EXIT_USAGE = 2
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130
DEFAULT_OUT = Path(".redteam/runs")

app = typer.Typer(
    name="redteam",
    help="Runs LLM agents against a private Postgres fork per conversation, and judges what really changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are kept.")]
Collector = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where a deployed service (`agent: {url: ...}`) reports to; default: 127.0.0.1, a free port.",
    ),
]
CollectorUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="How the service reaches it, if not by http://HOST:PORT."),
]


app.add_typer(forks.app, name="forks")


class KeepChoice(StrEnum):
    """Which forks stay after their conversation."""

    failed = "failed"
    all = "all"
    none = "none"


def _version(asked: bool) -> None:
    if asked:
        from redteam_sdk import __version__

        typer.echo(f"redteam {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Runs LLM agents against a private Postgres fork per conversation, and judges what really changed."""


@app.command()
def launch(
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE", help="A folder with suite.yaml; default: this one.")
    ] = Path(),
    parallel: Annotated[int, typer.Option(min=1, max=1000, help="Conversations at once.")] = 4,
    count: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Conversations in all; default: the suite's.")
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
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")] = False,
) -> None:
    """Hold and judge the conversations of a suite, each on its own fork.

    Exit code: 0 all passed, 1 the agent broke a rule, 2 usage, 3 faults of ours left planned conversations
    without a verdict, 130 interrupted.
    """
    from redteam_harness.cli.launching import LaunchCommand, run_launch
    from redteam_harness.models.budget import Limits

    raise typer.Exit(
        run_launch(
            LaunchCommand(
                suite=suite,
                parallel=parallel,
                count=count,
                server=server,
                allow_databases=tuple(allow_database or ()),
                collector=collector,
                collector_url=collector_url,
                out=out,
                keep=keep.value,
                offline=offline,
                json=json,
                resume=resume,
                limits=Limits(
                    usd=max_usd, tokens=max_tokens, seconds=None if max_minutes is None else max_minutes * 60
                ),
                call_cache=call_cache,
            )
        )
    )


@app.command()
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


@app.command()
def check(
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE", help="A folder with suite.yaml; default: this one.")
    ] = Path(),
    server: Annotated[
        str | None,
        typer.Option(
            metavar="DSN", help="Build on this server, or in docker:IMAGE; default: this user's embedded one."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, nothing else.")] = False,
) -> None:
    """Check a suite against its own data, and suggest column policies; no agent is started.

    Exit code: 0 nothing that a launch would stop at, 2 mistakes, 3 the server cannot be used.
    """
    from redteam_harness.cli.checking import run_check
    from redteam_harness.cli.settings import read_settings

    raise typer.Exit(run_check(suite, server, read_settings(), as_json=json))


@app.command()
def personas(
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE", help="A folder with suite.yaml; default: this one.")
    ] = Path(),
    count: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Plan so many conversations; default: the suite's.")
    ] = None,
    draw: Annotated[
        int | None, typer.Option(help="Try another draw of personas; a launch takes the suite's `draw`.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="DSN", help="Build on this server, or in docker:IMAGE; default: this user's embedded one."
        ),
    ] = None,
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


@app.command()
def trust(
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE", help="A folder with suite.yaml; default: this one.")
    ] = Path(),
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


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder to make.")],
) -> None:
    """Write a small suite that launches as it is, every key explained."""
    from redteam_harness.cli.starting import write_starter

    for path in write_starter(directory):
        typer.echo(f"wrote {path}")
    typer.echo(f"next: redteam launch {directory}")


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, its name, or `latest`.")],
    conversation: Annotated[str, typer.Argument(metavar="CONVERSATION", help="For example c008.")],
    out: Out = DEFAULT_OUT,
) -> None:
    """Show one conversation: transcript, what changed, verdicts."""
    from redteam_harness.cli.showing import show_conversation

    show_conversation(run, conversation, out)


class FormatChoice(StrEnum):
    """How a change set is written."""

    terminal = "terminal"
    markdown = "markdown"
    html = "html"
    json = "json"


@app.command()
def diff(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FORK|RUN",
            help="A kept fork's name or label; or with CONVERSATION, a run as for `show`.",
        ),
    ],
    conversation: Annotated[
        str | None, typer.Argument(metavar="CONVERSATION", help="For example c008: read its evidence.")
    ] = None,
    call: Annotated[
        str | None,
        typer.Option(metavar="ID|NAME", help="Only what this tool call did, or all calls of this tool."),
    ] = None,
    table: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this table; with its schema if not `public`.")
    ] = None,
    format_: Annotated[
        FormatChoice | None,
        typer.Option("--format", help="Default: by the ending of --output, else terminal. json is exact."),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Every row, column and write, and long values whole."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to this file: .md, .html, .json, or plain text."),
    ] = None,
    out: Out = DEFAULT_OUT,
    server: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="The fork's server; default: this user's embedded one."),
    ] = None,
) -> None:
    """Show what changed, old beside new, and which tool call wrote it.

    Compares a kept fork with the data that it began with, or reads what a run stored of a conversation:

    redteam diff latest c008

    redteam diff latest c008 --call reschedule

    redteam diff rt_zbqa_7ykmq3wd_x2k5c6ptodn7aelu --output changes.html

    Exit code: 0 shown, whether or not anything changed; 2 usage; 3 a database or file could not be read or
    written.
    """
    from redteam_harness.cli.diffing import DiffCommand, run_diff

    run_diff(
        DiffCommand(
            target=target,
            conversation=conversation,
            call=call,
            table=table,
            format=None if format_ is None else format_.value,
            all=all_,
            output=output,
            out=out,
            server=server,
        )
    )


def main() -> None:
    """The entry point of `redteam`; turns every error into one message and an exit code."""
    from redteam_harness.cli.logs import configure_logs

    configure_logs()
    try:
        app()
    except RedteamError as error:
        _fail(error)
    except BaseExceptionGroup as group:
        ours = _leaves(group)
        if any(not isinstance(leaf, RedteamError) for leaf in ours):
            raise
        _fail(ours[0])
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _fail(error: BaseException) -> None:
    from redteam_harness.launch.interrupt import Interrupted

    typer.echo(f"redteam: {error}", err=True)
    if isinstance(error, Interrupted):
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAULT)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves
