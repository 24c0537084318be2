"""`redteam fidelity` and `redteam boundary`: ask the agent's code, and print what is known of its mocks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from rich.console import Console
from rich.markup import escape

from redteam_forker.changes.render import visible
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.interrupt import Interrupted, interruptible
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.suite import load_suite
from redteam_harness.registers.asking import AskOptions, ask_code
from redteam_harness.registers.boundary import boundary_of
from redteam_harness.registers.mocks import FIDELITY_FILE, load_fidelity, table_of, unknown_tools
from redteam_harness.registers.words import draft_row, reconciled, touched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_harness.agents.code import AgentCode
    from redteam_harness.cli.settings import Settings
    from redteam_harness.launch.suite import Suite
    from redteam_harness.registers.boundary import Boundary
    from redteam_harness.registers.mocks import FidelityRow, MockEntry, Unknown

__all__ = ["RegisterCommand", "run_boundary", "run_fidelity"]

EXIT_MISTAKES = 2
_SIDES = {"fork": "green", "mock": "cyan", "refused": "yellow", "real": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterCommand:
    """The arguments of both commands, as their --help explains them."""

    suite: Path
    server: str | None
    json: bool


def run_fidelity(command: RegisterCommand, settings: Settings) -> int:
    """Print what is known of each mock; returns the exit code.

    Raises:
        UsageError: the suite, its register or its agent cannot be used.
        EnvironmentFault: a server was needed and failed.
    """
    suite = load_suite(command.suite)
    fidelity = load_fidelity(suite.folder, suite.rules)
    code = _asked(command, suite, settings)
    entries = table_of(fidelity, code, suite.folder)
    unknown = [] if code is None else unknown_tools(fidelity, code)
    if command.json:
        found = {
            "known": code is not None,
            "tools": [entry.to_json() for entry in entries],
            "unknown": [{"tool": one.tool, "place": one.place, "message": one.message} for one in unknown],
        }
        sys.stdout.write(json_text(found) + "\n")
    else:
        _print_fidelity(_Printer(), entries, unknown, suite, known=code is not None)
    return EXIT_MISTAKES if unknown else 0


def run_boundary(command: RegisterCommand, settings: Settings) -> int:
    """Print which tools run on the fork and which are mocked; returns the exit code.

    Raises:
        UsageError: the suite or its agent cannot be used.
        EnvironmentFault: a server was needed and failed.
    """
    suite = load_suite(command.suite)
    boundary = boundary_of(suite, _asked(command, suite, settings))
    if command.json:
        sys.stdout.write(json_text(boundary.to_json()) + "\n")
    else:
        _print_boundary(_Printer(), boundary)
    return 0


def _asked(command: RegisterCommand, suite: Suite, settings: Settings) -> AgentCode | None:
    # What is in the way is told by the error; standard output holds the table alone.
    progress = Progress(console=Console(stderr=True), suite=suite.name, live=False, quiet=True)
    return anyio.run(_ask, command, suite, settings, progress)


async def _ask(
    command: RegisterCommand, suite: Suite, settings: Settings, progress: Progress
) -> AgentCode | None:
    options = AskOptions(
        server=partial(chosen_server, command.server, settings), environment=settings.environment
    )
    asked = False
    code: AgentCode | None = None
    async with interruptible() as interrupt:
        with interrupt.scope():
            code = await ask_code(suite, options, progress)
            asked = True
    if not asked:
        raise Interrupted("interrupted; nothing is left")
    return code


class _Printer:
    """Lines with nothing of the data's obeyed or cut by the console."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)

    def line(self, text: str, *, style: str | None = None) -> None:
        self.console.print(escape(visible(text)), style=style, soft_wrap=True)

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        for name, text in pairs:
            self.console.print(f"    [dim]{name:<15}[/]{escape(visible(text))}", soft_wrap=True)

    def block(self, text: str) -> None:
        for line in text.splitlines():
            self.line(f"    {line}", style="dim")


