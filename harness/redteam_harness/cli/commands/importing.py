"""`redteam import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, BuildServer, Out

__all__ = ["import_history"]

FormatChoice = Literal["auto", "otlp", "jsonl", "openai", "anthropic"]


def import_history(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Real conversations.")],
    suite: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Whose data, agent and rules they are replayed with."),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        FormatChoice,
        typer.Option(help="otlp: OpenTelemetry GenAI spans. jsonl: our own. The others: message lists."),
    ] = "auto",
    persona: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="The row of the cast it belongs to; default: the one that it names."
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="CASE", help="The suite's case whose rules and setup it gets; default: the only one."
        ),
    ] = None,
    replace: Annotated[
        Path | None,
        typer.Option(metavar="MAPPING", help="Personal data and what goes in its place: YAML, or CSV."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Names the import; default: the file's name.")
    ] = None,
    skip_degraded: Annotated[
        bool, typer.Option("--skip-degraded", help="Import those that are whole, and leave the others.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read the file and say what is in it; write nothing.")
    ] = False,
    server: BuildServer = None,
    json: Annotated[
        bool, typer.Option("--json", help="Say what was done as JSON, and nothing else.")
    ] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Make cases of real conversations: their lines, tool calls and answers, in their order.

    A conversation is imported whole or not at all: where an answer is missing, spans overlap, or something
    was dropped or cut, it is refused with what is missing. With --suite each becomes a case of a suite file
    beside suite.yaml, for the row that it belongs to, and all of them a run for `redteam replay --level 2`.
    Without, they are written as JSON lines into ./imported.

    Exit code: 0 imported, 1 refused: not whole, 2 usage, or a row or case to be named, 3 the server failed.
    """
    from redteam_harness.cli.importing import ImportCommand, run_import
    from redteam_harness.cli.settings import read_settings

    raise typer.Exit(
        run_import(
            ImportCommand(
                file=file,
                suite=suite,
                format=None if format == "auto" else format,
                persona=persona,
                like=like,
                replace=replace,
                name=name,
                skip_degraded=skip_degraded,
                check=check,
                server=server,
                json=json,
                out=out,
            ),
            read_settings(),
        )
    )
