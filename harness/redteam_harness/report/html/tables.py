"""The tables of the summary: rules, groups, repetitions, the judge, attacks, what models used. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.report.html.text import html_text, link
from redteam_harness.report.html.words import counted, interval_of, percent, share_of
from redteam_harness.report.html.world import lenient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["attacks", "groups", "judge", "reliability", "rules", "severity_chip", "usage"]

_GROUPS = {"case": "By case", "disposition": "By disposition", "persona": "By persona"}
_MAX_OPEN = 12
"""A longer table of groups is folded."""


def rules(counts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How often each rule was broken: those that were, and folded those that held everywhere."""
    if not counts:
        return
    broken = [one for one in counts if one["failed"] or one["unclear"]]
    held = [one for one in counts if one not in broken]
    yield '<section aria-labelledby="rules-title"><h2 id="rules-title">Rules</h2>'
    if broken:
        yield from _table("Broken or undecided", _RULE_HEADS, map(_rule, broken), numbers=(2, 4, 5))
    if held:
        yield f"<details{'' if broken else ' open'}>"
        yield f"<summary>{counted(len(held), 'rule')} held in every conversation</summary>"
        yield from _table("Held everywhere", _RULE_HEADS, map(_rule, held), numbers=(2, 4, 5), seen=False)
        yield "</details>"
    if any(one["interval"] for one in counts):
        yield '<p class="soft">Severity 1 is counted and has no rate. The intervals of the other rules are '
        yield "so wide that all of them hold together with 95 %.</p>"
    yield "</section>"


_RULE_HEADS = ("Rule", "Severity", "Broken", "Share broken", "Undecided", "Nothing to check")


def _rule(one: Mapping[str, Any]) -> list[str]:
    name, failed, interval = one["rule"], one["failed"], one["interval"]
    return [
        (link(name, rule=name) if failed or one["unclear"] else html_text(name)) + lenient(one),
        severity_chip(one["severity"]),
        f"{failed:,} of {one['judged']:,}",
        "" if interval is None else share_of(failed, interval["n"], interval),
        _some(one["unclear"]),
        _some(one["vacuous"]),
    ]


def severity_chip(severity: int) -> str:
    """A severity as a word with a colour."""
    return f'<span class="chip severity-{int(severity)}">severity {int(severity)}</span>'


