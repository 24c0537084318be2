"""`redteam judge RUN`: judges a run again and prints what is different."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from redteam_harness.cli.rebuilding import rebuilt_end_states
from redteam_harness.cli.settings import read_settings
from redteam_harness.cli.suite_of_run import suite_of_run
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import open_run
from redteam_harness.evidence.storage import json_text
from redteam_harness.judging.compare import NEW, STATUSES
from redteam_harness.judging.rejudge import RejudgeOptions, rejudge, wants
from redteam_harness.launch.documents import read_document
from redteam_harness.launch.players import Access, ModelOptions, choose_judge
from redteam_harness.launch.progress import Progress
from redteam_rubrics import parse_rules
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from redteam_harness.cli.settings import Settings
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.judging.compare import Compared
    from redteam_harness.launch.suite import Suite
    from redteam_rubrics import Rule

__all__ = ["RejudgeCommand", "run_rejudge"]

EXIT_CHANGED = 1
EXIT_LEFT = 3
_STYLES = {"pass": "green", "fail": "red", "unclear": "yellow", NEW: "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgeCommand:
    """The arguments of `redteam judge`, as `redteam judge run --help` explains them."""

    run: str
    rubric: Path | None
    suite: Path | None
    only: tuple[str, ...]
    server: str | None
    offline: bool
    parallel: int
    out: Path
    json: bool


def run_rejudge(command: RejudgeCommand) -> int:
    """Judge a run again, print what changed, and return the exit code.

    Raises:
        RedteamError: nothing was judged, or the evidence could not be read or written.
    """
    run = open_run(command.run, command.out)
    facts = read_facts(run)
    suite = suite_of_run(command.suite, run, facts)
    rules = _rules_of(command, suite)
    console = Console(highlight=False)
    progress = Progress(console=console, suite=suite.name, live=False, quiet=command.json)
    compared = anyio.run(_rejudge, command, run, facts, suite, rules, progress, read_settings())
    if command.json:
        sys.stdout.write(json_text(compared.to_json()) + "\n")
    else:
        _print(console, compared)
    if compared.changes:
        return EXIT_CHANGED
    return EXIT_LEFT if compared.left else 0


async def _rejudge(
    command: RejudgeCommand,
    run: RunDirectory,
    facts: Mapping[str, Any],
    suite: Suite,
    rules: Mapping[str, Rule],
    progress: Progress,
    settings: Settings,
) -> Compared:
    access = Access(
        key=settings.api_key,
        base_url=settings.base_url,
        openai_key=settings.openai_key,
        openai_base_url=settings.openai_base_url,
    )
    options = RejudgeOptions(
        rules=rules, only=frozenset(command.only), offline=command.offline, parallel=command.parallel
    )
    models = ModelOptions(offline=command.offline, parallel=command.parallel)
    asks_database = any(
        rule.asks_database and wants(options.only, name, rule) for name, rule in rules.items()
    )
    async with (
        choose_judge(suite, access, models) as (calls, model),
        rebuilt_end_states(
            command.server, settings, suite, facts, progress, needed=asks_database
        ) as end_states,
    ):
        if any(rule.judge is not None for rule in rules.values()):
            progress.say(f"judge  {'nobody is asked' if model is None else model.name}")
        return await rejudge(
            run,
            suite,
            options,
            calls=calls,
            model=model,
            end_states=end_states,
            doing=progress.say,
        )


def _rules_of(command: RejudgeCommand, suite: Suite) -> Mapping[str, Rule]:
    if command.rubric is None:
        used = {name for case in suite.spec.cases for name in case.rubric}
        return {name: rule for name, rule in suite.rules.items() if name in used}
    document = read_document(command.rubric)
    try:
        return parse_rules(document.data)
    except ValidationError as error:
        raise UsageError(document.explain(error)) from None


def _print(console: Console, compared: Compared) -> None:
    console.print(
        f"rejudging {compared.rejudging} of run {compared.run}: {compared.conversations} conversations, "
        f"{'1 verdict is' if compared.changes == 1 else f'{compared.changes} verdicts are'} different",
        style="bold",
    )
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("rule", "severity", *STATUSES, "changed"):
        table.add_column(heading, justify="left" if heading == "rule" else "right")
    for rule in compared.rules:
        cells = [_moved(rule.before.get(status, 0), rule.after.get(status, 0)) for status in STATUSES]
        new = f" ({NEW})" if rule.before.get(NEW) else ""
        table.add_row(Text(rule.rule + new), str(rule.severity), *cells, str(len(rule.changed) or ""))
    console.print(table)
    for rule in compared.rules:
        for one in rule.changed:
            console.print(
                Text.assemble(
                    f"  {one.conversation} {rule.rule}  ",
                    (one.before, _STYLES[one.before]),
                    " → ",
                    (one.after, _STYLES[one.after]),
                    f": {one.reason}",
                ),
                soft_wrap=True,
            )
    for (name, why), conversations in compared.left.items():
        console.print(
            Text.assemble(("not rejudged", "yellow"), f"  {name}, in {_counted(conversations)}: {why}"),
            soft_wrap=True,
        )
    before, after = compared.outcomes
    moved = ", ".join(
        f"{outcome} {_moved(before.get(outcome, 0), after.get(outcome, 0))}"
        for outcome in ("pass", "fail", "judge-fault")
        if before.get(outcome) or after.get(outcome)
    )
    console.print(f"outcomes  {moved}")
    for spent in compared.usage:
        cost = "cost unknown" if spent.unpriced else f"${spent.usd:.4f}"
        console.print(
            f"usage  {spent.role} {spent.model}: {spent.calls} calls, {spent.usage.total:,} tokens, {cost}"
        )


def _moved(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _counted(conversations: Sequence[str]) -> str:
    return conversations[0] if len(conversations) == 1 else f"{len(conversations)} conversations"
