"""Code that keeps the address that it found at its import: a process for each conversation, on its fork."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import REDTEAM, dsn_of, environment, redteam, report_of
from support.processes import until, working_in
from support.tasked import write_tasked_suite

from redteam_forker import list_forks

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server


def _answering(do_it: str, *, before: str = "") -> str:
    """An agent that knows nothing of us, and does it with `do_it(name)`."""
    return f"""
import os, re
{before}
{do_it}

def seen():
    return ask("SELECT current_database()")

def answer(message, session):
    name = re.search(r"it, (\\w+)\\.", message)
    if name is None:
        return "Goodbye."
    do(name[1])
    return "Done."
"""


# Everything at import, as code of production does it: the address, an engine, a thread that works.
PSYCOPG = """
import psycopg_pool, queue, threading

pool = psycopg_pool.ConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=2, open=True)
jobs = queue.Queue()

def work():
    while True:
        name, done = jobs.get()
        with pool.connection() as connection:
            connection.execute("UPDATE people SET done = done + 1 WHERE name = %s", (name,))
        done.set()

threading.Thread(target=work, daemon=True).start()

def do(name):
    done = threading.Event()
    jobs.put((name, done))
    done.wait()

def ask(question):
    with pool.connection() as connection:
        return connection.execute(question).fetchone()[0]
"""
SQLALCHEMY = """
import sqlalchemy

engine = sqlalchemy.create_engine(os.environ["APP_DB"], pool_size=2)

def do(name):
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE people SET done = done + 1 WHERE name = :n"), {"n": name})

def ask(question):
    with engine.connect() as connection:
        return connection.execute(sqlalchemy.text(question)).scalar()
"""
SQLALCHEMY_ASYNCPG = """
import asyncio, sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

engine = create_async_engine(os.environ["APP_DB"], poolclass=NullPool)

async def run(question, **values):
    async with engine.begin() as connection:
        found = await connection.execute(sqlalchemy.text(question), values)
        return found.scalar() if found.returns_rows else None

def do(name):
    asyncio.run(run("UPDATE people SET done = done + 1 WHERE name = :n", n=name))

def ask(question):
    return asyncio.run(run(question))
"""
ASYNCPG_PARTS = """
import asyncio, asyncpg

async def run(question, *values):
    connection = await asyncpg.connect()          # PGHOST, PGUSER, ...
    try:
        return await connection.fetchval(question, *values)
    finally:
        await connection.close()

def do(name):
    asyncio.run(run("UPDATE people SET done = done + 1 WHERE name = $1", name))

def ask(question):
    return asyncio.run(run(question))
"""
LIBPQ = """
import psycopg

def do(name):
    with psycopg.connect("") as connection:        # PGHOST, PGUSER, ...
        connection.execute("UPDATE people SET done = done + 1 WHERE name = %s", (name,))

def ask(question):
    with psycopg.connect("") as connection:
        return connection.execute(question).fetchone()[0]