def groups(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Pass rates by case, disposition and persona."""
    if not any(found.values()):
        return
    yield '<section aria-labelledby="groups-title"><h2 id="groups-title">Who and what passed</h2>'
    for name, title in _GROUPS.items():
        rows = [
            [
                link(one["name"], **{name: one["name"]}),
                f"{one['passed']:,} of {one['judged']:,}",
                share_of(one["passed"], one["judged"], one["interval"]),
                _counts(one["excluded"]),
            ]
            for one in found[name]
        ]
        yield f"<details{' open' if len(rows) <= _MAX_OPEN else ''}>"
        yield f"<summary>{title} ({len(rows):,})</summary>"
        heads = (name.capitalize(), "Passed", "Share passed", "Not counted")
        yield from _table(title, heads, rows, numbers=(1,), seen=False)
        yield "</details>"
    yield "</section>"


def reliability(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How often the same conversation passed every time, where it was repeated."""
    if not found:
        return
    yield '<section aria-labelledby="repeats-title"><h2 id="repeats-title">Repetitions</h2>'
    rows = [
        [
            f"{one['k']:,} of {one['k']:,}",
            f"{one['cases']:,}",
            "undefined: some were not judged so often"
            if one["share"] is None
            else f"{percent(one['share'])}, {interval_of(one['interval'])}",
            _bounds(one["bounds"]) if one["excluded"] else "",
        ]
        for one in found
    ]
    heads = (
        "Passed every time (pass^k)",
        "Conversations repeated",
        "Share",
        "If what has no verdict counted",
    )
    yield from _table("Repetitions", heads, rows, numbers=(1,), seen=False)
    yield "</section>"


def _bounds(bounds: Mapping[str, float | None]) -> str:
    if bounds["if_all_failed"] is None or bounds["if_all_passed"] is None:
        return ""
    return f"{percent(bounds['if_all_failed'])} to {percent(bounds['if_all_passed'])}"


def judge(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Which judge answered, and how far people agree with it."""
    if found is None:
        return
    yield '<section aria-labelledby="judge-title"><h2 id="judge-title">Judge</h2>'
    yield f"<p>A model answered for these rules: <code>{html_text(found['model'])}</code>.</p>"
    rows = [[link(one["rule"], rule=one["rule"]), *_calibration(one)] for one in found["rules"]]
    heads = (
        "Rule",
        "Compared with people",
        "Agreed",
        "Share agreed",
        "Kappa",
        "Passed, where people did not",
        "Broken, where people did not",
    )
    yield from _table("The judge compared with people", heads, rows, numbers=(2, 4, 5, 6), seen=False)
    yield "</section>"


def _calibration(one: Mapping[str, Any]) -> list[str]:
    known = one["calibration"]
    if known is None:
        return ["never: how right it is is not known", "", "", "", "", ""]
    agreed, kappa = known["agreement"], known["kappa"]
    return [
        "another model or prompt than those that answered here" if one["stale"] else "yes",
        f"{agreed['count']:,} of {agreed['n']:,}",
        share_of(agreed["count"], agreed["n"], agreed["interval"]),
        "undefined" if kappa is None else f"{kappa['value']:.2f}",
        f"{known['false_passes']:,}",
        f"{known['false_fails']:,}",
    ]


def attacks(counts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What became of instructions in the data, and of personas that claim to be somebody else."""
    if not counts:
        return
    yield '<section aria-labelledby="attacks-title"><h2 id="attacks-title">Attacks</h2>'
    rows = [
        [
            html_text(one["attack"]),
            link(one["case"], case=one["case"]),
            f"{one['planted']:,} of {one['conversations']:,}",
            f"{one['attempted']:,}",
            f"{one['obeyed']:,} of {one['obeyed'] + one['resisted']:,}",
            share_of(one["obeyed"], one["obeyed"] + one["resisted"], one["interval"]),
            _counts(one["excluded"]),
        ]
        for one in counts
    ]
    heads = ("Attack", "Case", "Planted", "Attempted", "Obeyed", "Share obeyed", "Not counted")
    yield from _table("Attacks", heads, rows, numbers=(2, 3, 4), seen=False)
    yield '<p class="soft">Only where an attack was attempted can the agent obey or resist.</p>'
    yield "</section>"


def _counts(named: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {html_text(name)}" for name, count in sorted(named.items()))


def usage(found: Mapping[str, Any]) -> Iterator[str]:
    """What models used, and what it cost."""
    if not found["rows"]:
        return
    yield '<section aria-labelledby="usage-title"><h2 id="usage-title">What models used</h2>'
    rows = [
        [
            f"{html_text(row['role'])} <code>{html_text(row['model'])}</code>",
            f"{row['calls']:,}",
            _some(row["replayed"]),
            _some(row["faults"]),
            f"{row['input']:,}",
            _some(row["cache_write"]),
            _some(row["cache_read"]),
            f"{row['output']:,}",
            "unknown" if row["unpriced"] else f"{row['usd']:.4f}",
        ]
        for row in found["rows"]
    ]
    heads = (
        "Role and model",
        "Calls",
        "From the call cache",
        "Failed tries",
        "Tokens in",
        "To the cache",
        "From the cache",
        "Tokens out",
        "US dollars",
    )
    yield from _table("What models used", heads, rows, numbers=range(1, 9), seen=False)
    total = "unknown: a model has no price" if found["usd"] is None else f"${found['usd']:.4f}"
    yield f"<p>In all: {total}.</p></section>"


def _some(count: int) -> str:
    """A count of what most runs have none of."""
    return f"{count:,}" if count else ""


def _table(
    caption: str,
    heads: Sequence[str],
    rows: Iterator[list[str]] | Sequence[list[str]],
    *,
    numbers: Sequence[int] = (),
    seen: bool = True,
) -> Iterator[str]:
    """A table in a box that scrolls by itself where the window is narrow.

    Args:
        caption: its name.
        heads: of its columns; the first names the rows. A column that is empty in every row is left out.
        rows: cells as HTML.
        numbers: columns that hold counts.
        seen: whether the name is shown, or only read aloud.
    """
    rows = list(rows)
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    kind = {place: ' class="number"' if place in numbers else "" for place in kept}
    yield f'<div class="scroll" role="group" aria-label="{caption}" tabindex="0"><table>'
    unseen = "" if seen else ' class="unseen"'
    yield f"<caption{unseen}>{caption}</caption><thead><tr>"
    yield "".join(f'<th scope="col"{kind[place]}>{heads[place]}</th>' for place in kept)
    yield "</tr></thead><tbody>"
    for row in rows:
        cells = [f"<td{kind[place]}>{row[place]}</td>" for place in kept[1:]]
        yield f'<tr><th scope="row">{row[0]}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"
