"""The report at the end of a launch, and one conversation in full, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from redteam_forker.changes.render import visible
from redteam_harness.report.attacks import attack_lines
from redteam_harness.report.attribution import attribute
from redteam_harness.report.changed import changed_rows, finding_lines
from redteam_harness.report.failures import broken_rules, first_event
from redteam_harness.report.late import late_lines
from redteam_harness.report.usage import usage_lines
from redteam_harness.report.words import (
    blame,
    checked_gates,
    exit_line,
    fault_lines,
    judge_lines,
    not_held_line,
    plural,
    reason_lines,
    reliability_lines,
    world_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from redteam_harness.evidence.run import StoredConversation
    from redteam_harness.report.summary import Finished, Summary

__all__ = ["Events", "print_conversation", "print_report"]

Events: TypeAlias = "Callable[[str], Sequence[Mapping[str, Any]]]"
"""Gives the trace of a conversation by its id."""

_MAX_SHOWN_FAILURES = 10
_MAX_SHOWN_ROWS = 4
_HEAD = 13
_STYLES = {"pass": "green", "fail": "red"}
_MARKS = {"pass": "[green]✓[/]", "fail": "[red]✗[/]", "unclear": "[yellow]?[/]"}


def print_report(console: Console, summary: Summary, where: str, events: Events) -> None:
    """Print what a launch found.

    Args:
        console: where to.
        summary: the report's model.
        where: the run's directory, as the reader can type it.
        events: gives the trace of a conversation, to name the tool calls behind changed rows.
    """
    say = _Lines(console)
    say.blank()
    say.fact("severity 1", plural(summary.severity_1, "conversation"))
    say.fact("passed", summary.rate.words())
    for line in reliability_lines(summary):
        say.fact("", line)
    _print_faults(console, summary)
    _print_rules(say, summary)
    failed = [one for one in summary.finished if one.outcome == "fail"]
    for one in failed[:_MAX_SHOWN_FAILURES]:
        _print_failure(say, one, where, events(one.id))
    if len(failed) > _MAX_SHOWN_FAILURES:
        say.line(f"  ... and {len(failed) - _MAX_SHOWN_FAILURES} more in {where}/report.html")
    late = [f"{one.id}: {line}" for one in summary.finished for line in one.late]
    for line in late[:_MAX_SHOWN_FAILURES]:
        say.fact("late", line)
    if len(late) > _MAX_SHOWN_FAILURES:
        say.line(f"  ... and {len(late) - _MAX_SHOWN_FAILURES} more in {where}/report.html")
    if summary.not_held:
        say.fact("not held", not_held_line(summary, _MAX_SHOWN_FAILURES))
        say.line(f"      redteam launch --resume {where}", style="dim")
    say.facts("attacks", attack_lines(summary.attacks))
    say.facts("judge", judge_lines(summary))
    say.facts("models", usage_lines(summary.usage))
    for name, lines in world_lines(summary):
        say.facts(name, lines)
    kept = [one.kept for one in summary.finished if one.kept]
    if kept:
        say.line(f"kept forks   {' '.join(kept)}")
    _print_gates(say, summary)
    say.blank()
    say.line(f"report  {where}/report.html  report.md  report.json  junit.xml")
    say.line(exit_line(summary))


class _Lines:
    """Lines of a report, with nothing of the data's obeyed or cut by the console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def blank(self) -> None:
        self._console.print()

    def line(self, text: str, *, style: str | None = None) -> None:
        self._console.print(escape(visible(text)), style=style, highlight=False, soft_wrap=True)

    def marked(self, markup: str) -> None:
        """A line with markup; what is data in it is escaped by the caller."""
        self._console.print(markup, highlight=False, soft_wrap=True)

    def fact(self, name: str, text: str) -> None:
        """A line that begins with its name, or goes on with the one before."""
        head = f"[bold]{name}[/]{' ' * (_HEAD - len(name))}"
        self.marked(f"{head}{escape(visible(text))}")

    def facts(self, name: str, lines: Sequence[str]) -> None:
        for number, line in enumerate(lines):
            self.fact("" if number else name, line)


def _print_faults(console: Console, summary: Summary) -> None:
    say = _Lines(console)
    parts = [
        f"{count} {outcome}"
        for outcome, count in sorted(summary.outcomes.items())
        if outcome.endswith("-fault")
    ]
    if derailed := summary.outcomes.get("derailed", 0):
        parts.append(f"{derailed} derailed")
    if summary.unfinished:
        parts.append(f"{summary.unfinished} not held")
    say.fact("faults", ", ".join(parts) or "none")
    for line in fault_lines(summary, _MAX_SHOWN_FAILURES):
        say.marked(f"  [yellow]![/] {escape(visible(line))}")


def _print_rules(say: _Lines, summary: Summary) -> None:
    broken = [count for count in summary.rules if count.failed]
    if not broken:
        return
    say.marked("[bold]rules broken[/]")
    for count in broken:
        unclear = f"   {count.unclear} unclear" if count.unclear else ""
        say.line(f"  severity {count.severity}  {count.rule:<32} {count.failed} of {count.judged}{unclear}")


