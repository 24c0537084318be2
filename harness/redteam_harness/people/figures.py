"""What was measured, for a terminal: each figure with what it is of, and undefined said so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from redteam_forker.changes.render import visible
from redteam_rubrics.judge import SCRIPTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from redteam_harness.people.calibrating import Calibrated, RuleCalibration
    from redteam_harness.registers.fidelity import FidelityCheck
    from redteam_rubrics import Interval
    from redteam_rubrics.calibration import Corrected, Correlation, Figures, Kappa, Share

__all__ = ["interval_text", "near", "print_calibrated", "print_fidelity", "share_text"]

_FEW = 30
_WIDTH = 14


def print_calibrated(console: Console, found: Calibrated) -> None:
    """Print a calibration: each rule, all of them together, and the people."""
    for one in found.rules:
        _print_rule(console, one)
    if len(found.rules) > 1:
        _say(console, "")
        _say(console, "all rules", bold=True)
        _print_figures(console, found.overall)
        for mistakes in found.overall.mistakes:
            _line(
                console,
                f"severity {mistakes.severity}",
                f"{mistakes.n} compared: {mistakes.false_passes} passed by mistake, {mistakes.false_fails} "
                "failed by mistake",
            )
    if found.people:
        _say(console, "")
        _say(console, "people among themselves", bold=True)
        for between in found.people:
            _line(console, " and ".join(between.people), share_text(between.agreement))
            _line(console, "  kappa", kappa_text(between.kappa, between.agreement.n))
    for reason, count in found.left_out.items():
        _say(console, f"not counted: {count} {reason}")
    _say(console, "")
    recorded = sum(one.fresh for one in found.rules)
    again = "" if recorded == len(found.rules) else "; the rest was on file already"
    _say(console, f"{recorded} of {len(found.rules)} put on file in {near(found.register)}{again}")


def _print_rule(console: Console, one: RuleCalibration) -> None:
    known = one.calibration
    _say(console, "")
    _say(console, f"{known.rule}  (severity {one.severity})", bold=True)
    _line(console, "judge", f"{known.model}, prompt {known.prompt[:12]}")
    if known.model == SCRIPTED:
        _line(console, "", "a scripted stand-in answered: this checks the harness, and nothing about a model")
    _line(console, "labels", f"by {', '.join(known.who)}, of run {', '.join(known.runs)}")
    _print_figures(console, known.figures)
    if one.corrected is not None:
        _line(console, "pass rate", _corrected_text(one.corrected))
    if known.n < _FEW:
        _line(
            console, "", f"{known.n} is few: see the intervals; from {_FEW} on they begin to mean something"
        )


def _print_figures(console: Console, figures: Figures) -> None:
    _line(console, "agreement", share_text(figures.agreement))
    _line(console, "kappa", kappa_text(figures.kappa, figures.n))
    _line(console, "pass recall", share_text(figures.pass_recall))
    _line(console, "fail recall", share_text(figures.fail_recall))
    _line(
        console,
        "mistakes",
        f"{figures.false_passes} passed by mistake, {figures.false_fails} failed by mistake",
    )
    apart = {
        "judge unclear": figures.judge_unclear,
        "judge faults": figures.judge_faults,
        "people unclear": figures.human_unclear,
        "people disputed": figures.disputed,
    }
    named = ", ".join(f"{count} {name}" for name, count in apart.items() if count)
    _line(console, "apart", named or "none")
    _line(console, "verbosity", _verbosity_text(figures.verbosity))


def print_fidelity(console: Console, checks: Sequence[FidelityCheck]) -> None:
    """Print what a spot check found: each disposition, and the blind mix."""
    for check in checks:
        _say(console, "")
        _say(console, check.disposition, bold=True)
        if check.conversations:
            _line(console, "in character", share_text(check.in_character))
            turns = ", ".join(map(str, sorted(check.gave_in)))
            often = f"{len(check.gave_in)} of {len(check.conversations)}"
            _line(console, "gave in", f"{often}{f', in turn {turns}' if turns else ''}")
            _line(console, "too soon", share_text(check.too_soon))
            _line(console, "talked out", share_text(check.abandoned))
            told = ", ".join(map(str, sorted(check.told)))
            _line(console, "told", f"held-back facts first in turn {told}" if told else "no held-back fact")
        if check.taken_for_real.n:
            _line(console, "taken for real", share_text(check.taken_for_real))
    mix = next((check.mix for check in checks if check.mix is not None), None)
    if mix is not None:
        _say(console, "")
        _say(console, "blind mix", bold=True)
        _line(console, "right guesses", f"{share_text(mix.hits)}; chance is 50 %")
        _line(console, "chance alone", f"p = {mix.p:.3f}  (exact binomial test, two-sided)")
    if checks:
        _say(console, "")


def near(path: Path) -> str:
    """A path as somebody who works here would type it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def share_text(share: Share) -> str:
    """A share with its interval."""
    if share.share is None:
        return "undefined: 0 of 0"
    interval = interval_text(share.interval, percent=True)
    return f"{share.count} of {share.n}   {100 * share.share:.0f} %  {interval}"


def kappa_text(kappa: Kappa | None, n: int) -> str:
    """Cohen's kappa of `n` pairs, with its interval."""
    if kappa is None:
        return "undefined: " + ("both gave one and the same answer throughout" if n else "nothing to compare")
    if kappa.interval is None:
        return f"{kappa.value:.2f}  (no interval: there is too little variety to estimate one)"
    return f"{kappa.value:.2f}  {interval_text(kappa.interval)}"


def interval_text(interval: Interval | None, *, percent: bool = False) -> str:
    """An interval in brackets; nothing where there is none."""
    if interval is None:
        return ""
    low, high = (f"{100 * end:.0f}" if percent else f"{end:.2f}" for end in interval)
    return f"(95 % interval {low} to {high})"


def _verbosity_text(found: Correlation | None) -> str:
    if found is None:
        return "undefined: no mistakes to explain, or answers of one length"
    return f"{found.value:+.2f}  {interval_text(found.interval)}"


def _corrected_text(found: Corrected) -> str:
    raw = share_text(found.raw)
    if found.share is None:
        return f"{raw}; corrected: undefined, {found.undefined}"
    edge = ", on the edge" if found.clipped else ""
    return f"{raw}; corrected {100 * found.share:.0f} %{edge}  {interval_text(found.interval, percent=True)}"


def _line(console: Console, name: str, text: str) -> None:
    _say(console, f"  {name:<{_WIDTH}} {text}".rstrip())


def _say(console: Console, text: str, *, bold: bool = False) -> None:
    console.print(
        visible(text), style="bold" if bold else None, markup=False, highlight=False, soft_wrap=True
    )
