"""`redteam personas spot-check`: samples, the blind mix, the questions, and what a register says of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from support.recorded_runs import Recorded, record, write_rules

from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import read_conversation
from redteam_harness.people.sampling import blind_mix, sample, told_in
from redteam_harness.people.spot_check import SpotCheckCommand, run_spot_check
from redteam_harness.registers.fidelity import FidelityCheck, Guess, Told, mix_of
from redteam_harness.registers.people import (
    append_fidelity,
    fidelity_checks,
    fidelity_lines,
    fidelity_of_run,
    read_fidelity,
)
from redteam_personas import load_dispositions
from redteam_rubrics.calibration import Share
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "suite")


@pytest.fixture
def run(tmp_path: Path, suite: Path) -> RunDirectory:
    """Five evasive persons, three angry ones, and one whose conversation broke."""
    evasive = [
        Recorded(disposition="evasive", lines=[(f"Evasive opening {n}.", "Who are you?"), ("Me.", "Ok.")])
        for n in range(5)
    ]
    angry = [Recorded(disposition="angry", lines=[(f"Angry opening {n}!", "Sorry.")]) for n in range(3)]
    broken = Recorded(disposition="angry", outcome="sim-fault")
    return record(tmp_path / "runs", suite, [*evasive, *angry, broken], actor="actor-1", actor_prompt="p1")


def command(run: RunDirectory, **more: Any) -> SpotCheckCommand:
    return SpotCheckCommand(
        **{
            "run": str(run.path),
            "per": 2,
            "lines": None,
            "mix": 20,
            "seed": 1,
            "who": "anna",
            "suite": None,
            "out": run.path.parent,
            **more,
        }
    )


def say(run: RunDirectory, *lines: str, **more: Any) -> str:
    shown = io.StringIO()
    console = Console(file=shown, width=160, highlight=False)
    source = io.StringIO("".join(f"{line}\n" for line in lines))
    assert run_spot_check(command(run, **more), console, source) == 0
    return shown.getvalue()


def test_a_sample_has_so_many_of_each_disposition_and_is_decided_by_its_seed(run: RunDirectory) -> None:
    facts = read_facts(run)
    first = sample(run, facts, per=3, seed=1)
    assert {name: len(ids) for name, ids in first.items()} == {"angry": 3, "evasive": 3}
    assert "c009" not in first["angry"]
    assert sample(run, facts, per=3, seed=1) == first
    assert any(sample(run, facts, per=3, seed=seed) != first for seed in range(2, 6))


def test_what_a_reviewer_says_becomes_a_check_per_disposition_bound_to_script_and_actor(
    run: RunDirectory, suite: Path
) -> None:
    # angry: as it should be, gave in in turn 1, too soon, talked out; not as it should be, never, no.
    # evasive: as it should be, in turn 2, not too soon, no; the reviewer cannot say.
    shown = say(run, *"y1yy", *"nnn", *"y2nn", *"???")
    angry, evasive = fidelity_checks(suite)
    assert (angry.disposition, angry.script, angry.actor, angry.actor_prompt) == (
        "angry",
        "script-of-angry",
        "actor-1",
        "p1",
    )
    half, none = Share(count=1, n=2), Share(count=0, n=1)
    assert (angry.in_character, angry.gave_in, angry.too_soon, angry.abandoned) == (half, (1,), half, half)
    assert (evasive.in_character, evasive.gave_in) == (Share(count=1, n=1), (2,))
    assert (evasive.too_soon, evasive.abandoned) == (none, none)
    assert (evasive.who, evasive.run, evasive.mix, len(evasive.conversations)) == ("anna", "run111", None, 2)
    # Each that was talked out of its demand is shown with its last words.
    assert f"talked out of its demand: {angry.conversations[0]}" in shown
    assert shown.rstrip().splitlines()[-2].strip().startswith("Angry opening")


def test_it_goes_on_where_it_stopped_and_the_register_has_the_whole(run: RunDirectory, suite: Path) -> None:
    say(run, "y", "n", "n", "q")
    assert [check.disposition for check in fidelity_checks(suite)] == ["angry"]
    shown = say(run, *["y", "n", "n"] * 3)
    assert "[1 of 12]" in shown
    assert [(one.disposition, len(one.conversations)) for one in fidelity_checks(suite)] == [
        ("angry", 1),
        ("angry", 2),
        ("evasive", 2),
    ]
    # Nothing more to say, nothing more to keep.
    assert "0 of 2 put on file" in say(run)


def test_a_correction_counts_in_place_of_what_it_corrects(run: RunDirectory, suite: Path) -> None:
    say(run, "y", "1", "y", "b", "b", "n", "n", "q")
    (check,) = fidelity_checks(suite)
    assert (check.gave_in, check.too_soon) == ((), Share(count=0, n=1))


def test_what_followed_from_a_corrected_answer_is_taken_back_with_it(run: RunDirectory, suite: Path) -> None:
    # It never gave in, so not too soon; then it did after all, and whether that was too soon is not said yet.
    say(run, "y", "n", "n", "b", "b", "2", "q")
    (check,) = fidelity_checks(suite)
    assert (check.gave_in, check.too_soon) == ((2,), Share(count=0, n=0))


def test_a_damaged_answer_is_named(run: RunDirectory) -> None:
    (run.path / "spot-checks.jsonl").write_text('{"who": "anna", "seed": 1}\n')
    with pytest.raises(EnvironmentFault, match=r"spot-checks.jsonl:1: this is no answer"):
        say(run, "y")


def test_an_answer_that_is_none_ends_a_pipe_and_keeps_what_came_before(
    run: RunDirectory, suite: Path
) -> None:
    with pytest.raises(UsageError, match="line 3 of the input, 'perhaps', is no answer; expected y, n or"):
        say(run, "y", "1", "perhaps")
    kept = (run.path / "spot-checks.jsonl").read_text().splitlines()
    assert [json.loads(line)["answer"] for line in kept] == ["y", "1"]
    assert fidelity_checks(suite) == []


def test_without_anybody_to_ask_nothing_is_written(run: RunDirectory, suite: Path) -> None:
    with pytest.raises(UsageError, match="there is nobody to ask"):
        say(run)
    assert not (run.path / "spot-checks.jsonl").exists()
    assert fidelity_checks(suite) == []


def test_the_mix_is_half_real_shuffled_and_shown_before_any_conversation(
    run: RunDirectory, suite: Path, tmp_path: Path
) -> None:
    real = [f"hi i need help with order {number}" for number in range(30)]
    (tmp_path / "real.txt").write_text("\n".join([*real, "", real[0]]))
    shown = say(run, *["r"] * 6, "q", lines=tmp_path / "real.txt", mix=3)
    before = shown[: shown.index("transcript")]
    asked = [line.strip() for line in before.splitlines() if line.startswith("  ")]
    assert len(asked) == 6
    assert sum(line in real for line in asked) == 3
    assert "right guesses  3 of 6   50 %" in shown
    checks = fidelity_checks(suite)
    assert sum(check.taken_for_real.count for check in checks) == 3
    assert all(check.mix == mix_of([*guesses(3, 3)]) for check in checks)
    # What real people wrote is in none of our files.
    kept = (run.path / "spot-checks.jsonl").read_text() + (suite / "fidelity.jsonl").read_text()
    assert "i need help" not in kept


def guesses(hits: int, misses: int) -> list[Guess]:
    """Guesses about lines that real people wrote."""
    return [Guess(disposition=None, said="real")] * hits + [
        Guess(disposition=None, said="simulated")
    ] * misses


@pytest.mark.parametrize(
    ("hits", "misses", "p"),
    [
        # Binomial tables: 2 * P(X >= 8 | n = 10) = 112/1024, 2 * P(X >= 15 | n = 20) = 0.0414.
        pytest.param(8, 2, 112 / 1024, id="8-of-10"),
        pytest.param(15, 5, 0.0414, id="15-of-20"),
        pytest.param(5, 5, 1.0, id="half"),
    ],
)
def test_the_mix_is_tested_exactly_against_chance(hits: int, misses: int, p: float) -> None:
    found = mix_of(guesses(hits, misses))
    assert found is not None
    assert found.p == pytest.approx(p, abs=5e-5)
    assert mix_of([]) is None


def test_a_line_that_both_said_tells_nothing_and_is_not_mixed_in() -> None:
    mixed = blind_mix([("angry", "Hello"), ("angry", "Well,  no.")], ["Hello", "What?"], most=9, seed=1)
    assert {line.text for line in mixed} == {"Well, no.", "What?"}


def test_when_a_held_back_fact_came_out_is_read_from_the_trace(tmp_path: Path, suite: Path) -> None:
    one = Recorded(
        lines=[
            ("Hello.", "Your birthday?"),
            ("Why?", "I must know it."),
            ("So: March 4th, 1980.", "And the plan?"),
        ],
        row={"id": "1", "born": "1980-03-04", "plan": "gold", "name": "Ann", "note": None},
        facts={"name": "at once", "born": "when pressed", "plan": "when asked", "note": "when asked"},
        reveals={"name": 1, "born": 2},
    )
    run = record(tmp_path / "runs", suite, [one])
    assert told_in(read_conversation(run, "c001")) == (
        Told(fact="born", rule="when pressed", revealed=2, told=3),
        Told(fact="plan", rule="when asked", revealed=None, told=None),
    )


def check(disposition: str = "angry", **more: Any) -> FidelityCheck:
    return FidelityCheck(
        **{
            "disposition": disposition,
            "script": f"script-of-{disposition}",
            "actor": "actor-1",
            "actor_prompt": "p1",
            "at": "2026-11-30T10:00:00.000Z",
            "who": "anna",
            "run": "run111",
            "seed": 1,
            "conversations": ("c001",),
            "in_character": Share(count=3, n=3),
            "gave_in": (3,),
            "too_soon": Share(count=0, n=3),
            "abandoned": Share(count=0, n=3),
            "told": (2,),
            "taken_for_real": Share(count=1, n=4),
            "mix": None,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("more", "stale"),
    [
        pytest.param({}, False, id="the-same"),
        pytest.param({"script": "an earlier one"}, True, id="another-script"),
        pytest.param({"actor": "actor-0"}, True, id="another-actor"),
        pytest.param({"actor_prompt": "p0"}, True, id="another-prompt"),
    ],
)
def test_a_check_is_stale_when_script_actor_or_its_prompt_changed(
    run: RunDirectory, suite: Path, more: dict[str, Any], stale: bool
) -> None:
    append_fidelity(suite, check(**more))
    angry, evasive = read_fidelity(suite, read_facts(run))
    assert (angry.disposition, angry.check, angry.stale) == ("angry", check(**more), stale)
    assert (evasive.disposition, evasive.check, evasive.stale) == ("evasive", None, False)


def test_a_fresh_check_is_preferred_to_a_newer_stale_one(run: RunDirectory, suite: Path) -> None:
    append_fidelity(suite, check(who="bob"))
    append_fidelity(suite, check(actor="actor-0"))
    angry, _ = read_fidelity(suite, read_facts(run))
    assert angry.check is not None
    assert (angry.check.who, angry.stale) == ("bob", False)


def test_a_report_says_what_was_checked_what_is_stale_and_what_is_amiss(
    run: RunDirectory, suite: Path
) -> None:
    facts = read_facts(run)
    assert fidelity_lines(read_fidelity(suite, facts)) == [
        "persona fidelity: never checked; `redteam personas spot-check RUN` does it"
    ]
    mix = mix_of(guesses(18, 2))
    amiss = check(in_character=Share(count=2, n=3), abandoned=Share(count=2, n=3), mix=mix)
    append_fidelity(suite, amiss)
    append_fidelity(suite, check("evasive", script="an earlier one", too_soon=Share(count=3, n=3)))
    assert fidelity_lines(read_fidelity(suite, facts)) == [
        "persona fidelity: checked 2026-11-30 for 2 of 2 dispositions, 1 stale (evasive: script or actor "
        "changed since)",
        "angry: 1 of 3 did not do what the disposition says",
        "angry: 2 of 3 were talked out of their demand",
        "lines of run run111 could be told from real ones: 18 of 20 guesses were right, chance is half "
        "(p = 0.0004)",
    ]


def test_the_reviewer_reads_what_the_actor_was_told_if_it_is_still_so(tmp_path: Path, suite: Path) -> None:
    evasive = load_dispositions()["evasive"]
    one = Recorded(disposition="evasive")
    for run_id, digest in (("run111", evasive.digest), ("run222", "an earlier one")):
        run = record(tmp_path / "runs", suite, [one], run=run_id, scripts={"evasive": digest})
        assert ("the actor was told" in say(run, "q")) == (digest == evasive.digest)


def test_of_a_run_whose_suite_is_gone_nothing_is_said(run: RunDirectory, suite: Path) -> None:
    append_fidelity(suite, check())
    facts = read_facts(run)
    assert fidelity_of_run(facts) == read_fidelity(suite, facts)
    (suite / "suite.yaml").unlink()
    assert fidelity_of_run(facts) == []
    assert fidelity_lines([]) == []


def test_a_check_survives_its_file(suite: Path) -> None:
    one = check(mix=mix_of(guesses(3, 1)))
    append_fidelity(suite, one)
    append_fidelity(suite, replace(one, mix=None))
    assert fidelity_checks(suite) == [one, replace(one, mix=None)]