def _print_fidelity(
    say: _Printer, entries: Sequence[MockEntry], unknown: Sequence[Unknown], suite: Suite, *, known: bool
) -> None:
    for one in unknown:
        say.line(f"mistake  {one.place}: {one.message}", style="red")
    if not known:
        say.line(
            f"agent {suite.spec.agent.name} is no Python code that is started here, so its external tools "
            "are not known; those that are called show in a launch's report",
            style="yellow",
        )
    for entry in entries:
        _print_entry(say, entry, known=known)
    looked = sum(bool(entry.rows) for entry in entries)
    mocked = [entry for entry in entries if entry.mocked is not False]
    stale = sum(old for entry in entries for _, old in entry.rows)
    nobody = sum(not entry.rows for entry in mocked)
    parts = [
        f"{len(entries)} external {'tool' if len(entries) == 1 else 'tools'}",
        f"{looked} looked at" if looked else "",
        f"{nobody} at which nobody looked" if nobody else "",
        f"{stale} stale {'row' if stale == 1 else 'rows'}" if stale else "",
    ]
    say.line(", ".join(part for part in parts if part))


def _print_entry(say: _Printer, entry: MockEntry, *, known: bool) -> None:
    place = f"  {entry.place}" if entry.place else ""
    if entry.mocked is False:
        say.line(f"{entry.tool}{place}  no mock: a call is refused, and voids its conversation")
        return
    if entry.rows:
        say.line(f"{entry.tool}{place}")
    else:
        say.line(f"{entry.tool}{place}  nobody looked", style="yellow")
        if entry.said:
            say.facts([("the code says", entry.said)])
        say.line(f"  → a row for {FIDELITY_FILE}, under `mocks:`; fill it in:")
        say.block(draft_row(entry))
    for row, stale in entry.rows:
        _print_row(say, row, entry, stale=stale)
    if known and entry.rows and any(row.code is None for row, _ in entry.rows):
        if entry.code is not None:
            say.line(f"    → pin what was reviewed, so that a change shows: code: '{entry.code}'")
        else:
            say.line("    its source cannot be read here, so no row can be pinned to it")


def _print_row(say: _Printer, row: FidelityRow, entry: MockEntry, *, stale: bool) -> None:
    say.facts(
        [
            ("gap", f"{row.gap} ({row.direction})"),
            ("real", row.real),
            ("mock", row.mock),
            ("touches", touched(row)),
            ("reviewed", f"{row.reviewed.date} by {row.reviewed.by}"),
            ("reconciliation", reconciled(row)),
        ]
    )
    if stale:
        now = entry.code or "a source that cannot be read"
        say.line(f"    stale: tool or mock changed since the review; it was {row.code}, and is {now}")


def _columns(boundary: Boundary) -> tuple[list[str], list[str]]:
    return [row.name for row in boundary.rows], [row.place for row in boundary.rows]


def _print_boundary(say: _Printer, boundary: Boundary) -> None:
    if boundary.unknown:
        say.line(boundary.unknown, style="yellow")
    if not boundary.rows:
        return
    # Lines rather than a table, which would cut names and places on a narrow terminal.
    names, places = (max(len(visible(text)) for text in column) for column in _columns(boundary))
    whys: dict[str, str] = {}
    for row in boundary.rows:
        through = f" (leads to {', '.join(row.through)})" if row.through else ""
        name, place = visible(row.name).ljust(names), visible(row.place).ljust(places)
        say.console.print(
            f"[{_SIDES[row.side]}]{row.side:<7}[/]  {escape(name)}  [dim]{escape(place)}[/]  "
            f"{escape(visible(f'{row.says}{through}'))}".rstrip(),
            soft_wrap=True,
        )
        whys.setdefault(row.side, row.why)
    for side, why in whys.items():
        say.console.print(f"\n[{_SIDES[side]}]{side}[/]  {escape(why)}", soft_wrap=True)
