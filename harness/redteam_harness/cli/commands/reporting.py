"""`redteam report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Out, RunName

__all__ = ["report"]


class ReportFormat(StrEnum):
    """How a report is written."""

    terminal = "terminal"
    markdown = "markdown"
    html = "html"
    json = "json"
    junit = "junit"
    schema = "schema"


def report(
    run: RunName = "latest",
    format_: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format",
            help="Default: by the ending of --output, else terminal. schema: the JSON Schema of json.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to this file: .md, .html, .json, .xml, or plain text."),
    ] = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Show what a run found, from its evidence alone.

    A launch leaves the same in the run's folder; this makes any of it anew, also of a run that was
    interrupted or is still going on. Nothing in the run is written.

    redteam report latest --format markdown >> "$GITHUB_STEP_SUMMARY"

    redteam report latest --output report.html

    Exit code: 0 shown, whatever the run found; 2 usage; 3 the evidence is damaged, or FILE cannot be written.
    """
    from redteam_harness.cli.reporting import run_report

    run_report(run, out, None if format_ is None else format_.value, output)
