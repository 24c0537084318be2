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
    out: Out = DEFAULT_OUT,
    keep: Annotated[
        KeepChoice, typer.Option(help="Forks that stay afterwards, for `redteam forks`.")
    ] = KeepChoice.none,
    offline: Annotated[
        bool, typer.Option("--offline", help="Scripted stand-ins, even where a model's key is set.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")] = False,
) -> None:
    """Hold and judge the conversations of a suite, each on its own fork.

    Exit code: 0 all passed, 1 the agent broke a rule, 2 usage, 3 faults of ours left planned conversations
    without a verdict, 130 interrupted.
    """
    from redteam_harness.cli.launching import LaunchCommand, run_launch

    raise typer.Exit(
        run_launch(
            LaunchCommand(
                suite=suite,
                parallel=parallel,
                count=count,
                server=server,
                out=out,
                keep=keep.value,
                offline=offline,
                json=json,
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
