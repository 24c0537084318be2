"""`redteam check`: reads a suite, builds its data as a launch does, and says what to correct and improve."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import anyio
from rich.console import Console
from rich.markup import escape

from redteam_forker import open_registry
from redteam_harness.checks import CHECKS, Finding, Subject
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.plan import plan_suite
from redteam_harness.launch.prepare import build_templates, draw
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.suite import load_suite
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_harness.cli.settings import Settings
    from redteam_harness.launch.suite import Suite

__all__ = ["run_check"]

EXIT_MISTAKES = 2
_STYLES = {"mistake": "red", "suggestion": "yellow", "note": "dim"}


def run_check(where: Path, dsn: str | None, settings: Settings, *, as_json: bool) -> int:
    """Check a suite, print what was found, and return the exit code.

    Raises:
        EnvironmentFault: the server cannot be used.
    """
    console = Console(highlight=False)
    findings: list[Finding]
    try:
        suite = load_suite(where)
        progress = Progress(console=console, suite=suite.name, live=False, quiet=as_json)
        findings = anyio.run(_check, suite, dsn, settings, progress)
    except UsageError as error:
        # What stops a launch stops the checks as well: nothing behind it can be looked at.
        findings = _mistakes(error)
    if as_json:
        sys.stdout.write(json_text({"findings": [finding.to_json() for finding in findings]}) + "\n")
    else:
        _print(console, findings)
    return EXIT_MISTAKES if any(finding.severity == "mistake" for finding in findings) else 0


async def _check(suite: Suite, dsn: str | None, settings: Settings, progress: Progress) -> list[Finding]:
    async with chosen_server(dsn, settings) as server, open_registry(server) as registry:
        today = datetime.now().astimezone().date()
        built = await build_templates(server, registry, suite, progress, today=today)
        cast = await draw(server, suite, built.templates)
        plan_suite(suite, cast)
        subject = Subject(suite=suite, server=server, templates=built.templates, cast=cast)
        return [finding for check in CHECKS for finding in await check(subject)]


def _mistakes(error: UsageError) -> list[Finding]:
    """A refusal as findings: one for each line, where each names its place."""
    lines = [re.match(r"(?P<place>.+?:\d+): (?P<message>.+)", line) for line in str(error).splitlines()]
    placed = [line for line in lines if line is not None]
    if len(placed) < len(lines):
        return [Finding(severity="mistake", place="", message=str(error))]
    return [Finding(severity="mistake", place=line["place"], message=line["message"]) for line in placed]


def _print(console: Console, findings: Sequence[Finding]) -> None:
    for finding in findings:
        place = f"{finding.place}: " if finding.place else ""
        style = _STYLES[finding.severity]
        console.print(f"[{style}]{finding.severity}[/]  {escape(place + finding.message)}", soft_wrap=True)
        for detail in finding.details:
            console.print(f"    {escape(detail)}", soft_wrap=True)
        if finding.advice:
            console.print(f"\n{escape(finding.advice)}\n", soft_wrap=True)
    counts = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in ("mistake", "suggestion")
    }
    told = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    console.print(", ".join(told) or "nothing to improve")
