"""`redteam trust`: prints what a deployed service must trust to be a suite's agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import typer

from redteam_harness.cli.servers import chosen_server
from redteam_harness.cli.settings import read_settings
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.services import ServiceOptions, read_address, service_trust
from redteam_harness.launch.suite import load_suite

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker.servers import ServerFacts
    from redteam_harness.cli.settings import Settings

__all__ = ["print_trust"]


def print_trust(
    folder: Path, server: str | None, *, collector: str | None, collector_url: str | None
) -> None:
    """Print a trust as one line of JSON.

    Raises:
        RedteamError: the suite's agent is no deployed service, or the server cannot be asked.
    """
    settings = read_settings()
    suite = load_suite(folder)
    options = ServiceOptions(
        signing_key=settings.signing_key, collector=read_address(collector, collector_url)
    )
    facts = anyio.run(_facts, server, settings)
    sys.stdout.write(json_text(service_trust(suite, facts.host, options)) + "\n")
    if facts.kind == "embedded":
        typer.echo(
            "redteam: the embedded server's socket has another folder each time that it is started, and only "
            "services on this machine reach it; for a service that stays up, name a server with --server",
            err=True,
        )


async def _facts(server: str | None, settings: Settings) -> ServerFacts:
    async with chosen_server(server, settings) as opened:
        return opened.facts