"""
URL = "{user}:{password}@/{database}?host={host}&port={port}"
PARTS = (
    "{PGHOST: '{host}', PGPORT: '{port}', PGUSER: '{user}', "
    "PGPASSWORD: '{password}', PGDATABASE: '{database}'}"
)
KEYWORDS = "{APP_DB: 'host={host} port={port} user={user} password={password} dbname={database}'}"
KEYWORD_AGENT = LIBPQ.replace('connect("")', 'connect(os.environ["APP_DB"])')


def _suite(folder: Path, agent: str, *, env: str, more: str = "", **parts: object) -> Path:
    names = [f"p{number}" for number in range(1, 9)]
    suite = write_tasked_suite(folder, names, agent=agent, **{"count": 2, "turns": 3, **parts})
    text = (suite / "suite.yaml").read_text()
    text = text.replace("timeout_s:", f"isolation: process, env: {env}, {more} timeout_s:")
    (suite / "suite.yaml").write_text(text)
    return suite


async def _launch(suite: Path, server: Server, out: Path, **env: Any) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(
        lambda: redteam(
            "launch", suite, "--server", dsn_of(server), "--parallel", 8, "--out", out, "--json", **env
        )
    )


def _events(out: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(out.glob("*/conversations/*/trace.jsonl"))
        for line in path.read_text().splitlines()
    ]


@pytest.mark.parametrize(
    ("code", "env"),
    [
        pytest.param(PSYCOPG, "DATABASE_URL", id="psycopg-pool-and-thread"),
        pytest.param(SQLALCHEMY, f'{{APP_DB: "postgresql+psycopg://{URL}"}}', id="sqlalchemy-psycopg"),
        pytest.param(
            SQLALCHEMY_ASYNCPG, f'{{APP_DB: "postgresql+asyncpg://{URL}"}}', id="sqlalchemy-asyncpg"
        ),
        pytest.param(ASYNCPG_PARTS, PARTS, id="asyncpg-by-PG-variables"),
        pytest.param(LIBPQ, PARTS, id="libpq-by-PG-variables"),
        pytest.param(KEYWORD_AGENT, KEYWORDS, id="libpq-keywords"),
    ],
)
async def test_code_that_captures_its_address_at_import_works_on_its_own_fork(
    server: Server, tmp_path: Path, code: str, env: str
) -> None:
    before = set(await list_forks(server))
    suite = _suite(tmp_path / "suite", _answering(code), env=env, more="probe: 'agent:seen',")
    done = await _launch(suite, server, tmp_path / "out", DATABASE_URL="postgresql://prod.example/prod")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert report_of(done)["outcomes"] == {"pass": 2}
    probed = [event for event in _events(tmp_path / "out") if event["kind"] in ("probe", "probed")]
    forks = {event["fork"] for event in probed if event["kind"] == "probed"}
    assert len(forks) == 2
    assert {event["database"] for event in probed} == forks
    assert sum(event["kind"] == "probe" for event in probed) == 4  # the address and the code's own engine
    assert set(await list_forks(server)) <= before  # a killed launcher's may have been swept


async def test_a_dotenv_file_that_wins_over_the_environment_is_refused_before_anything_connects(
    server: Server, tmp_path: Path
) -> None:
    overriding = 'os.environ["DATABASE_URL"] = "postgresql://app:hunter22@127.0.0.1:1/production"\n'
    suite = _suite(
        tmp_path / "suite", _answering("def do(name): pass", before=overriding), env="DATABASE_URL"
    )
    done = await _launch(suite, server, tmp_path / "out")
    assert done.returncode == 2
    assert "importing the agent changed the variable DATABASE_URL" in done.stderr
    assert "hunter22" not in done.stderr + done.stdout
    assert list((tmp_path / "out").iterdir()) == []


async def test_an_engine_of_its_own_that_sees_another_database_ends_the_launch(
    server: Server, tmp_path: Path
) -> None:
    elsewhere = 'def do(name): pass\ndef ask(question): return "production"\n'
    suite = _suite(tmp_path / "suite", _answering(elsewhere), env="DATABASE_URL", more="probe: 'agent:seen',")
    done = await _launch(suite, server, tmp_path / "out")
    assert done.returncode == 2
    assert "probe agent:seen leads to database 'production', not to this conversation's fork" in done.stderr


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        pytest.param("import nothing_of_that_name", "No module named 'nothing_of_that_name'", id="import"),
        pytest.param("def answer(): ...", "must take (message, session)", id="signature"),
        pytest.param("import os; os._exit(3)", "the agent process ended", id="crash"),
        pytest.param(
            "import os; raise RuntimeError(os.environ['DATABASE_URL'])", "[secret]", id="says-its-secret"
        ),
    ],
)
async def test_an_agent_that_cannot_be_imported_ends_the_launch_once_before_any_conversation(
    server: Server, tmp_path: Path, agent: str, says: str
) -> None:
    before = set(await list_forks(server))
    suite = _suite(tmp_path / "suite", agent, env="DATABASE_URL", count=20)
    done = await _launch(suite, server, tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("redteam:") == 1
    assert list((tmp_path / "out").iterdir()) == []
    assert set(await list_forks(server)) <= before  # a killed launcher's may have been swept


async def test_the_address_is_in_no_argument_no_inherited_environment_and_no_evidence(
    server: Server, tmp_path: Path
) -> None:
    looking = """
