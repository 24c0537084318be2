"""Runs `redteam` as a person does: the installed command, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import anyio

from redteam_forker.servers import discard_shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redteam_forker import Server

__all__ = [
    "CACHE",
    "NO_MODELS",
    "REDTEAM",
    "ROOT",
    "dsn_of",
    "own_cache",
    "redteam",
    "report_of",
    "write_suite",
]

ROOT = Path(__file__).resolve().parents[2]
REDTEAM = Path(sys.executable).with_name("redteam")
_TIMEOUT_S = 55


# Even with a key, a test reaches no model: nobody listens on the discard port.
NO_MODELS = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}

# One embedded server for all commands of all workers, apart from the one that this user has.
CACHE = Path(tempfile.gettempdir()) / f"redteam-tests-{os.getuid()}"


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without a model's key, and with what a test adds."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "OPENAI_"))
    }
    return {**kept, **NO_MODELS, "XDG_CACHE_HOME": str(CACHE), **extra}


@contextlib.asynccontextmanager
async def own_cache(folder: Path) -> AsyncIterator[str]:
    """A cache for commands that need an embedded server of their own, removed with what it kept."""
    try:
        yield str(folder)
    finally:
        with anyio.fail_after(30):
            while not await discard_shared(folder / "redteam"):  # noqa: ASYNC110 - a process that ends sets no event
                await anyio.sleep(0.02)


def redteam(*arguments: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `redteam` to its end. Whatever it says, a traceback is never what a person sees."""
    done = subprocess.run(
        [str(REDTEAM), *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report that `--json` printed."""
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def dsn_of(server: Server, database: str = "postgres") -> str:
    """A test server's own DSN, to be used as somebody else's server."""
    environment = server.psql(database).env
    query = urlencode({"host": server.facts.host, "port": server.facts.port})
    return f"postgresql://{environment['PGUSER']}:{quote(environment['PGPASSWORD'])}@/{database}?{query}"


_SUITE = """\
suite: {name}
seed: {{files: [schema.sql]}}
agent: {{python: "agent:answer", stdout: {stdout}, timeout_s: {timeout_s}}}
count: {count}
turns: {turns}
personas:
  select: {select}
  key: id
cases:
  - id: only
    demand: Do it.
    ends: when it is done
    offline: {{says: {says}}}
    rubric: [the-rule]
rules: rules.yaml
"""
_DEFAULTS: Mapping[str, object] = {
    "name": "small",
    "stdout": "fault",
    "timeout_s": 20,
    "count": 4,
    "turns": 3,
    "select": "SELECT * FROM people",
    "says": '["Please do it, {name}."]',
}


def write_suite(folder: Path, *, schema: str, agent: str, rules: str, **parts: object) -> Path:
    """Write a suite of one case and one rule (`the-rule`); `parts` replace the defaults above."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.yaml").write_text(_SUITE.format(**{**_DEFAULTS, **parts}))
    (folder / "schema.sql").write_text(schema)
    (folder / "agent.py").write_text(agent)
    (folder / "rules.yaml").write_text(rules)
    return folder
