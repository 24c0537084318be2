"""Killed in the middle, then resumed: what finished is kept byte for byte, and everything is counted."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from support.cli import REDTEAM, environment, own_cache, redteam
from support.live import live_suite, players
from support.messages_api import Answer, messages_api, text

from redteam_harness.evidence.journal import Journal, read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from support.messages_api import MessagesApi

COUNT, PARALLEL = 6, 2


class Stoppable:
    """The suite's models, until so many answers were given; then every call hangs until `go_on`."""

    def __init__(self, answers: int) -> None:
        self.left = answers
        self.hanging = 0
        self._play = players()

    def go_on(self) -> None:
        """Answer again."""
        self.left = 10_000

    def __call__(self, request: dict[str, Any]) -> Answer:
        """The answer; called under the server's lock."""
        if self.left == 0:
            self.hanging += 1
            return text("").but("hang")
        self.left -= 1
        return self._play(request)


def _finished(journal: Path) -> list[str]:
    return [
        entry["conversation"] for entry in read_journal(journal) if entry["kind"] == "conversation_finished"
    ]


def _bytes(run: Path, conversations: list[str]) -> dict[str, bytes]:
    return {
        str(path.relative_to(run)): path.read_bytes()
        for name in conversations
        for path in sorted((run / "conversations" / name).iterdir())
    }


async def _killed(suite: Path, out: Path, cache: str, models: Stoppable, api: MessagesApi) -> Path:
    """Launch, kill the launcher once every conversation in flight hangs; returns the run's directory."""
    process = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
        [str(REDTEAM), "launch", str(suite), "--parallel", str(PARALLEL), "--out", str(out)],
        env=environment(
            XDG_CACHE_HOME=cache, ANTHROPIC_API_KEY="sk-test-key", ANTHROPIC_BASE_URL=api.base_url
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # A server of its own is started first, which takes a while on a busy machine.
        with anyio.fail_after(120):
            while models.hanging < PARALLEL and process.poll() is None:  # noqa: ASYNC110 - a thread sets it
                await anyio.sleep(0.02)
        assert process.poll() is None, process.communicate()[1]
    finally:
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.communicate)
    (run,) = await anyio.to_thread.run_sync(lambda: list(out.iterdir()))
    return run


def _resume(run: Path, cache: str, api: MessagesApi, *more: object) -> subprocess.CompletedProcess[str]:
    return redteam(
        *("launch", "--resume", run, "--parallel", PARALLEL, "--json", *more),
        XDG_CACHE_HOME=cache,
        ANTHROPIC_API_KEY="sk-test-key",
        ANTHROPIC_BASE_URL=api.base_url,
    )


@pytest.mark.timeout(240)
async def test_a_killed_run_goes_on_where_it_was_and_both_launches_are_counted(tmp_path: Path) -> None:
    suite = live_suite(tmp_path / "suite", count=COUNT)
    models = Stoppable(answers=20)
    async with own_cache(tmp_path / "cache") as cache:
        with messages_api(models) as api:
            run = await _killed(suite, tmp_path / "out", cache, models, api)
            journal = run / "journal.jsonl"
            kept = _finished(journal)
            assert 0 < len(kept) <= COUNT - PARALLEL
            before, lines = _bytes(run, kept), journal.read_bytes()
            cut_off = {path.name for path in (run / "conversations").iterdir()} - set(kept)
            journal.write_bytes(lines + b'{"kind": "conversation_fin')  # a line that the crash cut

            models.go_on()
            # Other rules, another run: refused, and the difference is named.
            rules = (suite / "rules.yaml").read_text()
            (suite / "rules.yaml").write_text(rules.replace("balance = 5", "balance = 6"))
            refused = await anyio.to_thread.run_sync(_resume, run, cache, api)
            assert refused.returncode == 2
            assert "cannot be resumed, because this launch is not the same: rules." in refused.stderr
            (suite / "rules.yaml").write_text(rules)
            assert journal.read_bytes() == lines

            done = await anyio.to_thread.run_sync(_resume, run, cache, api)
            again = await anyio.to_thread.run_sync(_resume, run, cache, api)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outcomes"] == {"pass": COUNT}
    assert [one["id"] for one in report["conversations"]] == [f"c{n:03}" for n in range(1, COUNT + 1)]
    assert (report["launches"], report["not_held"]["conversations"]) == (2, [])
    assert _bytes(run, kept) == before
    assert journal.read_bytes().startswith(lines)
    assert sorted(_finished(journal)) == [f"c{n:03}" for n in range(1, COUNT + 1)]
    (resumed,) = [entry for entry in read_journal(journal) if entry["kind"] == "run_resumed"]
    assert set(resumed["cut_off"]) == cut_off
    assert {path.name for path in (run / "abandoned").iterdir()} == {f"{name}-1" for name in cut_off}
    # What was cut off was paid for, too.
    for row in report["usage"]["rows"]:
        told = api.tokens(row["model"])
        assert (row["input"], row["output"]) == (told["input_tokens"], told["output_tokens"])
    for one in report["conversations"]:
        assert len(one["verdicts"]) == 3  # two rules and the gate, of one attempt only
    assert again.returncode == 2
    assert "has nothing left to hold" in again.stderr


async def test_a_run_that_is_being_written_is_not_resumed(tmp_path: Path) -> None:
    run = tmp_path / "abc234"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"plan": [{"id": "c001"}], "suite_at": str(tmp_path)}))
    suite = live_suite(tmp_path / "suite")
    with Journal(run / "journal.jsonl") as journal:
        journal.append("run_started", planned=1)
        done = await anyio.to_thread.run_sync(lambda: redteam("launch", suite, "--resume", run))
    assert done.returncode == 2
    assert "still being written by another launcher" in done.stderr
