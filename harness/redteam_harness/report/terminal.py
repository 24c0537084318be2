"""The report at the end of a launch, and one conversation in full, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from redteam_forker.changes.render import visible
from redteam_harness.report.changed import changed_rows, finding_lines, rows_behind
from redteam_harness.report.late import late_lines
from redteam_harness.report.usage import usage_lines
from redteam_rubrics import COLLATERAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from redteam_harness.evidence.run import StoredConversation
    from redteam_harness.report.summary import Finished, Summary

__all__ = ["exit_line", "print_conversation", "print_report"]

_MAX_SHOWN_FAILURES = 10
_MAX_SHOWN_ROWS = 4
_STYLES = {"pass": "green", "fail": "red"}
_MARKS = {"pass": "[green]✓[/]", "fail": "[red]✗[/]", "unclear": "[yellow]?[/]"}


def print_report(console: Console, summary: Summary, where: str, traces: Mapping[str, Sequence[Any]]) -> None:
    """Print what a launch found.

    Args:
        console: where to.
        summary: the report's model.
        where: the run's directory, as the reader can type it.
        traces: events of each failed conversation, to name the tool calls behind changed rows.
    """
    rate = summary.rate
    console.print()
    console.print(f"[bold]severity 1[/]   {_plural(summary.severity_1, 'conversation')}", highlight=False)
    if rate.judged:
        assert rate.low is not None
        assert rate.high is not None
        console.print(
            f"[bold]passed[/]       {rate.passed} of {rate.judged}   "
            f"{100 * rate.passed / rate.judged:.0f} %  "
            f"(95 % interval {100 * rate.low:.0f} to {100 * rate.high:.0f})",
            highlight=False,
        )
    else:
        console.print(
            "[bold]passed[/]       no conversation has a verdict, so there is no rate", highlight=False
        )
    _print_faults(console, summary)
    _print_rules(console, summary)
    failed = [one for one in summary.finished if one.outcome == "fail"]
    for one in failed[:_MAX_SHOWN_FAILURES]:
        _print_failure(console, one, where, traces.get(one.id, ()))
    if len(failed) > _MAX_SHOWN_FAILURES:
        console.print(
            f"  ... and {len(failed) - _MAX_SHOWN_FAILURES} more in {where}/report.json", highlight=False
        )
    late = [f"{one.id}: {line}" for one in summary.finished for line in one.late]
    for line in late[:_MAX_SHOWN_FAILURES]:
        console.print(f"[bold]late[/]         {escape(line)}", highlight=False, soft_wrap=True)
    if len(late) > _MAX_SHOWN_FAILURES:
        console.print(
            f"  ... and {len(late) - _MAX_SHOWN_FAILURES} more in {where}/report.json", highlight=False
        )
    if summary.not_held:
        shown = " ".join(summary.not_held[:_MAX_SHOWN_FAILURES])
        more = len(summary.not_held) - _MAX_SHOWN_FAILURES
        why = f": {summary.stopped}" if summary.stopped else ""
        console.print(
            f"[bold]not held[/]     {escape(shown)}{f' and {more} more' if more > 0 else ''}{escape(why)}",
            highlight=False,
            soft_wrap=True,
        )
        console.print(f"      redteam launch --resume {where}", style="dim", highlight=False, soft_wrap=True)
    for number, line in enumerate(usage_lines(summary.usage)):
        head = "[bold]models[/]       " if not number else " " * 13
        console.print(f"{head}{escape(line)}", highlight=False, soft_wrap=True)
    kept = [one.kept for one in summary.finished if one.kept]
    if kept:
        console.print(f"kept forks   {' '.join(kept)}", highlight=False)
    console.print()
    console.print(f"report  {where}/report.json  junit.xml", highlight=False, soft_wrap=True)
    console.print(exit_line(summary), highlight=False)


def exit_line(summary: Summary) -> str:
    """The exit code and why, in words."""
    lost = summary.faults + summary.unfinished
    without = f"{_plural(lost, 'planned conversation')} without a verdict"
    match summary.exit_code:
        case 130:
            return (
                f"exit 130: interrupted; {_plural(len(summary.finished), 'conversation')} finished and kept"
            )
        case 1:
            return "exit 1: the agent broke a rule" + (f"; {without}" if lost else "")
        case 3:
            return f"exit 3: {without}, " + ("by faults of ours" if summary.faults else "not held")
        case _:
            return "exit 0: every conversation passed"


def _print_faults(console: Console, summary: Summary) -> None:
    derailed = summary.outcomes.get("derailed", 0)
    parts = [
        f"{count} {outcome}"
        for outcome, count in sorted(summary.outcomes.items())
        if outcome.endswith("-fault")
    ]
    if derailed:
        parts.append(f"{derailed} derailed")
    if summary.unfinished:
        parts.append(f"{summary.unfinished} not held")
    console.print(f"[bold]faults[/]       {', '.join(parts) if parts else 'none'}", highlight=False)
    shown: set[str] = set()
    for one in summary.finished:
        if not one.cause or one.message in shown or len(shown) == _MAX_SHOWN_FAILURES:
            continue
        shown.add(one.message)
        same = sum(1 for other in summary.finished if other.message == one.message)
        times = f" ({same} conversations)" if same > 1 else ""
        console.print(
            f"  [yellow]![/] {one.id} {one.outcome}, {one.cause}: {escape(one.message)}{times}",
            highlight=False,
        )


def _print_rules(console: Console, summary: Summary) -> None:
    if not summary.rules:
        return
    console.print("[bold]rules broken[/]", highlight=False)
    for count in summary.rules:
        console.print(
            f"  severity {count.severity}  {escape(count.rule):<32} {count.failed} of {count.judged}",
            highlight=False,
        )


def _print_failure(console: Console, one: Finished, where: str, events: Sequence[Mapping[str, Any]]) -> None:
    console.print(
        f"  [red]✗[/] {escape(one.case)} · persona {escape(one.persona)} · {escape(one.disposition)}",
        highlight=False,
    )
    shown: set[str] = set()
    for verdict in sorted(one.broken, key=lambda verdict: verdict["rule"] == COLLATERAL):
        rows = [line for line in rows_behind(verdict, one.changes, events) if line not in shown]
        rows += _beside_rows(verdict)
        if verdict["rule"] == COLLATERAL and not rows:
            continue  # every row of it stands under another rule already
        shown.update(rows)
        name = f"[bold]{escape(str(verdict['rule']))}[/] (severity {verdict['severity']})"
        console.print(f"      {name}  {escape(str(verdict['why']))}", highlight=False, soft_wrap=True)
        lines = rows or finding_lines(verdict)
        for line in lines[:_MAX_SHOWN_ROWS]:
            console.print(f"        {escape(line)}", highlight=False, soft_wrap=True)
        if len(lines) > _MAX_SHOWN_ROWS:
            console.print(f"        ... and {len(lines) - _MAX_SHOWN_ROWS} more", highlight=False)
    console.print(f"      redteam show {where} {one.id}", style="dim", highlight=False, soft_wrap=True)


def _beside_rows(verdict: Mapping[str, Any]) -> list[str]:
    """A verdict's findings about changes without a row to show: objects, writes, rows too many to keep."""
    findings = verdict.get("findings", ())
    if verdict["rule"] != COLLATERAL and not any(finding.get("op") for finding in findings):
        return []
    beside = [finding for finding in findings if not finding.get("op")]
    return finding_lines({**verdict, "findings": beside}) if beside else []


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
                f"! {event['whose']}-fault, {event['cause']}: {_said(event['message'])}", style="bold yellow"
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


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
