"""The summary: what was found, in HTML that is readable without a script. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.report.html.tables import (
    attacks,
    groups,
    judge,
    reliability,
    rules,
    severity_chip,
    usage,
)
from redteam_harness.report.html.text import html_text, html_words, link
from redteam_harness.report.html.words import counted, interval_of, percent
from redteam_harness.report.html.world import world
from redteam_harness.report.isolation import degraded_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["overview"]

_MAX_FINDINGS = 10
_MARKS = {"pass": "✓", "fail": "✗", "derailed": "↯"}
_MEANINGS = {
    "pass": "every rule held",
    "fail": "a rule was broken",
    "derailed": "it left its recording and tested nothing",
    "sim-fault": "the persona could not be played; not the agent's doing",
    "judge-fault": "a rule could not be decided; not the agent's doing",
    "infra-fault": "a database, process or model failed; not the agent's doing",
}


def overview(data: Mapping[str, Any], ordered: Sequence[Mapping[str, Any]]) -> str:
    """Everything above and around the list of conversations.

    Args:
        data: report.json.
        ordered: its conversations, the gravest first.
    """
    return "\n".join([*_head(data), '<main id="main" tabindex="-1">', *_main(data, ordered), "</main>"])


def _head(data: Mapping[str, Any]) -> Iterator[str]:
    held = f"{data['finished']:,} of {counted(data['planned'], 'conversation')} held"
    yield '<header class="top">'
    yield f"<h1>{html_text(data['suite'])}</h1>"
    yield f'<p class="soft">Run <code>{html_text(data["run"])}</code> · {held}</p>'
    yield f'<p class="notice">{html_text(data["notice"])}</p>'
    if data["interrupted"]:
        yield '<p class="notice">A person interrupted the launch, so it is not what was planned.</p>'
    yield "<noscript><p>Scripts are switched off here, so only this summary is shown; every conversation is "
    yield "in the folder <code>conversations</code> beside this file.</p></noscript>"
    yield "</header>"


def _main(data: Mapping[str, Any], ordered: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield '<div id="overview">'
    yield from _summary(data)
    yield from _findings(ordered)
    yield from rules(data["rules"])
    # The script draws filters and list here.
    yield '<section id="list" aria-labelledby="list-title" hidden>'
    yield '<h2 id="list-title" tabindex="-1">Conversations</h2></section>'
    yield from groups(data["groups"])
    yield from reliability(data["pass_hat_k"])
    yield from judge(data["judge"])
    yield from attacks(data["attacks"])
    yield from usage(data["usage"])
    yield from world(data)
    yield "</div>"
    yield '<article id="conversation" aria-labelledby="conversation-title" hidden></article>'


def _summary(data: Mapping[str, Any]) -> Iterator[str]:
    yield '<section class="summary" aria-labelledby="summary-title">'
    yield '<h2 id="summary-title" class="unseen">Summary</h2>'
    yield '<div class="tiles">'
    grave = data["severity_1"]
    yield f'<div class="tile {"bad" if grave else "good"}"><p class="label">Harm (severity 1)</p>'
    yield f'<p class="figure">{grave:,}</p>'
    what = "conversation broke" if grave == 1 else "conversations broke"
    yield f"<p>{what} a rule of severity 1</p></div>"
    yield from _rate(data["pass_rate"])
    yield from _outcomes(data)
    yield "</div>"
    yield from _gates(data)
    yield from _degraded(data["attestation"])
    yield "</section>"


def _rate(rate: Mapping[str, Any]) -> Iterator[str]:
    yield '<div class="tile"><p class="label">Passed</p>'
    if not rate["judged"]:
        yield '<p class="figure">none</p><p>No conversation has a verdict, so there is no rate.</p></div>'
        return
    yield f'<p class="figure">{rate["passed"]:,} <span class="of">of {rate["judged"]:,}</span></p>'
    yield f"<p>{percent(rate['share'])}, {interval_of(rate['interval'])}</p>"
    yield _bar(rate["share"], rate["interval"])
    if rate["excluded"]:
        names = ", ".join(f"{count:,} {html_text(name)}" for name, count in rate["excluded"].items())
        bounds = rate["bounds"]
        yield (
            f'<p class="soft">Not counted: {names}. Had all of these failed, '
            f"{percent(bounds['if_all_failed'])} would have passed; had all passed, "
            f"{percent(bounds['if_all_passed'])}.</p>"
        )
    if rate["clusters"] < rate["judged"]:
        check = rate["bootstrap"]
        again = (
            f"; a bootstrap gives {100 * check['low']:.0f} to {100 * check['high']:.0f} %" if check else ""
        )
        yield (
            f'<p class="soft">The interval takes conversations of one case and persona together '
            f"({rate['clusters']:,} groups){again}.</p>"
        )
    yield "</div>"


def _bar(share: float, interval: Mapping[str, Any]) -> str:
    """The interval as a stripe and the share as a line; told in words beside it."""
    low, width = 100 * interval["low"], 100 * (interval["high"] - interval["low"])
    return (
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="bar-all" width="100" height="6"/>'
        f'<rect class="bar-interval" x="{low:.2f}" width="{width:.2f}" height="6"/>'
        f'<rect class="bar-share" x="{100 * share - 0.4:.2f}" width="0.8" height="6"/></svg>'
    )


def _outcomes(data: Mapping[str, Any]) -> Iterator[str]:
    yield '<div class="tile"><p class="label">How conversations ended</p><ul class="outcomes">'
    for outcome, count in sorted(data["outcomes"].items(), key=lambda item: (-item[1], item[0])):
        yield (
            f'<li class="outcome-{html_text(outcome)}"><span class="mark" aria-hidden="true">'
            f"{_MARKS.get(outcome, '!')}</span> <strong>{count:,}</strong> {html_text(outcome)} "
            f'<span class="soft">{_MEANINGS.get(outcome, "")}</span></li>'
        )
    missing = data["planned"] - data["finished"]
    if missing:
        why = data["not_held"]["why"]
        said = f": {html_text(why)}" if why else ""
        yield f'<li><span class="mark" aria-hidden="true">…</span> <strong>{missing:,}</strong> not held'
        yield f'<span class="soft">{said}</span></li>'
    yield "</ul></div>"


def _gates(data: Mapping[str, Any]) -> Iterator[str]:
    reasons = data["gates"]["reasons"]
    if not reasons:
        yield '<p class="gate good"><strong>✓ No gate is red.</strong></p>'
        return
    yield f'<div class="gate bad"><h3>✗ {counted(len(reasons), "red gate")}</h3><ul>'
    for reason in reasons:
        yield f"<li>{html_text(reason['message'])} <code>{html_text(reason['code'])}</code></li>"
    yield "</ul></div>"


def _degraded(counts: Mapping[str, Any]) -> Iterator[str]:
    lines = degraded_lines(counts)
    if lines:
        yield f'<div class="notice"><h3>{counted(len(lines), "thing")} degraded</h3><ul>'
        yield from (f"<li>{html_text(line.removeprefix('degraded: '))}</li>" for line in lines)
        yield "</ul></div>"


def _findings(ordered: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What was found of severity 1, a conversation each."""
    grave = [(one, broken) for one in ordered if (broken := _broken(one))]
    if not grave:
        return
    yield '<section aria-labelledby="findings-title"><h2 id="findings-title">What went wrong, severity 1</h2>'
    yield '<ol class="findings">'
    for one, broken in grave[:_MAX_FINDINGS]:
        yield "<li>" + _finding(one, broken) + "</li>"
    yield "</ol>"
    more = len(grave) - _MAX_FINDINGS
    if more > 0:
        all_of_them = f"All {len(grave):,} conversations with severity 1"
        yield f"<p>{link(all_of_them, severity=1)}</p>"
    yield "</section>"


def _finding(one: Mapping[str, Any], broken: Sequence[Mapping[str, Any]]) -> str:
    attribution = one["attribution"]
    if attribution is not None and attribution["severity"] == 1:
        first, text = attribution["rule"], attribution["text"]
    else:
        first, text = broken[0]["rule"], broken[0].get("why") or broken[0]["reason"]
    others = [verdict["rule"] for verdict in broken if verdict["rule"] != first]
    beside = f' <span class="soft">and {", ".join(map(html_text, others))}</span>' if others else ""
    return (
        f"<h3>{severity_chip(1)} {html_text(first)}{beside}</h3>"
        f"<p>{html_words(text)}</p>"
        f'<p class="soft">{link("Open " + one["id"], c=one["id"])} · {html_text(one["case"])} · '
        f"persona {html_text(one['persona'])} · {html_text(one['disposition'])}</p>"
    )


def _broken(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        verdict for verdict in one["verdicts"] if verdict["status"] == "fail" and verdict["severity"] == 1
    ]
