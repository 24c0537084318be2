"""What an attestation rests on, with a real server: the catalog, and attempts to enter other databases."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console
from support.cli import write_suite
from support.forks import made_fork, made_template

from redteam_forker import drop_fork
from redteam_harness.evidence.reading import read_trace
from redteam_harness.launch.interrupt import interruptible
from redteam_harness.launch.launch import LaunchOptions, launch
from redteam_harness.launch.players import Access, ModelOptions, choose_players
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.services import ServiceOptions
from redteam_harness.launch.suite import load_suite
from redteam_harness.registers.catalog import left_of, try_walls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from redteam_forker import Server

SCHEMA = "CREATE TABLE people (id int PRIMARY KEY, name text); INSERT INTO people VALUES (1, 'p1');"
RULES = "the-rule: {severity: 1, sql: SELECT count(*) = 1 FROM people}\n"
AGENT = "async def answer(message, session):\n    return 'Done.'\n"


async def test_a_forks_role_is_refused_elsewhere_and_let_in_at_home(server: Server) -> None:
    async with made_template(server, SCHEMA) as template, made_fork(server, template) as fork:
        tried = await try_walls(fork, ("postgres", template.name, template.baseline, fork.name))
    assert tried == {
        "postgres": "refused",
        template.name: "refused",
        template.baseline: "refused",
        fork.name: "entered",
    }


async def test_a_server_that_cannot_be_reached_decides_nothing(server: Server, tmp_path: Path) -> None:
    async with made_template(server, SCHEMA) as template, made_fork(server, template) as fork:
        tried = await try_walls(replace(fork, host=str(tmp_path)), ("postgres",))
    assert tried["postgres"].startswith("not decided: ")


async def test_the_catalog_says_whether_a_fork_is_gone(server: Server) -> None:
    async with made_template(server, SCHEMA) as template, made_fork(server, template) as fork:
        assert await left_of(server, fork.name) == ("database", "role")
        await drop_fork(server, fork)
        assert await left_of(server, fork.name) == ()


async def test_where_a_demanded_wall_is_seen_to_lack_nothing_is_said_to_the_agent(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def entered(*_: object) -> dict[str, str]:
        return {"postgres": "entered"}

    @asynccontextmanager
    async def opened() -> AsyncIterator[Server]:
        yield server

    monkeypatch.setattr("redteam_harness.launch.launch.tried_walls", entered)
    suite = load_suite(write_suite(tmp_path / "suite", schema=SCHEMA, agent=AGENT, rules=RULES))
    options = LaunchOptions(
        parallel=1,
        count=1,
        repeat=None,
        server=opened,
        out=tmp_path / "out",
        keep="none",
        environment=dict(os.environ),
        service=ServiceOptions(signing_key=tmp_path / "key.pem"),
        gates=suite.spec.gates,
        isolation="full",
    )
    progress = Progress(console=Console(quiet=True), suite=suite.name, live=False, quiet=True)
    async with (
        choose_players(suite, Access(), ModelOptions(offline=True, parallel=1)) as players,
        interruptible() as interrupt,
    ):
        launched = await launch(suite, options, players, progress, interrupt)
    (held,) = launched.summary.finished
    assert (held.outcome, held.cause) == ("infra-fault", "isolation")
    assert "the fork's role could also enter postgres (role-reaches)" in held.message
    assert held.verdicts == []
    assert held.attestation is not None
    assert held.attestation["drop"]["catalog_shows"] == []
    kinds = [event["kind"] for event in read_trace(launched.run, held.id)]
    assert "user" not in kinds
    assert "probed" in kinds
