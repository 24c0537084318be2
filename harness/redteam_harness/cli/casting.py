"""`redteam personas`: who there is to play, who would play what in a launch, and what each tells when."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio
from rich.console import Console

from redteam_forker import open_registry
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.coverage import coverage
from redteam_harness.launch.plan import plan_suite
from redteam_harness.launch.prepare import build_templates, draw
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.suite import load_suite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_harness.cli.settings import Settings
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast

__all__ = ["PersonasCommand", "run_personas"]

_MAX_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonasCommand:
    """The arguments of `redteam personas`, as `redteam personas --help` explains them."""

    suite: Path
    count: int | None
    repeat: int | None
    draw: int | None
    server: str | None
    json: bool


def run_personas(command: PersonasCommand, settings: Settings) -> int:
    """Draw the cast, plan a launch, print both, and return the exit code.

    Raises:
        UsageError: something in the suite cannot work, with its place.
        EnvironmentFault: the server cannot be used.
    """
    console = Console(highlight=False)
    suite = load_suite(command.suite)
    progress = Progress(console=console, suite=suite.name, live=False, quiet=command.json)
    cast = anyio.run(_cast, suite, command.server, settings, progress)
    number = suite.spec.draw if command.draw is None else command.draw
    planned = plan_suite(suite, cast, count=command.count, draw=number, repeat=command.repeat)
    shown = coverage(suite, cast, planned, draw=number)
    if command.json:
        sys.stdout.write(json_text(shown) + "\n")
    else:
        _print(console, shown)
    return 0


async def _cast(suite: Suite, dsn: str | None, settings: Settings, progress: Progress) -> Cast:
    async with chosen_server(dsn, settings) as server, open_registry(server) as registry:
        today = datetime.now().astimezone().date()
        built = await build_templates(server, registry, suite, progress, today=today)
        return await draw(server, suite, built.templates)


def _print(console: Console, shown: dict[str, Any]) -> None:
    _say(
        console,
        f"\n{shown['suite']}  {_many(shown['rows'], 'persona')} by {shown['key']}, "
        f"{_many(len(shown['dispositions']), 'disposition')}; {_planned(shown)} of "
        f"at most {_many(shown['turns'], 'turn')}, draw {shown['draw']}",
    )
    _say(console, "\nWho can come to each case")
    _table(
        console,
        ["case", "rows", "planned", "row and disposition", "who"],
        [
            [
                case["id"],
                case["rows"],
                case["conversations"],
                f"{case['pairs']['planned']:,} of {case['pairs']['possible']:,}",
                " ".join((case["who"] or "everybody").split()),
            ]
            for case in shown["cases"]
        ],
    )
    _say(console, "\nHow they behave")
    for cases, mix in _mixes(shown):
        if len(cases) < len(shown["cases"]):
            _say(console, f"  in {', '.join(cases)}")
        _table(
            console,
            ["disposition", "weight", "share", "planned"],
            [[name, one["weight"], f"{one['share']:.0%}", one["conversations"]] for name, one in mix.items()],
        )
    if shown["stratify"]:
        _say(console, f"\nHow {shown['stratify']} is covered")
        for case in shown["cases"]:
            _table(
                console,
                [case["id"], "rows", "planned"],
                [
                    [one["value"] or "(none)", one["rows"], one["conversations"]]
                    for one in case["strata"][:_MAX_LINES]
                ],
            )
            _more(console, len(case["strata"]), "value")
    _say(console, "\nWhat they know, and when they tell it")
    rows: list[list[str]] = []
    for case in shown["cases"]:
        facts = [["", name, _rules(fact)] for name, fact in case["facts"].items()]
        facts = facts or [["", "nothing", ""]]
        facts[0][0] = case["id"]
        rows += facts
    _table(console, [], rows)
    _say(console, "\nThe plan")
    _table(
        console,
        ["", "case", "persona", "disposition", "claims to be", "lacks"],
        [
            [
                one["id"],
                one["case"],
                one["persona"],
                one["disposition"],
                one["claims"] or "-",
                ", ".join(one["without"]) or "-",
            ]
            for one in shown["plan"][:_MAX_LINES]
        ],
    )
    _more(console, len(shown["plan"]), "conversation")


def _planned(shown: dict[str, Any]) -> str:
    """`20 conversations`, or `60 conversations (20, each 3 times)`."""
    planned, repeat = shown["count"], shown["repeat"]
    return _many(planned, "conversation") + (
        f" ({planned // repeat:,}, each {repeat:,} times)" if repeat > 1 else ""
    )


def _mixes(shown: dict[str, Any]) -> list[tuple[list[str], dict[str, dict[str, Any]]]]:
    """Cases that share their weights, with the conversations of all of them."""
    mixes: dict[tuple[tuple[str, int], ...], tuple[list[str], dict[str, dict[str, Any]]]] = {}
    for case in shown["cases"]:
        weights = tuple((name, one["weight"]) for name, one in case["dispositions"].items())
        cases, mix = mixes.setdefault(weights, ([], {}))
        cases.append(case["id"])
        for name, one in case["dispositions"].items():
            before = mix.get(name, {"conversations": 0})["conversations"]
            mix[name] = {**one, "conversations": before + one["conversations"]}
    return list(mixes.values())


def _rules(fact: dict[str, Any]) -> str:
    """The rule of the suite, and who follows another one."""
    parts = [
        str(fact["reveal"]),
        *(
            f"{name}: {rule or 'does not know it'}"
            for name, rule in fact["by"].items()
            if rule != fact["reveal"]
        ),
    ]
    if fact["rows_without"]:
        parts.append(f"{_many(fact['rows_without'], 'row')} without it")
    return "; ".join(parts)


def _table(console: Console, titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns, figures to the right. Lines are not cut: a terminal wraps them, a pipe keeps them."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*([titles] if titles else []), *cells, strict=True)]
    figures = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    lines = [(list(titles), "dim")] if titles else []
    for line, style in (*lines, *((row, "") for row in cells)):
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, figures, strict=True)
        ]
        console.print(f"  {'  '.join(padded)}".rstrip(), style=style, soft_wrap=True, markup=False)


def _more(console: Console, there_are: int, what: str) -> None:
    if there_are > _MAX_LINES:
        _say(console, f"  ... and {_many(there_are - _MAX_LINES, f'more {what}')}; --json lists all")


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