def _print_failure(say: _Lines, one: Finished, where: str, events: Sequence[Mapping[str, Any]]) -> None:
    who = f"{one.case} · persona {one.persona} · {one.disposition}"
    say.marked(f"  [red]✗[/] {escape(visible(who))}")
    rules, first = broken_rules(one, events), first_event(one)
    if first is not None and len(rules) > 1:
        say.line(f"      first: {first}")
    for broken in rules:
        name = escape(visible(broken.rule))
        follows = ", follows from the first" if broken.follows else ""
        say.marked(
            f"      [bold]{name}[/] (severity {broken.severity}{follows})  {escape(visible(broken.why))}"
        )
        for line in broken.lines[:_MAX_SHOWN_ROWS]:
            say.line(f"        {line}")
        if len(broken.lines) > _MAX_SHOWN_ROWS:
            say.line(f"        ... and {len(broken.lines) - _MAX_SHOWN_ROWS} more")
    say.line(f"      redteam show {where} {one.id}", style="dim")


def _print_gates(say: _Lines, summary: Summary) -> None:
    reasons = reason_lines(summary)
    if not reasons:
        say.fact("gates", f"green: {', '.join(checked_gates(summary))}")
        return
    say.fact("gates", "red")
    width = max(len(code) for code, _ in reasons)
    for code, message in reasons:
        say.line(f"  {code:<{width}}  {message}")


def print_conversation(console: Console, stored: StoredConversation, notice: str) -> None:
    """Print one conversation: transcript and tool calls, what changed, and the verdicts."""
    about = stored.about
    console.print(escape(notice), style="dim", highlight=False)
    console.print(
        f"[bold]{escape(str(about['id']))}[/]  {escape(str(about['case']))} · "
        f"persona {escape(str(about['persona']))} · {escape(str(about['disposition']))}",
        highlight=False,
    )
    console.print(f"demand: {escape(str(about['demand']))}", highlight=False)
    sides = Table(show_edge=False, expand=True, pad_edge=False)
    sides.add_column("transcript", ratio=3, overflow="fold")
    sides.add_column("what changed", ratio=2, overflow="fold")
    sides.add_row(_transcript(stored.events), _changes(stored))
    console.print(sides)
    first = attribute(stored.verdicts, stored.events, stored.changes, str(about["persona"]))
    if first is not None:
        console.print(f"first: {escape(visible(first.text))}", highlight=False)
    for verdict in sorted(stored.verdicts, key=lambda verdict: (verdict["severity"], verdict["rule"])):
        mark = _MARKS.get(str(verdict["status"]), "?")
        console.print(
            f"{mark} severity {verdict['severity']}  {escape(str(verdict['rule']))}  "
            f"{escape(str(verdict['status']))}{'  (nothing to check)' if verdict.get('vacuous') else ''}",
            highlight=False,
        )
        if verdict["status"] != "pass":
            for line in finding_lines(verdict):
                console.print(f"    {escape(line)}", highlight=False)


def _changes(stored: StoredConversation) -> Text:
    if stored.changes is None:
        return Text("no change set was taken", style="dim")
    rows = changed_rows(stored.changes, stored.events)
    return Text("\n".join(rows)) if rows else Text("nothing changed", style="dim")


def _transcript(events: Sequence[Mapping[str, Any]]) -> Text:
    text = Text()
    for event in events:
        line = _event_line(event)
        if line is not None:
            text.append(f"{event.get('turn', 0):>2} ", style="dim")
            text.append_text(line)
            text.append("\n")
    text.rstrip()
    return text


def _event_line(event: Mapping[str, Any]) -> Text | None:
    match event["kind"]:
        case "user":
            return Text.assemble(("user   ", "bold cyan"), _said(event["text"]))
        case "agent":
            return Text.assemble(("agent  ", "bold magenta"), _said(event["text"]))
        case "tool_call":
            arguments = ", ".join(f"{name}={value!r}" for name, value in event["arguments"].items())
            return Text(visible(f"  → {event['name']}({arguments})"), style="blue")
        case "tool_result":
            return Text(f"  ← {_short(event.get('value'))}", style="dim")
        case "tool_error":
            return Text(f"  ← {visible(event['type'])}: {_said(event['message'])}", style="yellow")
        case "external":
            arguments = ", ".join(f"{name}={value!r}" for name, value in event["arguments"].items())
            return Text(visible(f"  ⇢ mocked: {event['name']}({arguments})"), style="blue")
        case "swap":
            named = f"{event.get('from') or 'another agent'} → {event['to']}"
            return Text(visible(f"  ⇄ handed over: {named}"), style="blue")
        case "reveal":
            return Text(visible(f"  (may now say: {event['fact']})"), style="dim")
        case "fault":
            return Text(
                f"! {blame(event['whose'])}, {event['cause']}: {_said(event['message'])}", style="bold yellow"
            )
        case "printed":
            return Text(f"  printed: {_short(event['text'])}", style="dim")
        case "late":
            return Text("\n   ".join(f"  late: {line}" for line in late_lines([event])), style="yellow")
        case "retry" | "end":
            return Text(f"({event['kind']}: {event.get('reason') or event.get('cause')})", style="dim")
        case _:
            return None


def _said(text: Any) -> str:
    """What somebody said, on its own lines; what a terminal would obey is shown as signs."""
    return "\n".join(visible(line) for line in str(text).split("\n"))


def _short(value: Any) -> str:
    text = visible(" ".join(str(value).split()))
    return text if len(text) <= 200 else f"{text[:199]}…"
