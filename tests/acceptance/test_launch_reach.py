"""A launch on a server of one's own goes nowhere that nobody allowed, and says so before it makes a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from support.cli import dsn_of, redteam
from support.databases import scratch_database

from redteam_forker import list_forks

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    assert redteam("init", folder).returncode == 0
    return folder


async def test_a_database_that_forks_could_enter_refuses_the_launch_until_it_is_allowed_by_name(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    launch = ("launch", suite, "--offline", "--count", "2", "--server", dsn_of(server))
    async with scratch_database(server) as name:  # which everybody may enter, as any new database
        refused = await anyio.to_thread.run_sync(lambda: redteam(*launch, "--out", tmp_path / "refused"))
        assert refused.returncode == 2
        assert f"{name!r} (everybody may connect to it)" in refused.stderr
        assert "--allow-database NAME" in refused.stderr
        assert list((tmp_path / "refused").glob("*")) == []
        allowed = await anyio.to_thread.run_sync(
            lambda: redteam(*launch, "--allow-database", name, "--out", tmp_path / "allowed")
        )
    assert allowed.returncode in (0, 1), allowed.stderr
    assert f"may also connect to {name} on this server" in allowed.stderr
    assert await list_forks(server) == []


def test_a_database_is_allowed_only_on_a_server_that_is_named_by_its_dsn(suite: Path, tmp_path: Path) -> None:
    done = redteam("launch", suite, "--allow-database", "shop", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "--allow-database is for a server that --server names" in done.stderr
