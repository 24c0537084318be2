"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DEFAULT_OUT",
    "AllowDatabase",
    "BuildServer",
    "Collector",
    "CollectorUrl",
    "Out",
    "RunName",
    "SuitePath",
]

DEFAULT_OUT = Path(".redteam/runs")

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs are kept.")]
AllowDatabase = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A database of --server that forks could enter, and may; any other is refused. May be repeated.",
    ),
]
Collector = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where a deployed service (`agent: {url: ...}`) reports to; default: 127.0.0.1, a free port.",
    ),
]
CollectorUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="How the service reaches it, if not by http://HOST:PORT."),
]
SuitePath = Annotated[
    Path, typer.Argument(metavar="SUITE", help="A folder with suite.yaml; default: this one.")
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, its name, or `latest`.")]
BuildServer = Annotated[
    str | None,
    typer.Option(
        metavar="DSN", help="Build on this server, or in docker:IMAGE; default: this user's embedded one."
    ),
]
