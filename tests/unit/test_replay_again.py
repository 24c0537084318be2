"""What must be as it was for a run to be held again, and what a replay says of itself in run.json."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from support.cli import write_suite

from redteam_harness.evidence.run import RunDirectory, fingerprint
from redteam_harness.launch.suite import load_suite
from redteam_harness.replaying.again import Replaying
from redteam_sdk.errors import UsageError

ANCHOR = dt.date(2026, 11, 30)


def facts(*, weeks: int = 2, plan: str = "p", actor: str = "scripted", **parts: Any) -> dict[str, Any]:
    key = {"seeds": ["s"], "plan": plan, "rules": "r", "actor": actor, "actor_prompt": None, **parts}
    return {
        "notice": "live: somebody",
        "comparability": {"key": fingerprint(key), **key},
        "templates": {"only": {"weeks_moved": weeks}},
        "plan": [{"id": "c001", "repetition": 1}, {"id": "c001.2", "repetition": 2}],
    }


def replay(recorded: dict[str, Any], *, level: Any = 2, escalates: bool = False, **parts: Any) -> Replaying:
    run = RunDirectory(id="base12", path=parts.pop("path", Path("/runs/base12")))
    given = {"run": run, "finished": frozenset[str]()}
    given |= {"recorded": recorded, "evidence": "e", "level": level, "escalates": escalates}
    return Replaying(**{**given, **parts})


def test_a_replay_of_level_2_has_the_key_of_the_run_whose_lines_it_says() -> None:
    recorded = facts(actor="model-a", actor_prompt="prompt")
    made = replay(recorded).facts(facts(actor="scripted"))
    assert made["comparability"] == recorded["comparability"]
    assert made["replay"] == {
        "of": "base12",
        "at": "/runs/base12",
        "level": 2,
        "escalate": False,
        "evidence": "e",
    }
    assert made["notice"] == "replay of base12, level 2; live: somebody"


def test_a_replay_of_level_3_says_who_plays_now() -> None:
    made = replay(facts(actor="model-a"), level=3).facts(facts(actor="scripted"))
    assert made["comparability"] == facts(actor="scripted")["comparability"]


def test_other_rules_are_no_hindrance_and_stay_a_difference_in_the_key() -> None:
    recorded = facts(rules="before")
    made = replay(recorded).facts(facts(rules="after"))
    assert made["comparability"]["rules"] == "after"
    assert made["comparability"]["key"] != recorded["comparability"]["key"]


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"plan": "other"}, "who comes with what"),
        ({"seeds": ["other"]}, "the data that forks begin with"),
        ({"cases": "other"}, "what the cases say"),
        ({"turns": 9}, "turns"),
    ],
    ids=str,
)
def test_another_plan_or_other_data_is_refused_by_name(level: int, now: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match="run base12 cannot be replayed") as refused:
        replay(facts(), level=level).facts(facts(**now))
    assert named in str(refused.value)


def test_dates_of_another_week_are_refused_where_lines_are_recorded() -> None:
    with pytest.raises(UsageError, match="dates of case only were moved by 2 weeks, and now by 3"):
        replay(facts(weeks=2)).facts(facts(weeks=3))
    replay(facts(weeks=2), level=3).facts(facts(weeks=3))


def test_dates_are_moved_as_they_were_except_at_level_3() -> None:
    assert replay(facts(weeks=2)).today(ANCHOR) == dt.date(2026, 12, 14)
    assert replay(facts(weeks=2)).today(None) is None
    assert replay(facts(weeks=2), level=3).today(ANCHOR) is None


def test_what_is_escalated_must_be_played_by_whoever_played_before() -> None:
    recorded = facts(actor="model-a")
    with pytest.raises(UsageError, match="played by model-a, and scripted would play on"):
        replay(recorded, escalates=True).facts(facts(actor="scripted"))
    replay(recorded, escalates=True).facts(facts(actor="model-a"))


def test_the_plan_is_counted_from_the_run() -> None:
    assert (replay(facts()).count, replay(facts()).repeat) == (1, 2)


@pytest.mark.parametrize("kind", ["external", "tool_call"])
def test_recorded_answers_that_an_agent_cannot_be_given_refuse_level_2(tmp_path: Path, kind: str) -> None:
    folder = write_suite(
        tmp_path / "suite", schema="", agent="", rules="the-rule: {severity: 1, sql: SELECT true FROM people}"
    )
    written = (folder / "suite.yaml").read_text().splitlines()
    command = 'agent: {command: ["true"], env: DATABASE_URL}'
    lines = [command if line.startswith("agent:") else line for line in written]
    (folder / "suite.yaml").write_text("\n".join(lines) + "\n")
    suite = load_suite(folder)
    run = tmp_path / "run"
    (run / "conversations" / "c001").mkdir(parents=True)
    event = {"kind": kind, "turn": 1, "name": "pay", "arguments": {}}
    (run / "conversations" / "c001" / "trace.jsonl").write_text(json.dumps(event) + "\n")
    finished = frozenset({"c001"})
    replay(facts(), level=3, path=run, finished=finished).check_agent(suite)
    if kind == "external":
        with pytest.raises(UsageError, match="c001 called external tools"):
            replay(facts(), path=run, finished=finished).check_agent(suite)
    else:
        replay(facts(), path=run, finished=finished).check_agent(suite)
