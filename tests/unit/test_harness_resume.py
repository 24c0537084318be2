"""A run's evidence as a later launch goes on with it."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.run import new_run, read_conversation
from redteam_harness.launch.plan import Planned
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.resume import resuming
from redteam_personas import Persona
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory

FACTS = {
    "comparability": {"key": "k1", "rules": "a" * 64, "turns": 12},
    "agent": {"name": "agent:answer", "model": None},
    "notice": "offline",
    "gates": {"fail_on": "any"},
    "plan": [{"id": "c001"}, {"id": "c002"}],
}


def _run(tmp_path: Path, *finished: str) -> RunDirectory:
    run = new_run(tmp_path)
    run.facts.write_text(json.dumps(FACTS))
    with Journal(run.journal) as journal:
        journal.append("run_started", planned=2)
        for name in finished:
            # `c002!` is a conversation that a fault of ours ended.
            outcome = "infra-fault" if name.endswith("!") else "pass"
            journal.append("conversation_finished", conversation=name.rstrip("!"), outcome=outcome)
    return run


def test_a_journal_that_is_gone_on_with_keeps_its_chain_and_loses_only_the_line_that_was_cut(
    tmp_path: Path,
) -> None:
    run = _run(tmp_path, "c001")
    before = run.journal.read_bytes()
    run.journal.write_bytes(before + '{"kind": "ü'.encode())
    with Journal(run.journal, resume=True) as journal:
        journal.append("run_resumed")
    assert run.journal.read_bytes().startswith(before)
    assert [entry["kind"] for entry in read_journal(run.journal)] == [
        "run_started",
        "conversation_finished",
        "run_resumed",
    ]


def test_a_journal_has_one_writer(tmp_path: Path) -> None:
    run = _run(tmp_path)
    with Journal(run.journal, resume=True), pytest.raises(UsageError, match="still being written"):
        Journal(run.journal, resume=True)


def test_a_broken_chain_is_not_gone_on_with(tmp_path: Path) -> None:
    run = _run(tmp_path, "c001")
    run.journal.write_text(run.journal.read_text().replace("c001", "c002"))
    with pytest.raises(EnvironmentFault, match="chain is broken"):
        Journal(run.journal, resume=True)


def test_verdicts_of_a_cut_off_attempt_do_not_count_and_a_half_line_is_taken_off(tmp_path: Path) -> None:
    run = _run(tmp_path)
    run.append_verdicts([{"conversation": "c001", "attempt": 1, "rule": "old"}])
    verdicts = run.path / "verdicts.jsonl"
    verdicts.write_text(verdicts.read_text() + '{"conversation": "c001", "ru')
    run.append_verdicts([{"conversation": "c001", "attempt": 2, "rule": "new"}])
    run.conversation("c001").mkdir()
    (run.conversation("c001") / "conversation.json").write_text('{"id": "c001", "attempt": 2}')
    assert [verdict["rule"] for verdict in read_conversation(run, "c001").verdicts] == ["new"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"comparability": {"turns": 10}}, "turns was 12, is 10", id="a-number"),
        pytest.param({"comparability": {"rules": "b" * 64}}, "the same: rules. Put", id="a-hash"),
        pytest.param({"agent": {"model": "m"}}, "agent.model was nothing, is m", id="the-agents-model"),
        pytest.param({"notice": "live"}, "notice was offline, is live", id="who-plays"),
        pytest.param({"gates": {"fail_on": "sev1"}}, "gates.fail_on was any, is sev1", id="the-gates"),
    ],
)
def test_a_run_that_would_not_be_the_same_is_refused_with_the_difference(
    tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    now = {
        name: {**part, **changed.get(name, {})} if isinstance(part, dict) else changed.get(name, part)
        for name, part in FACTS.items()
    }
    with resuming(_run(tmp_path), retry_faults=False) as resumed:
        resumed.check({**FACTS, "started_at": "later"})
        with pytest.raises(UsageError) as caught:
            resumed.check(now)
    assert says in str(caught.value)


def test_what_is_cut_off_is_set_aside_and_what_is_finished_is_not(tmp_path: Path) -> None:
    run = _run(tmp_path, "c001")
    for name in ("c001", "c002"):
        run.conversation(name).mkdir()
    plan = [_planned(name) for name in ("c001", "c002", "c003")]
    with resuming(run, retry_faults=False) as resumed:
        assert resumed.attempt == 2
        assert resumed.set_aside(plan) == ["c002"]
    assert [path.name for path in run.abandoned] == ["c002-1"]
    assert run.conversation("c001").exists()


def test_a_run_with_nothing_left_or_that_never_began_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="nothing left to hold: all 2"),
        resuming(_run(tmp_path, "c001", "c002"), retry_faults=True),
    ):
        pass
    never = new_run(tmp_path)
    never.facts.write_text(json.dumps(FACTS))
    with pytest.raises(UsageError, match="never began"), resuming(never, retry_faults=False):
        pass


def test_faults_of_ours_are_held_again_where_it_is_asked_for_and_set_aside_first(tmp_path: Path) -> None:
    run = _run(tmp_path, "c001", "c002!")
    for name in ("c001", "c002"):
        run.conversation(name).mkdir()
    said = "nothing left to hold: all 2 are finished; --retry-faults holds c002 again"
    with pytest.raises(UsageError, match=said), resuming(run, retry_faults=False):
        pass
    with resuming(run, retry_faults=True) as resumed:
        assert (list(resumed.entries), resumed.retried) == (["c001"], ("c002",))
        assert resumed.set_aside([_planned("c001"), _planned("c002")]) == ["c002"]
        resumed.journal.append("conversation_finished", conversation="c002", outcome="pass")
    with pytest.raises(UsageError, match=r"all 2 are finished$"), resuming(run, retry_faults=True):
        pass


def test_without_a_terminal_a_long_wait_is_a_line_and_a_short_one_is_not() -> None:
    console = Console(file=io.StringIO(), width=200)
    progress = Progress(console=console, suite="s", live=False)
    progress.started(_planned("c001"))
    progress.doing("c001", 2, "the agent answers")
    progress.waiting("c001", "429, 2nd try", 2)
    progress.waiting("c001", "", 0)
    assert _shown_lines(console) == []
    progress.waiting("c001", "429, 3rd try", 30)
    progress.waiting("c001", "429, 3rd try", 29)
    (line,) = _shown_lines(console)
    assert line.endswith("c001 turn 2, the agent answers: 429, 3rd try, 30 s")
    progress.waiting("c001", "429, 4th try", 60)
    assert len(_shown_lines(console)) == 2


def _shown_lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_progress_says_what_a_conversation_waits_for() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    progress = Progress(console=console, suite="s", live=True)
    progress.started(_planned("c001"))
    progress.doing("c001", 2, "the agent answers")
    progress.waiting("c001", "429, 3rd try", 3600)
    assert "the agent answers: 429, 3rd try, 3600 s" in _shown(progress)
    progress.waiting("c001", "", 0)
    assert "429" not in _shown(progress)


def _shown(progress: Progress) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(progress._render())
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def _planned(name: str) -> Planned:
    return Planned(
        id=name, case="only", persona=Persona(key="1", row={"id": 1}), disposition="cooperative", seed=1
    )
