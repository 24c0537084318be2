"""Stopped in the middle: what finished is kept, and nothing of ours runs on."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from support.cli import REDTEAM, dsn_of, environment, own_cache, write_suite
from support.processes import children, is_alive, until, working_in

from redteam_forker import list_forks
from redteam_harness.evidence.journal import read_journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 40) n;
"""
# The first four answer at once; everybody else waits for ever.
AGENT = """
import asyncio
from redteam_sdk import db

served = 0

async def answer(message, session):
    global served
    if message.startswith("Please"):
        served += 1
        if served > 4:
            await asyncio.Event().wait()
    return await db.fetchval("SELECT 'hello from ' || current_database()")
"""
RULES = "the-rule: {severity: 1, why: It must be so., sql: SELECT count(*) = 40 FROM people}\n"
FINISHED = 4


@contextlib.asynccontextmanager
async def _launched(tmp_path: Path, *arguments: str) -> AsyncIterator[tuple[subprocess.Popen[str], Path]]:
    """A launch of which four conversations finished and six hang; killed in the end if it still runs."""
    suite = write_suite(
        tmp_path / "suite", schema=SCHEMA, agent=AGENT, rules=RULES, count=10, turns=2, timeout_s=600
    )
    command = [
        str(REDTEAM),
        "launch",
        str(suite),
        "--parallel",
        "6",
        "--out",
        str(tmp_path / "out"),
        *arguments,
    ]
    async with own_cache(tmp_path / "cache") as cache:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
            command,
            env=environment(XDG_CACHE_HOME=cache),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        try:
            await until(lambda: _finished(tmp_path / "out") == FINISHED and _active(tmp_path / "out") == 6)
            yield process, next((tmp_path / "out").iterdir())
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _finished(out: Path) -> int:
    journals = list(out.glob("*/journal.jsonl"))
    if not journals:
        return 0
    return sum(entry["kind"] == "conversation_finished" for entry in read_journal(journals[0]))


def _active(out: Path) -> int:
    """Conversations whose first line was said and that have not finished."""
    said = sum('"user"' in path.read_text() for path in out.glob("*/conversations/*/trace.jsonl"))
    return said - _finished(out)


async def _ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=30))
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
async def test_a_first_interrupt_drops_forks_keeps_what_finished_and_exits_130(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    before = await list_forks(server)
    async with _launched(tmp_path, "--server", dsn_of(server)) as (process, run):
        assert len(await list_forks(server)) >= len(before) + 6  # and some warm ones
        process.send_signal(number)
        code, out, err = await _ended(process)
    assert code == 130, err
    assert "stopping: dropping forks" in err
    assert "interrupted; 4 conversations finished and kept" in out
    assert await list_forks(server) == before
    report = json.loads((run / "report.json").read_text())
    assert (report["interrupted"], report["finished"], report["planned"]) == (True, FINISHED, 10)
    assert report["outcomes"] == {"pass": FINISHED}


async def test_a_second_interrupt_is_immediate_and_keeps_what_finished(tmp_path: Path) -> None:
    async with _launched(tmp_path) as (process, run):
        started = [*_descendants(process.pid), *working_in(_home(tmp_path))]
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        code, _, _ = await _ended(process)
        await until(lambda: not any(is_alive(pid) for pid in started))
    assert code == 130
    assert _finished(run.parent) == FINISHED


async def test_a_killed_launcher_leaves_no_process_and_costs_only_what_was_in_flight(tmp_path: Path) -> None:
    async with _launched(tmp_path) as (process, run):
        started = [*_descendants(process.pid), *working_in(_home(tmp_path))]
        assert len(started) >= 3  # an agent process, a postmaster and its children
        process.kill()
        await until(lambda: not any(is_alive(pid) for pid in started))
        await until(lambda: not working_in(_home(tmp_path)))
    finished = [
        entry for entry in read_journal(run / "journal.jsonl") if entry["kind"] == "conversation_finished"
    ]
    assert len(finished) == FINISHED
    for entry in finished:
        folder = run / "conversations" / entry["conversation"]
        assert json.loads((folder / "changes.json").read_text())["hash"] == entry["changes"]


def _home(tmp_path: Path) -> Path:
    """Where the launch's embedded server keeps its data."""
    return Path(json.loads((tmp_path / "cache" / "redteam" / "state.json").read_text())["home"])


def _descendants(pid: int) -> list[int]:
    below = children(pid)
    return [*below, *(pid for child in below for pid in _descendants(child))]
