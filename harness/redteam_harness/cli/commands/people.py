"""Commands that ask people, and measure what they say: labels, calibration, spot checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Out, RunName

__all__ = ["calibrate", "label", "spot_check"]

Who = Annotated[
    str | None, typer.Option(metavar="NAME", help="Under which name it is kept; default: this user's.")
]
SuiteNow = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where the suite is now; default: where it was launched from."),
]


def label(
    run: RunName,
    conversation: Annotated[
        str | None,
        typer.Argument(metavar="CONVERSATION", help="Only this one, also what is labelled already."),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this rule. May be repeated.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every rule; default: those that a judge decided.")
    ] = False,
    who: Who = None,
    order: Annotated[
        int, typer.Option(metavar="SEED", help="Shuffle conversations another way; all people should agree.")
    ] = 1,
    verdicts: Annotated[
        bool, typer.Option("--verdicts", help="Show the verdicts. Such labels calibrate nothing.")
    ] = False,
    suite: SuiteNow = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Give your own verdicts on a run's conversations, without seeing those of the judge.

    Each conversation is shown, then each rule is asked: `p` pass, `f` fail or `u` unclear, and why in the
    same line; `s` skips, `b` goes back to correct, `v` shows the conversation again, `q` quits. What was
    said is on disk at once, in labels.jsonl beside the run's verdicts; the next time goes on where this one
    stopped. Answers may also be piped, a line each.

    Exit code: 0 done or quit, 2 usage or nobody to ask, 3 a file could not be read or written, 130
    interrupted; what was said is kept in any case.
    """
    from redteam_harness.people.labelling import LabelCommand, run_label

    raise typer.Exit(
        run_label(
            LabelCommand(
                run=run,
                conversation=conversation,
                rules=tuple(rule or ()),
                all=all_,
                who=who,
                order=order,
                verdicts=verdicts,
                suite=suite,
                out=out,
            )
        )
    )


def calibrate(
    labels: Annotated[
        list[str],
        typer.Argument(
            metavar="LABELS...", help="Runs with labels, or files of labels that lie in a run's folder."
        ),
    ],
    suite: SuiteNow = None,
    out: Out = DEFAULT_OUT,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")] = False,
) -> None:
    """Measure how far the judge agrees with people, and put it on file beside suite.yaml.

    Labels (`redteam label`) are compared with the judge's latest verdicts on the same conversations, for
    each rule, model and prompt. No model is asked. The result is appended to calibrations.jsonl; it is stale
    as soon as a run's judge has another model or prompt.

    Exit code: 0 measured, whatever was found; 2 nothing to compare; 3 a file could not be read or written.
    """
    from redteam_harness.people.calibrating import CalibrateCommand, run_calibrate

    raise typer.Exit(run_calibrate(CalibrateCommand(labels=tuple(labels), suite=suite, out=out, json=json)))


def spot_check(
    run: RunName,
    per: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Conversations of each disposition.")
    ] = 3,
    lines: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What real users wrote, a line each, to be mixed in."),
    ] = None,
    mix: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Lines of each kind in that mix, at most.")
    ] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Another seed, another sample.")] = 1,
    who: Who = None,
    suite: SuiteNow = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """Look at a sample of simulated people: do they give in too soon, overact, or forget what they want?

    First, with --lines, single lines are shown, as many of the run as of real users, and you say which is
    which. Then conversations of each disposition, with four questions each. Answers are kept as they are
    given, and the next time goes on where this one stopped. The result is appended to fidelity.jsonl beside
    suite.yaml, and reports cite it as long as script and actor stay the same.

    Exit code: 0 done or quit, 2 usage or nobody to ask, 3 a file could not be read or written, 130
    interrupted.
    """
    from redteam_harness.people.spot_check import SpotCheckCommand, run_spot_check

    raise typer.Exit(
        run_spot_check(
            SpotCheckCommand(run=run, per=per, lines=lines, mix=mix, seed=seed, who=who, suite=suite, out=out)
        )
    )