import asyncio, pathlib, sys
def do(name):
    address = os.environ["DATABASE_URL"]
    secret = address.split(":")[2].split("@")[0]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        assert secret.encode() not in seen, process
    sys.stderr.write(f"looked {len(secret)}\\n")
    raise LookupError(address)
"""
    suite = _suite(tmp_path / "suite", _answering(looking), env="DATABASE_URL", count=1)
    done = await _launch(suite, server, tmp_path / "out")
    report = report_of(done)
    assert report["outcomes"] == {"infra-fault": 1}
    assert report["conversations"][0]["fault"]["message"].startswith("LookupError: postgresql://")
    assert "[secret]" in report["conversations"][0]["fault"]["message"]
    run = next((tmp_path / "out").iterdir())
    assert "looked 32" in (run / "agent.log").read_text()


async def test_what_one_conversation_does_to_its_process_no_other_sees(
    server: Server, tmp_path: Path
) -> None:
    crashing = "def do(name):\n    if name in ('p1', 'p2'): os._exit(9)\n" + PSYCOPG.replace(
        "def do(name):", "def really(name):"
    ).replace("def ask", "def unused")
    suite = _suite(
        tmp_path / "suite",
        _answering(crashing.replace("os._exit(9)", "os._exit(9)\n    really(name)")),
        env="DATABASE_URL",
        count=8,
    )
    done = await _launch(suite, server, tmp_path / "out")
    report = report_of(done)
    assert report["outcomes"] == {"pass": 6, "infra-fault": 2}, report
    assert {one["fault"]["cause"] for one in report["conversations"] if one["fault"]} == {"crash"}


async def test_threads_and_executors_without_a_context_are_on_the_conversations_fork(
    server: Server, tmp_path: Path
) -> None:
    threads = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
from redteam_sdk import db, external, tool

workers = ThreadPoolExecutor(2)
workers.submit(int).result()                       # a worker that is older than the turn

@external(mock=lambda text: None)
def notify(text): raise RuntimeError("the real world was reached")

@tool
def run(name):
    notify(name)
    asyncio.run(db.execute("UPDATE people SET done = done + 1 WHERE name = $1", name))
    asyncio.run(db.close())

def do(name):
    workers.submit(run, name).result()
"""
    suite = _suite(tmp_path / "suite", _answering(threads), env="DATABASE_URL")
    done = await _launch(suite, server, tmp_path / "out")
    assert report_of(done)["outcomes"] == {"pass": 2}, done.stdout
    kinds = [event["kind"] for event in _events(tmp_path / "out")]
    assert (kinds.count("tool_call"), kinds.count("external")) == (2, 2)


async def test_what_an_agent_started_does_not_outlive_a_launcher_that_is_killed(
    server: Server, tmp_path: Path
) -> None:
    starting = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])

def do(name):
    open(f"pid-{os.getpid()}", "w").close()
    time.sleep(3600)
"""
    suite = _suite(tmp_path / "suite", _answering(starting), env="DATABASE_URL", timeout_s=600)
    launcher = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
        [str(REDTEAM), "launch", str(suite), "--server", dsn_of(server), "--out", str(tmp_path / "out")],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await until(lambda: len([*suite.glob("pid-*")]) == 2 and len(working_in(suite)) >= 4)
        launcher.kill()
        await until(lambda: working_in(suite) == [])
    finally:
        launcher.kill()
        launcher.wait()
