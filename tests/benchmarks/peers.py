"""What ours is measured beside: pytest-postgresql, in a pytest of its own, and a database just loaded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.places import DISK

from redteam_forker.probe import probe_seed
from redteam_forker.servers import binaries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.seeds import Seed
    from redteam_forker.servers import Server

__all__ = ["QUERY", "install", "latency", "loaded"]

QUERY = "SELECT amount FROM probe WHERE id = 1"
MIB = 1 << 20
STOP_S = 60.0

_TEST = """
import json, time
from pathlib import Path
import pytest
from pytest_postgresql import factories

ROUNDS, OUT = {rounds}, Path({out!r})
server = factories.postgresql_proc(executable={pg_ctl!r}, load=[Path({seed!r})])
client = factories.postgresql("server")
asked, times = {{}}, []


@pytest.fixture
def clock(server):
    asked["at"] = time.perf_counter()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_first_answer(clock, client, number):
    assert client.execute({query!r}).fetchone() == (7,)
    times.append(time.perf_counter() - asked["at"])
    if number == ROUNDS - 1:
        OUT.write_text(json.dumps(times))
"""


@contextlib.asynccontextmanager
async def loaded(server: Server, seed: Seed) -> AsyncIterator[str]:
    """A database that the seed was loaded into, as somebody makes a template who has nothing but psql."""
    [file] = seed.files
    async with server.maintenance() as connection:
        await connection.execute("CREATE DATABASE loaded")
    session = await server.connect("loaded")
    await session.execute(file.text)
    await session.close()
    yield "loaded"
    async with server.maintenance() as connection:
        await connection.execute("DROP DATABASE loaded WITH (FORCE)")


def install(stack: contextlib.ExitStack) -> str:
    """The Python of a venv with pytest-postgresql, or an empty text; says which versions, or why none."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rt-bench-peer-", dir=DISK)))
    folder.chmod(0o755)  # it runs as the user that PostgreSQL runs as
    python = str(folder / "venv/bin/python")
    done = _run([sys.executable, "-m", "venv", "--copies", str(folder / "venv")], stop=signal.SIGKILL)
    if not done.returncode:
        command = [python, "-m", "pip", "install", "-q", "pytest-postgresql", "psycopg[binary]"]
        done = _run(command, stop=signal.SIGKILL)
    if done.returncode:
        print(f"left out: pytest-postgresql cannot be installed: {done.stderr.strip().splitlines()[-1]}\n")
        return ""
    command = [python, "-m", "pip", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = [" ".join(line.split()) for line in listed if line.startswith(("pytest", "psycopg "))]
    print(f"beside ours: {', '.join(wanted)}, on the same PostgreSQL programs\n")
    return python


def latency(python: str, root: Path, *, size: int, rounds: int) -> list[float]:
    """Times of its own fixture, from before it is asked for to the first answer, in seconds.

    Args:
        python: from `install`.
        root: where its cluster's data goes.
        size: of the template, in MB.
        rounds: how many tests.
    """
    user = binaries.runner(None)
    programs = binaries.reachable(binaries.installed(), user)
    with tempfile.TemporaryDirectory(prefix="rt-bench-peer-", dir=root) as directory:
        folder = Path(directory)
        [file] = probe_seed(size * MIB).files
        seed, out = folder / "seed.sql", folder / "times.json"
        seed.write_bytes(file.data)
        values = {"out": str(out), "pg_ctl": str(programs / "pg_ctl"), "seed": str(seed), "query": QUERY}
        (folder / "test_peer.py").write_text(_TEST.format(rounds=rounds, **values), encoding="utf-8")
        become: dict[str, Any] = {}
        if user is not None:
            become = {"user": user.uid, "group": user.gid, "extra_groups": []}
            for path in (folder, *folder.iterdir()):
                os.chown(path, user.uid, user.gid)
        base = f"--basetemp={folder / 'base'}"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", base]
        done = _run(
            [*command, "test_peer.py"],
            stop=signal.SIGINT,  # it stops its server then
            cwd=folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(folder)},
            **become,
        )
        if done.returncode:
            raise SystemExit(f"pytest-postgresql failed:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}")
        times: list[float] = json.loads(out.read_text(encoding="utf-8"))
    return times


def _run(command: list[str], *, stop: signal.Signals, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; if we are ended meanwhile, end it and what it started, and wait for it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )
    try:
        out, err = process.communicate()
    except BaseException:
        os.killpg(process.pid, stop)
        process.communicate(timeout=STOP_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
