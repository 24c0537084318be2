"""Commands that read the evidence of a run, or a kept fork."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Out, RunName

__all__ = ["diff", "show"]


def show(
    run: RunName,
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
