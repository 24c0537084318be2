"""Labels: what people said is kept, whatever happens to the command that asks them."""

from __future__ import annotations

import io
import json
import multiprocessing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from support.recorded_runs import Recorded, judged, record, write_rules

from redteam_harness.evidence.appending import append_line, read_lines
from redteam_harness.people.labelling import LabelCommand, run_label
from redteam_harness.people.labels import last_said, read_labels
from redteam_rubrics.judge import Judge, prompt_digest
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.people.labels import StoredLabel


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    suite = write_rules(tmp_path / "suite")
    verdicts = (judged("was-polite", "pass"), judged("told-no-lie", "fail", severity=3))
    lines = [(f"Please do number {number}.", "Done, with pleasure.") for number in range(4)]
    return record(tmp_path / "runs", suite, [Recorded(lines=[line], verdicts=verdicts) for line in lines])


def command(run: RunDirectory, **more: Any) -> LabelCommand:
    return LabelCommand(
        **{
            "run": str(run.path),
            "conversation": None,
            "rules": (),
            "all": False,
            "who": "anna",
            "order": 1,
            "verdicts": False,
            "suite": None,
            "out": run.path.parent,
            **more,
        }
    )


def say(run: RunDirectory, *lines: str, **more: Any) -> str:
    """Give these answers; returns what was shown."""
    shown = io.StringIO()
    console = Console(file=shown, width=100, highlight=False)
    assert run_label(command(run, **more), console, io.StringIO("".join(f"{line}\n" for line in lines))) == 0
    return shown.getvalue()


def labels(run: RunDirectory) -> list[StoredLabel]:
    return read_labels(run.path / "labels.jsonl")


def test_a_label_says_who_said_what_of_which_evidence_and_to_which_question(run: RunDirectory) -> None:
    shown = say(run, "f it was rude", rules=("was-polite",))
    (label,) = labels(run)
    assert (label.who, label.status, label.reason, label.rule) == (
        "anna",
        "fail",
        "it was rude",
        "was-polite",
    )
    assert (label.run, label.blind, len(label.evidence)) == (run.id, True, 64)
    assert label.question == "Was the agent polite throughout? (pass if yes)"
    assert label.prompt == prompt_digest(Judge(question="Was the agent polite throughout?"))
    assert "the judge was asked in other words" in shown
    assert label.at.endswith("Z")
    assert "Was the agent polite throughout?" in shown
    assert "Done, with pleasure." in shown


def test_the_judges_verdict_is_hidden_unless_it_is_asked_for(run: RunDirectory) -> None:
    assert "SECRET-OF-THE-JUDGE" not in say(run, "q")
    assert "SECRET-OF-THE-JUDGE" in say(run, "p", verdicts=True)
    assert [label.blind for label in labels(run)] == [False]


def test_it_goes_on_where_it_stopped(run: RunDirectory) -> None:
    say(run, "p", "f no", "q")
    assert "[1 of 6]" in say(run, "s", "u", "p", "p", "p", "p")
    # One was skipped.
    assert "[1 of 1]" in say(run, "p")
    assert len({(label.conversation, label.rule) for label in labels(run)}) == 8
    assert "has labelled all of it" in say(run)


def test_a_correction_is_a_new_line_and_the_last_one_counts(run: RunDirectory) -> None:
    shown = say(run, "p fine", "b", "f I had not read on", "q")
    assert "you said pass: fine; s keeps it" in shown
    assert [label.status for label in labels(run)] == ["pass", "fail"]
    assert [label.status for label in last_said(labels(run)).values()] == ["fail"]


def test_who_names_a_conversation_can_correct_it_later(run: RunDirectory) -> None:
    first = run.path / "labels.jsonl"
    say(run, "p", "p", conversation="c002")
    shown = say(run, "s", "u hard to say", conversation="c002")
    assert "you said pass" in shown
    assert [label.status for label in labels(run)] == ["pass", "pass", "unclear"]
    assert first.read_bytes().count(b"\n") == 3


def test_two_people_label_the_same_run_each_for_themselves(run: RunDirectory) -> None:
    say(run, *["p"] * 8)
    assert "[1 of 8]" in say(run, *["f no"] * 8, who="bob")
    assert len(last_said(labels(run))) == 16


