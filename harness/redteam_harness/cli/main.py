"""`redteam`: the command line, and the boundary at which errors become messages and exit codes.

Heavy imports (the forker, pglast, pydantic models) happen inside the commands, so that `--help` and a typo
answer at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from redteam_harness.cli import forks
from redteam_harness.cli.commands.bench import bench
from redteam_harness.cli.commands.comparing import compare, power
from redteam_harness.cli.commands.evidence import diff, show
from redteam_harness.cli.commands.exporting import export
from redteam_harness.cli.commands.importing import import_history
from redteam_harness.cli.commands.judging import rejudge
from redteam_harness.cli.commands.launching import launch
from redteam_harness.cli.commands.people import calibrate, label, spot_check
from redteam_harness.cli.commands.registers import boundary, fidelity
from redteam_harness.cli.commands.replaying import replay
from redteam_harness.cli.commands.reporting import report
from redteam_harness.cli.commands.scenarios import scenario
from redteam_harness.cli.commands.suites import check, doctor, init, personas, schema, trust
from redteam_harness.cli.groups import DefaultGroup
from redteam_sdk.errors import RedteamError, UsageError

__all__ = ["app", "main"]

EXIT_USAGE = 2
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="redteam",
    help="Runs LLM agents against a private Postgres fork per conversation, and judges what really changed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command()(launch)
app.command()(doctor)
app.command()(check)
app.command()(boundary)
app.command()(fidelity)
_personas = typer.Typer(cls=DefaultGroup, help="Who comes in a launch.")
_personas.command("show")(personas)
_personas.command("spot-check")(spot_check)
app.add_typer(_personas, name="personas")
app.command()(trust)
app.command()(init)
app.command()(schema)
_judge = typer.Typer(cls=DefaultGroup, help="Judge a run again; measure its judge against people.")
_judge.command("run")(rejudge)
_judge.command("calibrate")(calibrate)
app.add_typer(_judge, name="judge")
app.command()(label)
app.command()(report)
app.command()(show)
app.command()(diff)
app.command()(replay)
app.command()(compare)
app.command()(power)
app.command()(export)
app.command("import")(import_history)
app.command()(scenario)
app.add_typer(bench, name="bench")
app.add_typer(forks.app, name="forks")


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
