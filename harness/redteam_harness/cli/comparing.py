"""`redteam compare` and `redteam power`: read the evidence, print what it says, and append to the record."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from redteam_forker.changes.render import visible
from redteam_harness.comparing.compare import Stated, compare
from redteam_harness.comparing.parity import check_parity, comparable_parts
from redteam_harness.comparing.record import append_comparison, append_decision, read_signer
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import open_run, read_conversation
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.suite import ComparisonSpec, load_suite
from redteam_harness.report.changed import changed_rows
from redteam_harness.report.stored import read_report
from redteam_rubrics.statistics.power import churn_of, pairs_needed
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redteam_harness.comparing.compare import Comparison, Discordant, Result
    from redteam_harness.evidence.run import RunDirectory

__all__ = ["CompareCommand", "PowerCommand", "run_compare", "run_power"]

_EXITS: Mapping[Result, int] = {"improved": 0, "unchanged": 0, "regressed": 1, "inconclusive": 3}
_STYLES: Mapping[Result, str] = {
    "improved": "bold green",
    "unchanged": "bold",
    "regressed": "bold red",
    "inconclusive": "bold yellow",
}
_MAX_SHOWN, _MAX_ROWS = 10, 6
_LIKELY_RATE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareCommand:
    """The arguments of `redteam compare`, as its `--help` explains them."""

    base: str
    candidate: str
    min_effect: float | None
    allow: tuple[str, ...]
    decide: str | None
    who: str | None
    because: str
    key: Path | None
    json: bool
    out: Path


def run_compare(command: CompareCommand) -> int:
    """Compare, print, append, and return the exit code.

    Raises:
        UsageError: there is no such run, the runs may not be compared, or a decision lacks its name.
        EnvironmentFault: evidence is damaged, or the record cannot be written.
    """
    signer = _decider(command)
    base, candidate = open_run(command.base, command.out), open_run(command.candidate, command.out)
    if base.path.resolve() == candidate.path.resolve():
        raise UsageError(f"{command.base} and {command.candidate} are one run; name two")
    facts = {run.id: read_facts(run) for run in (base, candidate)}
    parts = comparable_parts(facts[base.id], facts[candidate.id])
    allowed = check_parity(*parts, allowed=command.allow)
    stated = _stated(command, facts[base.id], facts[candidate.id])
    found = compare(read_report(base), read_report(candidate), stated, allowed=allowed)
    entry = append_comparison(
        candidate,
        found.to_json(),
        keys={run.id: facts[run.id]["comparability"]["key"] for run in (base, candidate)},
    )
    if command.decide is not None:
        assert command.who is not None
        append_decision(
            candidate, entry, decision=command.decide, who=command.who, reason=command.because, signer=signer
        )
    if command.json:
        sys.stdout.write(json_text(found.to_json()) + "\n")
    else:
        _print(Console(highlight=False), found, base, candidate)
        if command.decide is not None:
            signed = "signed" if signer is not None else "not signed; --key FILE would"
            Console().print(
                f"decided: {command.decide}, by {escape(str(command.who))} ({signed})", highlight=False
            )
    return _EXITS[found.result]


def _decider(command: CompareCommand) -> Any:
    if command.decide is None:
        if command.who is not None or command.key is not None or command.because:
            raise UsageError("--who, --because and --key go with --decide ship|hold")
        return None
    if not (command.who or "").strip() or not command.because.strip():
        raise UsageError("--decide needs --who NAME and --because TEXT: somebody answers for it")
    return None if command.key is None else read_signer(command.key)


def _stated(command: CompareCommand, base: Mapping[str, Any], candidate: Mapping[str, Any]) -> Stated:
    """What counts: what the suite said when the candidate ran, unless the command line says otherwise."""
    spec = ComparisonSpec.model_validate(candidate.get("comparison", {}))
    if command.min_effect is not None:
        if not 0 < command.min_effect < 1:
            raise UsageError(f"--min-effect is a share between 0 and 1, not {command.min_effect:g}")
        return Stated(min_effect=command.min_effect, alpha=spec.alpha, before=False)
    # Said before both: a suite that was eased between the runs did not say it before.
    before = base.get("comparison", {}) == candidate.get("comparison", {})
    return Stated(min_effect=spec.min_effect, alpha=spec.alpha, before=before)


def _print(console: Console, found: Comparison, base: RunDirectory, candidate: RunDirectory) -> None:
    console.print(f"[{_STYLES[found.result]}]{found.result}[/]  {escape('; '.join(found.reasons))}")
    when = "" if found.stated.before else " (said after the runs)"
    console.print(
        f"stated: {100 * found.stated.min_effect:g} points matter, alpha {found.stated.alpha:g}{when}",
        style="dim",
    )
    for part in found.allowed:
        console.print(f"the runs differ in `{escape(part)}`, which was allowed", style="yellow")
    console.print()
    _print_figures(console, found)
    if found.excluded:
        named = ", ".join(f"{count} {name}" for name, count in sorted(found.excluded.items()))
        console.print(f"in no pair  {escape(named)}")
    for title, failures in (("new", found.severity_1), ("gone", found.healed)):
        for failure in failures[:_MAX_SHOWN]:
            style = "red" if title == "new" else "green"
            console.print(
                f"[{style}]severity 1, {title}[/]  {escape(failure['conversation'])}  "
                f"{escape(failure['rule'])}  {escape(visible(failure['text']))}",
                soft_wrap=True,
            )
    for change in found.rules:
        console.print(
            f"rule  {escape(change.rule)} (severity {change.severity}): {change.pairs.regressed} got worse, "
            f"{change.pairs.improved} better, of {change.pairs.n}; p = {change.p_adjusted:.3g} by Holm",
            soft_wrap=True,
        )
    for one in found.discordant[:_MAX_SHOWN]:
        _print_pair(console, one, base, candidate)
    if len(found.discordant) > _MAX_SHOWN:
        console.print(f"... and {len(found.discordant) - _MAX_SHOWN} pairs more that differ (--json has all)")
    console.print(f"\nrecorded in {escape(str(candidate.path / 'comparisons.jsonl'))}", style="dim")


def _print_figures(console: Console, found: Comparison) -> None:
    pairs = found.pairs
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(f"{pairs.n} pairs")
    table.add_column(f"{found.candidate} passed", justify="right")
    table.add_column(f"{found.candidate} failed", justify="right")
    table.add_row(f"{found.base} passed", str(pairs.both), str(pairs.regressed))
    table.add_row(f"{found.base} failed", str(pairs.improved), str(pairs.neither))
    console.print(table)
    if found.difference is None or found.test is None:
        return
    level = 100 * (1 - found.stated.alpha)
    low, high = 100 * found.difference.low, 100 * found.difference.high
    console.print(
        f"change  {100 * found.difference.difference:+.1f} points "
        f"({level:g} % interval {low:+.1f} to {high:+.1f}), McNemar p = {found.test.p:.3g}"
    )
    if found.bootstrap is not None:
        console.print(
            f"check   {100 * found.bootstrap.low:+.1f} to {100 * found.bootstrap.high:+.1f} by drawing "
            f"{found.clusters} personas anew"
        )


def _print_pair(console: Console, one: Discordant, base: RunDirectory, candidate: RunDirectory) -> None:
    mark = "[green]better[/]" if one.better else "[red]worse [/]"
    rules = ", ".join(one.rules) or "no rule was named"
    console.print(
        f"\n{mark}  {escape(one.case)} · persona {escape(one.persona)} · {escape(one.disposition)}  "
        f"{escape(rules)}",
        soft_wrap=True,
    )
    if one.text:
        console.print(f"    {escape(visible(one.text))}", soft_wrap=True)
    for run, name in ((base, one.base), (candidate, one.candidate)):
        stored = read_conversation(run, name)
        rows = changed_rows(stored.changes, stored.events)
        console.print(f"    {run.id} {name}  {'nothing changed' if not rows else ''}", style="dim")
        for row in rows[:_MAX_ROWS]:
            console.print(f"      {escape(row)}", soft_wrap=True)
        if len(rows) > _MAX_ROWS:
            console.print(f"      ... and {len(rows) - _MAX_ROWS} rows more", style="dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCommand:
    """The arguments of `redteam power`, as its `--help` explains them."""

    suite: Path
    effect: float | None
    base_rate: float | None
    of: str | None
    power: float
    json: bool
    out: Path


def run_power(command: PowerCommand) -> None:
    """Print how many pairs are needed.

    Raises:
        UsageError: the suite or the run is not there, or the numbers are no shares.
    """
    suite = load_suite(command.suite)
    spec = suite.spec.comparison
    effect = spec.min_effect if command.effect is None else command.effect
    if not 0 < abs(effect) < 1:
        raise UsageError(f"--effect is a share between -1 and 1 and not 0, not {effect:g}")
    base_rate, source = _base_rate(command)
    rows = []
    for change in (-abs(effect), abs(effect)):
        if 0 <= base_rate + change <= 1:
            churn = churn_of(base_rate, change)
            rows.append((change, pairs_needed(churn, alpha=spec.alpha, power=command.power)))
    held = suite.spec.count * suite.spec.repeat
    if command.json:
        facts = {
            "base_rate": base_rate,
            "alpha": spec.alpha,
            "power": command.power,
            "conversations_of_a_launch": held,
            "needed": [{"effect": change, "conversations": n} for change, n in rows],
        }
        sys.stdout.write(json_text(facts) + "\n")
        return
    console = Console(highlight=False)
    console.print(
        f"a pass rate of {100 * base_rate:g} % now ({source}), alpha {spec.alpha:g}, power {command.power:g}"
    )
    for change, n in rows:
        needed = "more than 100,000" if n is None else f"{n:,}"
        console.print(f"  {100 * change:+g} points: {needed} conversations, in each run")
    enough = [n for _, n in rows if n is not None]
    verdict = "is enough" if enough and max(enough) <= held else "is not enough"
    console.print(f"a launch of this suite holds {held:,} ({verdict}); --count and --repeat hold more")


def _base_rate(command: PowerCommand) -> tuple[float, str]:
    if command.base_rate is not None:
        return command.base_rate, "as given"
    if command.of is None:
        return _LIKELY_RATE, "assumed; --of RUN takes a run's"
    run = open_run(command.of, command.out)
    rate = read_report(run).rate
    if not rate.judged:
        raise UsageError(f"run {run.id} has no verdict, so it has no pass rate; give --base-rate")
    return rate.passed / rate.judged, f"{rate.passed} of {rate.judged} in run {run.id}"
