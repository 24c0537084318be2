"""`redteam export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Out, RunName

__all__ = ["export"]


def export(
    run: RunName,
    conversations: Annotated[
        list[str] | None, typer.Argument(metavar="[CONVERSATION]...", help="Default: all that are finished.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file of OTLP JSON, a line for each conversation; `-`: print it."
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An OTLP/HTTP receiver, for example http://localhost:4318."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Sent to the receiver with each request. May be repeated."),
    ] = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Write or send conversations as OpenTelemetry GenAI spans, for the tools that a team already has.

    A conversation is one trace: a span for each turn (invoke_agent), under it the agent's model calls (chat,
    with tokens) and tool calls (execute_tool, with arguments and results); outcome and verdicts are
    attributes. What was said and what the tools returned goes along, and with it the rows in them.

    Exit code: 0 done, 2 usage, 3 evidence that cannot be read, or a receiver that did not take it.
    """
    from redteam_harness.cli.exporting import run_export

    run_export(
        run,
        tuple(conversations or ()),
        out=out,
        output=output,
        endpoint=endpoint,
        headers=tuple(header or ()),
    )
