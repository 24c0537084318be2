"""The pytest plugin, in real pytest sessions of their own, as a project has them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.cli import ROOT, dsn_of

from redteam_forker.fork import list_forks
from redteam_forker.names import OWN_NAME
from redteam_forker.registry import open_registry
from redteam_forker.servers import homes, state
from redteam_forker.sweep import drop_entry

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_DOCS = (ROOT / "docs/pytest.md").read_text(encoding="utf-8")
_CONFIG = '[tool.pytest.ini_options]\nredteam_seed = ["seed.sql"]\n'
_SEED = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)"
_WITHOUT_A_FORK = "def test_nothing(): pass\n"


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own that has our plugin, anyio's and xdist's, installed or not, and no others."""
    plugins = ("xdist", "anyio", "redteam_forker.pytest_plugin")
    command = [sys.executable, "-m", "pytest", *(word for name in plugins for word in ("-p", name))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, "-W", "error", *arguments],
        cwd=folder,
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


def project(folder: Path, test: str, *, config: str = _CONFIG) -> Path:
    """A project with a seed of one table with one row."""
    for name, text in (("pyproject.toml", config), ("seed.sql", _SEED), ("test_it.py", test)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def documented(folder: Path) -> Path:
    """The project that docs/pytest.md shows."""
    for name, text in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", _DOCS, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text, encoding="utf-8")
    # The page does not speak of anyio's backends: trio may not be installed there, and asyncpg needs asyncio.
    (folder / "conftest.py").write_text(
        "import pytest\n@pytest.fixture\ndef anyio_backend(): return 'asyncio'\n", encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_the_documented_project_passes_as_it_is_documented(tmp_path: Path, workers: tuple[str, ...]) -> None:
    done = run_pytest(documented(tmp_path), "-q", *workers)
    shown = _DOCS.split("```console\n$ pytest -q\n")[1].split("```")[0]
    expected = shown.splitlines()[-1].replace("T s", "")
    assert expected in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


async def test_workers_share_a_server_and_its_template_and_leave_no_fork(
    server: Server, tmp_path: Path
) -> None:
    test = """
import json, os, pathlib, pytest
@pytest.mark.parametrize("n", range(6))
def test_names(fork, fork_template, n):
    line = [os.environ["PYTEST_XDIST_WORKER"], fork.name, fork_template.name]
    (pathlib.Path(__file__).parent / f"{n}.json").write_text(json.dumps(line))
"""
    before = await list_forks(server)
    done = run_pytest(project(tmp_path, test), "-n", "2", "--redteam-server", dsn_of(server))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads((tmp_path / f"{n}.json").read_text()) for n in range(6)]
    workers, forks, templates = (set(column) for column in zip(*lines, strict=True))
    assert (len(workers), len(forks), len(templates)) == (2, 6, 1)
    assert set(await list_forks(server)) <= set(before)


def test_a_kept_server_is_shared_by_workers_and_the_next_session_finds_its_template(tmp_path: Path) -> None:
    test = """
import os, pathlib, pytest
@pytest.mark.parametrize("n", range(4))
def test_names(fork, fork_template, n):
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    (pathlib.Path(__file__).parent / worker).write_text(f"{fork.host} {fork_template.from_cache}")
"""
    folder = project(tmp_path, test, config=_CONFIG + 'redteam_cache = "kept"\n')
    try:
        for arguments in (("-n", "2"), ()):
            done = run_pytest(folder, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
        said = {name: (folder / name).read_text().split() for name in ("gw0", "gw1", "alone")}
        assert said["gw0"][0] == said["gw1"][0]
        assert sorted((said["gw0"][1], said["gw1"][1])) == ["False", "True"]
        assert said["alone"][1] == "True"
    finally:
        data = state.named(folder / "kept")
        if data is not None:
            homes.remove((data,))


async def test_a_failed_test_keeps_its_fork_and_names_it_and_a_passed_one_does_not(
    server: Server, tmp_path: Path
) -> None:
    test = """
def test_passes(fork):
    print("passed on", fork.name)
    assert fork.password not in f"{fork!r} {fork.connect()!r}"
def test_fails(fork): assert not fork
"""
    arguments = ("-n", "2", "--redteam-keep", "failed", "--redteam-server", dsn_of(server))
    done = run_pytest(project(tmp_path, test), *arguments)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    [name] = re.findall(r"kept: (\S+)", done.stdout)
    assert OWN_NAME.match(name)
    left = [fork for fork in await list_forks(server) if fork in done.stdout]
    assert left == [name]
    async with open_registry(server) as registry:
        [entry] = [entry for entry in await registry.entries() if entry.name == name]
        assert (entry.state, entry.label) == ("kept", "test_it.py::test_fails")
        await drop_entry(server, registry, entry)


@pytest.mark.parametrize(
    ("config", "test", "message"),
    [
        (
            "[tool.pytest.ini_options]\n",
            "def test_it(fork): pass",
            'redteam_seed = ["schema.sql", "data.sql"]',
        ),
        (
            '[tool.pytest.ini_options]\nredteam_seed = ["sed.sql"]\n',
            "def test_it(fork): pass",
            "seed file 'sed.sql' is not in",
        ),
        (
            _CONFIG + 'redteam_server = "postgresql://nobody@127.0.0.1:1/postgres"\n',
            "def test_it(fork): pass",
            "cannot use the server at 127.0.0.1:1",
        ),
        (_CONFIG + 'redteam_keep = "failed"\n', "def test_it(fork): pass", "needs a server that outlives"),
        (_CONFIG + 'redteam_keep = "all"\n', "def test_it(fork): pass", "must be none or failed"),
        (_CONFIG + 'redteam_seed_anchor = "soon"\n', "def test_it(fork): pass", "write a day as 2026-11-30"),
    ],
    ids=["no seed", "no such file", "no server", "nowhere to keep", "keep what", "no date"],
)
def test_what_is_wrong_in_the_configuration_is_one_message_without_a_stack(
    tmp_path: Path, config: str, test: str, message: str
) -> None:
    done = run_pytest(project(tmp_path, test, config=config), "-rN")
    assert message in done.stdout, done.stdout + done.stderr
    assert "1 error" in done.stdout
    assert ".py:" not in done.stdout


def test_a_project_that_uses_no_fork_neither_starts_a_server_nor_imports_a_driver(tmp_path: Path) -> None:
    test = """
import sys
def test_nothing():
    assert not {"asyncpg", "pglast", "redteam_forker.fork"} & sys.modules.keys()
    assert "redteam_forker.pytest_plugin" in sys.modules
"""
    done = run_pytest(project(tmp_path, test, config="[tool.pytest.ini_options]\n"))
    assert done.returncode == 0, done.stdout


def test_an_interrupted_session_takes_its_server_with_it(tmp_path: Path) -> None:
    test = """
import pathlib
def test_it(fork):
    pathlib.Path("where").write_text(fork.host)
    raise KeyboardInterrupt
"""
    done = run_pytest(project(tmp_path, test))
    assert done.returncode == 2, done.stdout
    assert not Path((tmp_path / "where").read_text()).exists()
