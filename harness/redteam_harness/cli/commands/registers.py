"""`redteam fidelity` and `redteam boundary`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import BuildServer, SuitePath

__all__ = ["boundary", "fidelity"]


def fidelity(
    suite: SuitePath = Path(),
    server: BuildServer = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, nothing else.")] = False,
) -> None:
    """Say of each mock what is known of how it differs from the real thing, by fidelity.yaml.

    The agent's process is started, as a launch starts it, to see which external tools its code has. A mock
    without a row is one at which nobody looked; a row whose tool or mock has changed since is stale. No
    conversation is held, and no deployed service is called.

    Exit code: 0 told, 2 usage, or a row speaks of a tool or rule that is not there, 3 the server cannot be
    used, 130 interrupted.
    """
    from redteam_harness.cli.registers import RegisterCommand, run_fidelity
    from redteam_harness.cli.settings import read_settings

    command = RegisterCommand(suite=suite, server=server, json=json)
    raise typer.Exit(run_fidelity(command, read_settings()))


def boundary(
    suite: SuitePath = Path(),
    server: BuildServer = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, nothing else.")] = False,
) -> None:
    """Say of each tool whether it runs on the fork, is mocked, or is real, and why, from the code itself.

    The agent's process is started, as a launch starts it, and asked for its marks. What a command or a
    deployed service does cannot be known from here, and is said to be unknown.

    Exit code: 0 told, 2 usage, 3 the server cannot be used, 130 interrupted.
    """
    from redteam_harness.cli.registers import RegisterCommand, run_boundary
    from redteam_harness.cli.settings import read_settings

    command = RegisterCommand(suite=suite, server=server, json=json)
    raise typer.Exit(run_boundary(command, read_settings()))
