"""Other people's databases: only a suite, a cast and a few tools are ours; their SQL is loaded as it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import ROOT, dsn_of, redteam, report_of

from redteam_forker import list_forks

if TYPE_CHECKING:
    from redteam_forker import Server

SUITES = Path(__file__).parent / "suites"
INPUTS = ROOT.parent / "shared" / "inputs"


async def _launched(server: Server, tmp_path: Path, world: str) -> dict[str, Any]:
    if not INPUTS.is_dir():
        pytest.skip(f"the folder of other people's dumps, {INPUTS}, is not here")
    suite = tmp_path / world
    shutil.copytree(SUITES / world, suite)
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(text.replace("{inputs}", str(INPUTS)))
    before = await list_forks(server)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("launch", suite, "--server", dsn_of(server), "--json", "--out", tmp_path / "out")
    )
    assert done.returncode in (0, 1), done.stderr
    assert await list_forks(server) == before
    return report_of(done)


async def test_petclinic_books_visits_and_the_wrong_pet_is_found(server: Server, tmp_path: Path) -> None:
    report = await _launched(server, tmp_path, "petclinic")
    assert report["finished"] == 6
    assert set(report["outcomes"]) <= {"pass", "fail"}
    assert report["outcomes"]["pass"] >= 4


async def test_pagila_takes_films_back_and_the_ones_too_many_are_found(
    server: Server, tmp_path: Path
) -> None:
    report = await _launched(server, tmp_path, "pagila")
    outcomes = {(one["case"], one["outcome"]) for one in report["conversations"]}
    assert outcomes == {("one-film-back", "pass"), ("one-of-several", "fail")}
    failed = {rule["rule"] for rule in report["rules"] if rule["failed"]}
    assert failed == {"own-rental-only", "collateral"}
