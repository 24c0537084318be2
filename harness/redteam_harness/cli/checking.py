"""`redteam check`: examines a suite as `checks.examine` does, and says what to correct and improve."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redteam_harness.checks import CheckOptions, Examined, examine, refusals, satisfied
from redteam_harness.checks.idling import POLITE
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.interrupt import Interrupted, interruptible
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.suite import load_suite
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_harness.checks import Finding, Satisfied
    from redteam_harness.cli.settings import Settings
    from redteam_harness.launch.suite import Suite

__all__ = ["CheckCommand", "run_check", "show_findings"]

EXIT_MISTAKES = 2
_STYLES = {"mistake": "red", "suggestion": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand:
    """The arguments of `redteam check`, as `redteam check --help` explains them."""

    suite: Path
    server: str | None
    allow_databases: tuple[str, ...]
    with_agent: bool
    json: bool


def run_check(command: CheckCommand, settings: Settings) -> int:
    """Check a suite, print what was found, and return the exit code.

    Raises:
        EnvironmentFault: the server cannot be used.
        Interrupted: a person stopped it.
    """
    console = Console(highlight=False)
    table: Sequence[Satisfied] = ()
    try:
        suite = load_suite(command.suite)
        progress = Progress(console=console, suite=suite.name, live=False, quiet=command.json)
        examined = anyio.run(_check, command, suite, settings, progress)
        table = satisfied(suite, examined.held)
    except* UsageError as group:
        # What stops a launch stops the checks as well: nothing behind it can be looked at.
        examined = Examined(findings=tuple(refusals(group)))
    if command.json:
        found = {
            "findings": [finding.to_json() for finding in examined.findings],
            "idle": [row.to_json() for row in table],
        }
        sys.stdout.write(json_text(found) + "\n")
    else:
        show_findings(console, examined.findings, table)
    if examined.undropped:
        typer.echo(f"redteam: forks that could not be dropped: {' '.join(examined.undropped)}", err=True)
    return EXIT_MISTAKES if any(finding.severity == "mistake" for finding in examined.findings) else 0


async def _check(command: CheckCommand, suite: Suite, settings: Settings, progress: Progress) -> Examined:
    options = CheckOptions(
        server=partial(chosen_server, command.server, settings, allow_databases=command.allow_databases),
        environment=settings.environment,
        with_agent=command.with_agent,
    )
    examined: Examined | None = None
    async with interruptible() as interrupt:
        with interrupt.scope():
            examined = await examine(suite, options, progress)
    if examined is None:
        raise Interrupted("interrupted; no fork is left, and nothing was decided")
    return examined


def show_findings(console: Console, findings: Sequence[Finding], table: Sequence[Satisfied]) -> None:
    """Print what was found, what doing nothing satisfies, and in the last line how much is to be done."""
    advised: dict[str, str] = {}
    for finding in findings:
        place = f"{finding.place}: " if finding.place else ""
        style = _STYLES[finding.severity]
        console.print(f"[{style}]{finding.severity}[/]  {escape(place + finding.message)}", soft_wrap=True)
        for detail in finding.details:
            console.print(f"    {escape(detail)}", soft_wrap=True)
        if "\n" in finding.advice or finding.advice.startswith(" "):  # lines to paste
            console.print(f"\n{escape(finding.advice)}\n", soft_wrap=True)
        elif finding.advice:
            # Forty findings are read more easily if each piece of advice is there once.
            first = advised.setdefault(finding.advice, finding.about)
            same = first and first != finding.about
            advice = f"as for {first} above" if same else finding.advice
            console.print(f"    [bold]→[/] {escape(advice)}", soft_wrap=True)
    if table:
        _print_table(console, table)
    counts = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in ("mistake", "suggestion")
    }
    told = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    console.print(", ".join(told) or "nothing to improve")


def _print_table(console: Console, table: Sequence[Satisfied]) -> None:
    """Which rules an agent satisfies that does nothing: what forbids should, what demands must not."""
    shown = Table.grid(padding=(0, 2, 0, 0))
    for name in ("case", "how", "rules"):
        shown.add_column(name, no_wrap=name != "rules", overflow="fold")
    for row in table:
        if row.kind != "does-nothing":
            continue
        parts = {
            "satisfied": row.satisfied,
            "vacuously": row.vacuous,
            "fails on": row.broken,
            "now so, now so": row.mixed,
            "undecided": row.unclear,
            "not asked": row.not_asked,
        }
        case = row.case
        for how, rules in parts.items():
            if rules:
                shown.add_row(f"  {escape(case)}", f"[dim]{how}[/]", escape(", ".join(rules)))
                case = ""
    console.print(f"\nWhat an agent satisfies that only says {POLITE!r}")
    console.print(shown)
    hung_up = [row for row in table if row.kind == "hangs-up"]
    if not hung_up:
        return
    passing = [row.case for row in hung_up if row.passed]
    whom = next((f" on {row.by}" for row in hung_up if row.by != "nothing"), "")
    which = f": {', '.join(passing)}" if passing else ""
    counted = f"{len(passing)} of {len(hung_up)} cases pass{which}"
    console.print(escape(f"When the person hangs up{whom} after one line, {counted}\n"), soft_wrap=True)
