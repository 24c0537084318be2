"""Whatever is wrong: one clear message, the right exit code, nothing left behind."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from support.cli import REDTEAM, dsn_of, environment, redteam

from redteam_forker import list_forks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redteam_forker import Server


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    assert redteam("init", folder).returncode == 0
    return folder


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path.name}"
    path.write_text(text.replace(old, new, 1))


# What to change in which file of the starter suite, and what the one message must then say.
MISTAKES = [
    pytest.param("suite.yaml", "key: id", "key: ident", r"suite.yaml:", "'ident'", id="missing-key-column"),
    pytest.param(
        "suite.yaml", "m.full_name,", "m.fulname,", "suite.yaml:", "fulname", id="cast-column-unknown"
    ),
    pytest.param(
        "suite.yaml", "SELECT m.id", "SELEKT m.id", "suite.yaml:", "syntax error", id="cast-does-not-parse"
    ),
    pytest.param(
        "suite.yaml",
        "renewable > 0 AND",
        "renewabel > 0 AND",
        "suite.yaml:",
        "renewabel",
        id="who-column-unknown",
    ),
    pytest.param(
        "suite.yaml", "evasive: 1", "evasiv: 1", "suite.yaml:", "'evasive'", id="unknown-disposition"
    ),
    pytest.param(
        "suite.yaml", "card: when asked", "cart: when asked", "suite.yaml:", "cart", id="unknown-fact"
    ),
    pytest.param(
        "suite.yaml", "agent:library", "agnet:library", "agnet", "ModuleNotFoundError", id="agent-module"
    ),
    pytest.param("suite.yaml", "agent:library", "agent:librery", "agent", "librery", id="agent-callable"),
    pytest.param(
        "suite.yaml", "role: library_app", "role: library_ap", "library_ap", "role", id="unknown-role"
    ),
    pytest.param("suite.yaml", "loans.due_on", "loans.due", "loans", "due_on", id="moves-unknown-column"),
    pytest.param("rules.yaml", "- loans:", "- lones:", "rules.yaml:", "lones", id="rule-names-unknown-table"),
    pytest.param(
        "rules.yaml", "JOIN before.loans", "JOIN before.lones", "rules.yaml:", "lones", id="rule-before"
    ),
    pytest.param("rules.yaml", "SELECT NOT", "SELECT NOTT", "rules.yaml:", "", id="rule-sql-does-not-parse"),
    pytest.param("rules.yaml", ":persona.id", ":persona.idd", "rules.yaml:", "idd", id="rule-persona-column"),
    pytest.param(
        "schema.sql", "CREATE TABLE loans", "CREATE TABEL loans", "schema.sql:", "TABEL", id="seed-error"
    ),
    pytest.param(
        "schema.sql", "'L-1004'", "'L-1001'", "schema.sql:", "members_card_key", id="seed-fails-on-the-server"
    ),
    pytest.param("agent.py", "import re", "import rre", "agent", "rre", id="agent-fails-to-import"),
    pytest.param(
        "agent.py", "import re", "raise SystemExit('no')", "agent", "no", id="agent-exits-on-import"
    ),
]


@pytest.mark.parametrize(("file", "old", "new", "where", "what"), MISTAKES)
async def test_a_mistake_in_a_suite_is_one_message_and_leaves_nothing(
    server: Server, suite: Path, tmp_path: Path, file: str, old: str, new: str, where: str, what: str
) -> None:
    _change(suite / file, old, new)
    before = await list_forks(server)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("launch", suite, "--server", dsn_of(server), "--out", tmp_path / "out")
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("redteam: ")
    assert where in done.stderr
    assert what in done.stderr
    assert list((tmp_path / "out").glob("*")) == []
    assert await list_forks(server) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["lanch"], "lanch", id="typo"),
        pytest.param(["launch", "--paralel", "3"], "--paralel", id="unknown-option"),
        pytest.param(["launch", "--parallel", "0"], "--parallel", id="parallel-0"),
        pytest.param(["launch", "--parallel", "many"], "valid integer", id="parallel-no-number"),
        pytest.param(["launch", "--keep", "some"], "some", id="keep"),
        pytest.param(["launch", "nowhere"], "no suite in nowhere", id="no-such-folder"),
        pytest.param(["launch"], "redteam init DIR", id="folder-without-suite"),
        pytest.param(["show", "nope", "c001"], "no run 'nope'", id="no-such-run"),
    ],
)
def test_a_wrong_command_line_is_exit_2_with_the_word_that_is_wrong(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    done = redteam(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_init_never_writes_over_what_is_there(suite: Path) -> None:
    _change(suite / "agent.py", "library", "lending")
    done = redteam("init", suite)
    assert done.returncode == 2
    assert "is there already" in done.stderr
    assert "lending" in (suite / "agent.py").read_text()


def test_a_server_that_is_not_there_is_exit_3_without_the_password(suite: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        dsn = f"postgresql://me:hunter2@127.0.0.1:{taken.getsockname()[1]}/postgres"
        done = redteam("launch", suite, "--server", dsn, "--out", tmp_path / "out")
    assert done.returncode == 3
    assert "127.0.0.1" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    assert list((tmp_path / "out").glob("*")) == []


async def test_a_wrong_password_is_exit_3_and_is_not_repeated(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    dsn = dsn_of(server)
    password = server.psql("postgres").env["PGPASSWORD"]
    done = await anyio.to_thread.run_sync(
        lambda: redteam(
            "launch", suite, "--server", dsn.replace(password, "hunter2"), "--out", tmp_path / "out"
        )
    )
    assert done.returncode == 3
    assert "hunter2" not in done.stderr + done.stdout


@pytest.mark.skipif(
    importlib.util.find_spec("testcontainers") is not None, reason="the extra `docker` is installed"
)
def test_a_container_without_its_extra_says_how_to_install_it(suite: Path, tmp_path: Path) -> None:
    done = redteam("launch", suite, "--server", "docker:postgres:18", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "pip install" in done.stderr
    assert list((tmp_path / "out").glob("*")) == []


def test_an_out_path_that_is_a_file_is_exit_3_and_names_the_way_out(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = redteam("launch", suite, "--out", tmp_path / "file" / "runs")
    assert (done.returncode, "--out DIR" in done.stderr) == (3, True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "tiny"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("this root may not mount")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


async def test_a_disk_that_fills_up_ends_the_launch_with_exit_3_and_drops_every_fork(
    server: Server, suite: Path, tiny_disk: Path
) -> None:
    before = await list_forks(server)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("launch", suite, "--server", dsn_of(server), "--count", 60, "--out", tiny_disk)
    )
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "--out DIR" in done.stderr
    assert await list_forks(server) == before


def test_help_needs_no_server_no_key_and_no_suite(tmp_path: Path) -> None:
    for command in ([], ["launch"], ["init"], ["show"], ["diff"]):
        done = redteam(*command, "--help", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert "Usage: redteam" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(suite: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [str(REDTEAM), "launch", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
