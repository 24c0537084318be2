"""Every rendering of a report, by the name of its format, and the files that a launch leaves."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from redteam_harness.evidence.reading import read_trace
from redteam_harness.evidence.storage import json_text, write_text
from redteam_harness.report.data import report_data
from redteam_harness.report.html import html_report
from redteam_harness.report.junit import junit
from redteam_harness.report.markdown import markdown
from redteam_harness.report.stored import stored_finished
from redteam_harness.report.terminal import print_report

if TYPE_CHECKING:
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.report.summary import Summary
    from redteam_harness.report.terminal import Events

__all__ = ["FILES", "Format", "print_summary", "rendered", "write_reports"]

Format = Literal["terminal", "markdown", "html", "json", "junit"]

FILES: dict[Format, str] = {
    "json": "report.json",
    "junit": "junit.xml",
    "markdown": "report.md",
    "html": "report.html",
}
"""What a launch writes into the run's directory, by format."""

_WIDTH = 120


def rendered(format_: Format, run: RunDirectory, summary: Summary) -> str:
    """A report as text; of one summary and one run's evidence always the same.

    Raises:
        EnvironmentFault: evidence that is shown cannot be read.
    """
    match format_:
        case "json":
            return json_text(report_data(summary), indent=1) + "\n"
        case "junit":
            return junit(summary)
        case "markdown":
            return markdown(summary, _events(run))
        case "html":
            return html_report(report_data(summary), stored_finished(run, summary))
        case "terminal":
            file = io.StringIO()
            console = Console(file=file, highlight=False, no_color=True, width=_WIDTH)
            print_summary(console, run, summary)
            return file.getvalue()


def print_summary(console: Console, run: RunDirectory, summary: Summary) -> None:
    """Print a report to a terminal.

    Raises:
        EnvironmentFault: evidence that is shown cannot be read.
    """
    print_report(console, summary, str(run.path), _events(run))


def write_reports(run: RunDirectory, summary: Summary) -> None:
    """Write every file of `FILES`.

    Raises:
        EvidenceFault: one could not be written.
        EnvironmentFault: evidence that is shown cannot be read.
    """
    for format_, name in FILES.items():
        write_text(run.path / name, rendered(format_, run, summary))


def _events(run: RunDirectory) -> Events:
    return lambda conversation: read_trace(run, conversation)
