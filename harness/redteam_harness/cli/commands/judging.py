"""`redteam judge RUN`: the rules once more, over the evidence that a run left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Out, RunName

__all__ = ["rejudge"]


def rejudge(
    run: RunName,
    rubric: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Judge by the rules of this file, not by the suite's own."),
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the suite is now; default: where it was launched from."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Only this rule. May be repeated.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            help="Rebuild end states on this server, or in docker:IMAGE; default: this user's embedded one.",
        ),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=1000, help="Conversations at once.")] = 4,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Ask no model; what rules say under `offline` stands for answers."),
    ] = False,
    out: Out = DEFAULT_OUT,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")] = False,
) -> None:
    """Judge the conversations of a run again, and compare with the verdicts before.

    Nothing is held again: rules are applied to the stored evidence. The new verdicts are appended to
    verdicts.jsonl as a rejudging; those before stay.

    Exit code: 0 no verdict changed, 1 some did, 2 usage, 3 a rule could not be rejudged.
    """
    from redteam_harness.cli.judging import RejudgeCommand, run_rejudge

    raise typer.Exit(
        run_rejudge(
            RejudgeCommand(
                run=run,
                rubric=rubric,
                suite=suite,
                only=tuple(only or ()),
                server=server,
                offline=offline,
                parallel=parallel,
                out=out,
                json=json,
            )
        )
    )
