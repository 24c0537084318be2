"""`redteam report`: any rendering of a run's report, made from its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.console import Console

from redteam_harness.cli.output import write_output
from redteam_harness.evidence.run import open_run
from redteam_harness.evidence.storage import json_text
from redteam_harness.report.rendering import print_summary, rendered
from redteam_harness.report.schema import report_schema
from redteam_harness.report.stored import read_report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redteam_harness.report.rendering import Format

__all__ = ["run_report"]

_BY_ENDING: Mapping[str, Format] = {
    ".md": "markdown",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".xml": "junit",
}


def run_report(run: str, base: Path, format_: Format | Literal["schema"] | None, output: Path | None) -> None:
    """Print or write a report.

    Args:
        run: the run's folder, its name under `base`, or `latest`.
        base: where runs are kept.
        format_: how; None: by the ending of `output`, else for a terminal.
        output: the file; None: standard output.

    Raises:
        UsageError: there is no such run, or it never began.
        EnvironmentFault: its evidence is damaged, or the file cannot be written.
    """
    if format_ == "schema":
        write_output(json_text(report_schema(), indent=1) + "\n", output)
        return
    directory = open_run(run, base)
    chosen = format_ or ("terminal" if output is None else _BY_ENDING.get(output.suffix.lower(), "terminal"))
    summary = read_report(directory)
    if chosen == "terminal" and output is None:
        console = Console(highlight=False)
        console.print(summary.notice, style="dim", markup=False, highlight=False, soft_wrap=True)
        print_summary(console, directory, summary)
        return
    write_output(rendered(chosen, directory, summary), output)
