"""The report in GitHub-flavoured Markdown: for a CI job's summary or a pull request, within their bounds.

Whatever comes from a suite, a database or an agent stands in `<code>` with every character that could mean
something to Markdown, HTML or GitHub as a numeric reference: there it is neither markup nor a link, a
mention, a table's border or an image.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redteam_forker.changes.render import visible
from redteam_harness.report.attacks import attack_lines
from redteam_harness.report.failures import broken_rules, first_event
from redteam_harness.report.usage import usage_lines
from redteam_harness.report.words import (
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
    from collections.abc import Iterator, Sequence

    from redteam_harness.report.counts import Group
    from redteam_harness.report.summary import Finished, Summary
    from redteam_harness.report.terminal import Events

__all__ = ["SUMMARY_BYTES", "markdown"]

SUMMARY_BYTES = 400_000
"""The most bytes of UTF-8: a step's summary on GitHub takes 1 MiB, with room for a second run's."""

_MAX_ROWS = 8
_MAX_LINE = 400
_MAX_GROUPS = 60
_MAX_FAULTS = 20
_MAX_NAMES = 40
# ASCII punctuation that begins, ends or joins something in Markdown, HTML, GitHub's mentions, links or math.
_MEANING = re.compile(r"[!-+/:-@\[-`{-~]|(?<=www)\.")


def markdown(summary: Summary, events: Events, *, most_bytes: int = SUMMARY_BYTES) -> str:
    """The whole text, ending with a line feed; what does not fit is counted.

    Args:
        summary: the report's model.
        events: gives the trace of a conversation, to name the tool calls behind changed rows.
        most_bytes: the most that it may have, as UTF-8.
    """
    text = [*_head(summary), *_sections(summary)]
    failed = [one for one in summary.finished if one.outcome == "fail"]
    room = most_bytes - sum(len(block.encode()) + 1 for block in text) - _MAX_LINE
    left = len(failed)
    if failed:
        text.append(f"### {plural(len(failed), 'failed conversation')}\n")
    for one in failed:
        block = _failure(one, summary, events)
        room -= len(block.encode()) + 1
        if room < 0:
            text.append(f"… {plural(left, 'failed conversation')} more: report.html has all of them.\n")
            break
        text.append(block)
        left -= 1
    return "\n".join(text)


def _head(summary: Summary) -> Iterator[str]:
    """What a reader must know first; it is short whatever the run."""
    mark = {0: "✅", 1: "❌", 3: "⚠️"}.get(summary.exit_code, "⏹️")
    yield f"> {_code(summary.notice)}\n"
    yield f"## {mark} {_code(summary.suite)} · run {_code(summary.run)}\n"
    yield f"**{exit_line(summary)}**\n"
    rows = [
        ("severity 1", plural(summary.severity_1, "conversation")),
        ("passed", summary.rate.words()),
        *(("passed, repeated", line) for line in reliability_lines(summary)),
        ("planned", f"{summary.planned}, of which {len(summary.finished)} finished"),
    ]
    if summary.not_held:
        rows.append(("not held", _code(not_held_line(summary, _MAX_NAMES))))
    rows += [("attacks", _code(line)) for line in attack_lines(summary.attacks)[:_MAX_NAMES]]
    rows += [("judge", _code(line)) for line in judge_lines(summary)[:_MAX_NAMES]]
    rows += [("models", _code(line)) for line in usage_lines(summary.usage)[:_MAX_NAMES]]
    for name, lines in world_lines(summary):
        rows += [(name, _code(line)) for line in lines[:_MAX_NAMES]]
    yield _table(("", ""), rows)


def _sections(summary: Summary) -> Iterator[str]:
    reasons = reason_lines(summary)
    if reasons:
        yield "### Gates: red\n"
        yield _table(("reason", "what was found"), [(code, _code(said)) for code, said in reasons])
    else:
        yield f"### Gates: green\n\n{', '.join(map(_code, checked_gates(summary)))}\n"
    faults = fault_lines(summary, _MAX_FAULTS)
    if faults:
        yield "### Without a verdict\n"
        yield "\n".join(f"- {_code(line)}" for line in faults) + "\n"
    judged = [
        (
            str(one.severity),
            _code(one.rule),
            str(one.failed),
            str(one.judged),
            str(one.unclear),
            str(one.vacuous),
        )
        for one in summary.rules
    ]
    if judged:
        broken = sum(one.failed > 0 for one in summary.rules)
        yield _details(
            f"{plural(len(judged), 'rule')}, {broken} broken",
            _table(("severity", "rule", "failed", "judged", "unclear", "nothing to check"), judged),
            is_open=bool(broken),
        )
    for name, groups in summary.groups.items():
        if len(groups) > 1 and any(group.rate.judged > 1 for group in groups):
            yield _details(f"by {name}", _groups(groups))
    late = [f"{one.id}: {line}" for one in summary.finished for line in one.late]
    if late:
        more = f"\n\n… and {len(late) - _MAX_FAULTS} more" if len(late) > _MAX_FAULTS else ""
        lines = "\n".join(f"- {_code(line)}" for line in late[:_MAX_FAULTS])
        yield _details(f"{len(late)} still going on when their conversation was over", f"{lines}{more}\n")


def _groups(groups: Sequence[Group]) -> str:
    table = _table(
        ("", "passed"), [(_code(group.name), group.rate.words()) for group in groups[:_MAX_GROUPS]]
    )
    more = len(groups) - _MAX_GROUPS
    return f"{table}\n… and {more} more in report.html\n" if more > 0 else table


def _failure(one: Finished, summary: Summary, events: Events) -> str:
    who = f"{one.case} · persona {one.persona} · {one.disposition}"
    first = first_event(one)
    body = [f"{_code(first)}\n"] if first else []
    for broken in broken_rules(one, events(one.id)):
        follows = ", follows from the first" if broken.follows else ""
        why = f": {_code(broken.why)}" if broken.why else ""
        body.append(f"{_code(broken.rule)} (severity {broken.severity}{follows}){why}\n")
        body += [f"- {_code(line)}" for line in broken.lines[:_MAX_ROWS]]
        if len(broken.lines) > _MAX_ROWS:
            body.append(f"- … and {len(broken.lines) - _MAX_ROWS} more")
        body.append("")
    body.append(f"{_code(f'redteam show {summary.run} {one.id}')}\n")
    rules = ", ".join(str(verdict["rule"]) for verdict in one.broken)
    return _details(f"{_code(f'{one.id} {who}')} {_code(rules)}", "\n".join(body))


def _details(title: str, body: str, *, is_open: bool = False) -> str:
    """A section that opens at a click. The blank line after the summary lets Markdown begin again.

    Args:
        title: HTML.
        body: Markdown.
        is_open: whether it is open from the start.
    """
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{title}</summary>\n\n{body}\n</details>\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table of cells that are Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """The text as it is, on one line, meaning nothing; a long one is cut."""
    shown = " ".join(visible(text).split(" "))
    if len(shown) > _MAX_LINE:
        shown = f"{shown[: _MAX_LINE - 1]}…"
    return f"<code>{_MEANING.sub(lambda found: f'&#{ord(found.group())};', shown)}</code>" if shown else ""