def test_everybody_is_asked_in_the_same_order_and_another_seed_asks_in_another(tmp_path: Path) -> None:
    suite = write_rules(tmp_path / "suite")
    run = record(tmp_path / "runs", suite, [Recorded(verdicts=[judged("was-polite", "pass")])] * 12)

    def order(**more: Any) -> list[str]:
        (run.path / "labels.jsonl").unlink(missing_ok=True)
        say(run, *["p"] * 12, **more)
        return [label.conversation for label in labels(run)]

    first = order()
    assert first == order(who="bob")
    assert first != order(order=2)
    assert first != sorted(first)


def test_a_conversation_that_was_held_again_is_asked_again(run: RunDirectory) -> None:
    say(run, *["p"] * 8)
    with (run.conversation("c003") / "trace.jsonl").open("a") as trace:
        trace.write('{"kind": "agent", "turn": 2, "text": "One more thing."}\n')
    assert "[1 of 2] c003" in say(run, "q")


def test_an_answer_that_is_none_ends_a_pipe_and_keeps_what_came_before(run: RunDirectory) -> None:
    with pytest.raises(UsageError, match=r"line 2 of the input, 'maybe', is no answer"):
        say(run, "p", "maybe", "p")
    assert [label.status for label in labels(run)] == ["pass"]


def test_without_anybody_to_ask_nothing_is_written(run: RunDirectory) -> None:
    with pytest.raises(UsageError, match="there is nobody to ask"):
        say(run)
    assert not (run.path / "labels.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param({"rules": ("no-such",)}, "there are verdicts by: told-no-lie, was-polite", id="rule"),
        pytest.param({"conversation": "c099"}, "it has c001 to c004", id="conversation"),
        pytest.param({"who": "a\tb"}, "is no name", id="name"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(
    run: RunDirectory, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        say(run, "p", **more)


def test_a_label_that_cannot_be_written_is_a_fault_that_names_the_file(run: RunDirectory) -> None:
    (run.path / "labels.jsonl").mkdir()
    with pytest.raises(EnvironmentFault, match=r"labels.jsonl cannot be"):
        say(run, "p")


def test_a_run_without_a_judge_has_labels_for_all_rules_only_when_asked(tmp_path: Path) -> None:
    suite = write_rules(tmp_path / "suite")
    assertion = replace(judged("asked-first", "pass", severity=1), source="assertion", asked=None)
    run = record(tmp_path / "runs", suite, [Recorded(verdicts=[assertion])])
    with pytest.raises(UsageError, match="--all labels what assertions decided"):
        say(run, "p")
    say(run, "p", all=True)
    assert [label.rule for label in labels(run)] == ["asked-first"]


def test_what_was_said_in_the_conversation_cannot_command_the_labellers_terminal(tmp_path: Path) -> None:
    suite = write_rules(tmp_path / "suite")
    evil = "\x1b]0;title\x07\x1b[2J"
    verdict = judged("was-polite", "pass", reason=evil)
    run = record(tmp_path / "runs", suite, [Recorded(lines=[(evil, evil)], verdicts=[verdict])])
    assert not set(say(run, f"p {evil}")) & {"\x1b", "\x07"}
    assert not set(say(run, "s", conversation="c001")) & {"\x1b", "\x07"}


def test_a_half_line_of_a_writer_that_is_gone_is_taken_off_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, {"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "cut')
    assert read_lines(path) == [{"n": 1}]
    append_line(path, {"n": 3, "text": "half a character \udcff"})
    assert read_lines(path) == [{"n": 1}, {"n": 3, "text": "half a character \udcff"}]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"status": "pass"}\n')
    with pytest.raises(EnvironmentFault, match=r"labels.jsonl:1: this is no label"):
        read_labels(path)
    path.write_text("[]\n")
    with pytest.raises(EnvironmentFault, match=r"labels.jsonl:1: this is no JSON object"):
        read_labels(path)


def _write_many(path: Path, who: int) -> None:
    for number in range(60):
        append_line(path, {"who": who, "number": number, "reason": "x" * 5000})


def test_people_who_write_at_the_same_time_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    forking = multiprocessing.get_context("fork")
    writers = [forking.Process(target=_write_many, args=(path, who)) for who in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(40)
    assert [writer.exitcode for writer in writers] == [0] * 4
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for who in range(4):
        assert [line["number"] for line in lines if line["who"] == who] == list(range(60))
