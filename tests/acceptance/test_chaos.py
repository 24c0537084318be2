"""A launch on an API that fails in every way: each conversation ends with an outcome, and all is counted.

Usually with few conversations; REDTEAM_CHAOS=200 holds so many, twenty at once.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import REDTEAM, dsn_of, environment
from support.live import live_suite, players
from support.messages_api import Answer, messages_api

from redteam_harness.evidence.journal import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

_MANY = int(os.environ.get("REDTEAM_CHAOS", "0"))
_COUNT = _MANY or 16
_SEED = 20261130

LIMITED = Answer(status=429, error="rate_limit_error")
ASKED_TO_WAIT = Answer(status=429, error="rate_limit_error", headers={"retry-after-ms": "40"})
OVERLOADED = Answer(status=529, error="overloaded_error")


class Chaos:
    """Answers as the suite's models do, but for every fifth or so: what went wrong is counted."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self._random = Random(_SEED)
        self._play = players()

    def __call__(self, request: dict[str, Any]) -> Answer:
        """The answer; called under the server's lock."""
        good, draw = self._play(request), self._random.random()
        for share, name, answer in (
            (0.05, "rate_limited", LIMITED),
            (0.10, "rate_limited", ASKED_TO_WAIT),
            (0.13, "overloaded", OVERLOADED),
            (0.14, "cut", good.but("cut")),
            (0.15, "cut", good.but("cut-midway")),
            (0.16, "stalled", good.but("hang")),
            (0.17, "malformed", good.but("malformed")),
            (0.18, "malformed", good.but("not-json")),
        ):
            if draw < share:
                self.met[name] += 1
                return answer
        return good


@pytest.mark.timeout(0 if _MANY else 300)
async def test_no_conversation_is_lost_or_counted_twice_and_no_fault_is_the_agents(
    server: Server, tmp_path: Path
) -> None:
    chaos = Chaos()
    suite = live_suite(tmp_path / "suite", count=_COUNT, models="stall_s: 5")
    with messages_api(chaos) as api:
        report = await anyio.to_thread.run_sync(_launch, suite, server, tmp_path / "out", api.base_url)
    planned = [f"c{number:03}" for number in range(1, _COUNT + 1)]
    assert [one["id"] for one in report["conversations"]] == planned
    assert report["outcomes"] == {"pass": _COUNT}, report["outcomes"]

    (journal,) = (tmp_path / "out").glob("*/journal.jsonl")
    finished = [entry for entry in read_journal(journal) if entry["kind"] == "conversation_finished"]
    assert sorted(entry["conversation"] for entry in finished) == planned

    rows = {row["model"]: row for row in report["usage"]["rows"]}
    for model in ("actor-model", "agent-model"):
        told = api.tokens(model)
        assert (rows[model]["input"], rows[model]["cache_read"], rows[model]["output"]) == (
            told["input_tokens"],
            told["cache_read_input_tokens"],
            told["output_tokens"],
        )
    assert sum(row["calls"] + row["faults"] for row in rows.values()) == len(api.requests)

    events = _model_calls(journal.parent)
    assert sum(event["usage"]["input"] for event in events) == sum(row["input"] for row in rows.values())
    met = Counter(fault["kind"] for event in events for fault in event.get("faults", ()))
    assert met == chaos.met
    assert met["rate_limited"] > 0


def _launch(suite: Path, server: Server, out: Path, base_url: str) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(str(REDTEAM), "launch", str(suite), "--server", dsn_of(server), "--parallel", "20"),
            *("--out", str(out), "--json"),
        ],
        env=environment(ANTHROPIC_API_KEY="sk-test-key", ANTHROPIC_BASE_URL=base_url),
        capture_output=True,
        text=True,
        timeout=None if _MANY else 280,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout[:2000]
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def _model_calls(run: Path) -> list[dict[str, Any]]:
    return [
        event
        for trace in run.glob("conversations/*/trace.jsonl")
        for event in map(json.loads, trace.read_text().splitlines())
        if event["kind"] == "model_call"
    ]
