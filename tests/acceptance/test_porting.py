"""The porting guide: every shape of code that it shows is launched as it stands, both ways, on real forks."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import ROOT, dsn_of, environment, redteam, report_of
from support.processes import until

from redteam_forker import list_forks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker import Server

GUIDE = ROOT / "docs" / "porting.md"
FOLDER = ROOT / "docs" / "porting"
PORTED = [
    ("asyncpg-pool/desk.py", "asyncpg-pool/desk_sdk.py"),
    ("sqlalchemy-engine/desk.py", "sqlalchemy-engine/desk_sdk.py"),
    ("psycopg-mcp-stdio/desk.py", "psycopg-mcp-stdio/desk_sdk.py"),
    ("psycopg-mcp-stdio/server.py", "psycopg-mcp-stdio/server_sdk.py"),
    ("injected-connection/shop.py", "injected-connection/shop_sdk.py"),
]
# `uvicorn` in a command is found as it is in a shell whose virtual environment is active.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, so that nothing is written beside the originals."""
    return Path(shutil.copytree(FOLDER, tmp_path / "porting", ignore=shutil.ignore_patterns("__pycache__")))


async def _launch(server: Server, suite: Path, out: Path, **env: Any) -> dict[str, Any]:
    before = await list_forks(server)
    arguments = ("launch", suite, "--server", dsn_of(server), "--parallel", 4, "--out", out, "--json")
    done = await anyio.to_thread.run_sync(lambda: redteam(*arguments, **env))
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert await list_forks(server) == before
    return report_of(done)


def _kinds(out: Path) -> list[str]:
    return [
        json.loads(line)["kind"]
        for path in out.glob("*/conversations/*/trace.jsonl")
        for line in path.read_text().splitlines()
    ]


@pytest.mark.parametrize(
    "shape", ["asyncpg-pool", "sqlalchemy-engine", "psycopg-mcp-stdio", "injected-connection"]
)
async def test_code_of_production_cancels_orders_on_its_own_forks_without_a_change(
    server: Server, examples: Path, tmp_path: Path, shape: str
) -> None:
    production = {"DATABASE_URL": "postgresql://app@production.example/shop", "PATH": PATH}
    report = await _launch(server, examples / shape, tmp_path / "out", **production)
    assert report["outcomes"] == {"pass": 4}
    # The address is tried, or the code's own pool is asked too.
    probes = 1 if shape == "injected-connection" else 2
    assert _kinds(tmp_path / "out").count("probe") == 4 * probes


@pytest.mark.parametrize("shape", ["asyncpg-pool", "sqlalchemy-engine", "psycopg-mcp-stdio"])
async def test_on_the_sdk_one_process_serves_all_and_each_tool_call_is_in_the_trace(
    server: Server, examples: Path, tmp_path: Path, shape: str
) -> None:
    report = await _launch(server, examples / shape / "sdk.yaml", tmp_path / "out")
    assert report["outcomes"] == {"pass": 4}
    assert _kinds(tmp_path / "out").count("tool_call") == 4


async def test_the_injected_connection_of_a_deployed_service_is_the_conversations_fork(
    server: Server, examples: Path, tmp_path: Path
) -> None:
    suite = examples / "injected-connection" / "sdk.yaml"
    key: dict[str, Any] = {"REDTEAM_SIGNING_KEY": str(tmp_path / "key.pem")}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    suite.write_text(suite.read_text().replace(":8000", f":{port}"))
    trust = await anyio.to_thread.run_sync(
        lambda: redteam("trust", suite, "--server", dsn_of(server), **key).stdout
    )
    async with _service(suite.parent, port, trust):
        report = await _launch(server, suite, tmp_path / "out", **key)
    assert report["outcomes"] == {"pass": 4}


@contextlib.asynccontextmanager
async def _service(folder: Path, port: int, trust: str) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "uvicorn", "shop_sdk:app", "--port", str(port), "--log-level", "warning"]
    service = subprocess.Popen(command, cwd=folder, env=environment(REDTEAM_TRUST=trust))  # noqa: ASYNC220
    try:
        await until(lambda: _listens(port))
        yield
    finally:
        service.terminate()
        await anyio.to_thread.run_sync(lambda: service.wait(20))


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def test_every_difference_that_the_guide_shows_is_that_of_the_files() -> None:
    real = {
        line.rstrip()
        for old, new in PORTED
        for line in difflib.ndiff(
            (FOLDER / old).read_text().splitlines(), (FOLDER / new).read_text().splitlines()
        )
    }
    # ndiff writes a space after the sign, diff does not.
    real = {line[:1] + line[2:] for line in real}
    shown = re.findall(r"```diff\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) >= 6
    lines = [line.rstrip() for block in shown for line in block.splitlines() if line.strip()]
    assert [line for line in lines if line not in real] == []
    assert sum(line.startswith("+") for line in lines) >= 10
