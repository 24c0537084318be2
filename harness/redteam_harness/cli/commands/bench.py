"""`redteam bench`: benchmarks that somebody else made, on real forks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from redteam_harness.cli.commands.options import AllowDatabase, BuildServer

__all__ = ["bench"]

bench = typer.Typer(help="Benchmarks with an exact oracle, on real forks.", no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """Benchmarks with an exact oracle, on real forks."""


@bench.command("tau2")
def tau2(
    data: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The benchmark's folder: db.json, tasks.json, expected.json."),
    ],
    parallel: Annotated[int, typer.Option("--parallel", "-p", min=1, max=500, help="Tasks at once.")] = 20,
    server: BuildServer = None,
    allow_database: AllowDatabase = None,
    world: Annotated[
        Path, typer.Option(metavar="DIR", help="The world: schema, loader, tools and export.")
    ] = Path("seeds/retail"),
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the tasks as a suite into this new folder; it holds the benchmark's data.",
        ),
    ] = None,
    agent: Annotated[
        Literal["gold", "nothing", "clumsy"],
        typer.Option(help="The reference agent that the suite names."),
    ] = "gold",
    json: Annotated[
        bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")
    ] = False,
) -> None:
    """Run tau2-bench's retail tasks: gold actions on a fork each, the end state against the oracle's hash.

    The actions are called as an agent's tools are, in an agent process. No model is called. Of a task that
    does not match, what was expected is printed beside what was found. What alternatives.json has beside the
    gold actions of a task is run on forks too, told apart, and accepted by the rules of --suite.

    Exit code: 0 all tasks match, 1 some do not, 2 usage, 3 a fault of ours, 130 interrupted.
    """
    from redteam_harness.cli.benching import BenchCommand, run_bench
    from redteam_harness.cli.settings import read_settings

    command = BenchCommand(
        data=data,
        parallel=parallel,
        server=server,
        allow_databases=tuple(allow_database or ()),
        world=world,
        suite=suite,
        agent=agent,
        json=json,
    )
    raise typer.Exit(run_bench(command, read_settings()))
