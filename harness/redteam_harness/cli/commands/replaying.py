"""`redteam replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, AllowDatabase, Out, RunName

__all__ = ["replay"]


def replay(
    run: RunName,
    level: Annotated[
        int,
        typer.Option(
            min=1,
            max=3,
            help="1: the rules over the evidence. 2: the recorded lines and mock answers before the agent as "
            "it is now. 3: the same plan, all anew.",
        ),
    ] = 1,
    escalate: Annotated[
        bool,
        typer.Option("--escalate", help="With --level 2: what derails is held once more, as at level 3."),
    ] = False,
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The suite, with the rules or the agent to try; default: the run's."
        ),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=1000, help="Conversations at once.")] = 4,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="DSN", help="Fork on this server, or in docker:IMAGE; default: this user's embedded one."
        ),
    ] = None,
    allow_database: AllowDatabase = None,
    out: Out = DEFAULT_OUT,
    offline: Annotated[
        bool, typer.Option("--offline", help="Scripted stand-ins, even where a model's key is set.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="RUN is a replay that did not end: go on with it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, and nothing else.")] = False,
) -> None:
    """Replay a run: its rules alone, or its conversations before the agent as it is now.

    Level 1 judges the evidence again without any model, as often as you like with the same bytes. Level 2
    holds every conversation on a fresh fork with the lines that were said and the answers that mocks gave;
    one that leaves what was recorded has derailed, and has no verdict. Level 3 holds the plan anew. Each
    makes a run of its own beside RUN, for `redteam compare RUN REPLAY`.

    Exit code: as for `redteam launch`; derailed conversations have no verdict, so it is 3 where any is left
    and no rule failed (1).
    """
    from redteam_harness.cli.replaying import ReplayCommand, run_replay

    raise typer.Exit(
        run_replay(
            ReplayCommand(
                run=run,
                level=level,
                escalate=escalate,
                suite=suite,
                parallel=parallel,
                server=server,
                allow_databases=tuple(allow_database or ()),
                out=out,
                offline=offline,
                resume=resume,
                json=json,
            )
        )
    )
