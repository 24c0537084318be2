"""What a rejudging adds to the evidence, and how it stands beside the verdicts before."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from redteam_harness.evidence.reading import read_conversations
from redteam_harness.evidence.run import RunDirectory, read_conversation, rejudgings
from redteam_harness.judging.compare import Left, Rejudgement, compare
from redteam_rubrics import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_rubrics import Status


def verdict(rule: str, status: Status, severity: int = 2) -> Verdict:
    return Verdict(rule=rule, severity=severity, status=status, source="assertion", reason=f"{rule} {status}")


def rejudged(name: str, before: dict[str, Status], after: dict[str, Status], *left: Left) -> Rejudgement:
    return Rejudgement(
        conversation=name,
        before=[verdict(rule, status).to_json() for rule, status in before.items()],
        after=[verdict(rule, status) for rule, status in after.items()],
        left=left,
    )


def test_a_rule_is_counted_over_the_conversations_in_which_it_was_judged_again() -> None:
    compared = compare(
        "r",
        1,
        [
            rejudged("c001", {"a": "pass", "b": "pass"}, {"a": "fail", "b": "pass"}),
            rejudged("c002", {"a": "unclear", "b": "fail"}, {"a": "pass"}, Left(rule="b", why="no server")),
        ],
        (),
    )
    a, b = compared.rules
    assert (a.before, a.after) == ({"pass": 1, "unclear": 1}, {"fail": 1, "pass": 1})
    assert [(one.conversation, one.before, one.after, one.reason) for one in a.changed] == [
        ("c001", "pass", "fail", "a fail"),
        ("c002", "unclear", "pass", "a pass"),
    ]
    assert (b.before, b.after, compared.changes) == ({"pass": 1}, {"pass": 1}, 2)
    assert compared.left == {("b", "no server"): ["c002"]}


def test_what_was_left_keeps_its_part_in_the_outcome() -> None:
    left = Left(rule="b", why="no server")
    compared = compare("r", 1, [rejudged("c001", {"a": "unclear", "b": "fail"}, {"a": "pass"}, left)], ())
    assert compared.outcomes == ({"fail": 1}, {"fail": 1})
    compared = compare("r", 1, [rejudged("c001", {"a": "unclear", "b": "pass"}, {"a": "pass"}, left)], ())
    assert compared.outcomes == ({"judge-fault": 1}, {"pass": 1})


@pytest.mark.parametrize(("status", "told"), [("pass", []), ("fail", ["new"]), ("unclear", ["new"])])
def test_a_new_rule_is_told_where_it_does_not_pass(status: Status, told: list[str]) -> None:
    compared = compare("r", 1, [rejudged("c001", {"a": "pass"}, {"n": status})], ())
    (rule,) = compared.rules
    assert rule.before == {"new": 1}
    assert [one.before for one in rule.changed] == told


def run_with(tmp_path: Path, *lines: dict[str, Any]) -> RunDirectory:
    run = RunDirectory(id="r", path=tmp_path)
    folder = run.conversation("c001")
    folder.mkdir(parents=True)
    (folder / "conversation.json").write_text(json.dumps({"attempt": 2}))
    run.append_verdicts({"conversation": "c001", **line} for line in lines)
    return run


def test_reading_a_conversation_tells_its_verdicts_from_those_of_rejudgings(tmp_path: Path) -> None:
    run = run_with(
        tmp_path,
        {"attempt": 1, "rule": "of an attempt that was cut off"},
        {"attempt": 2, "rule": "a"},
        {"attempt": 2, "rule": "a", "rejudging": 1},
        {"attempt": 2, "rule": "a", "rejudging": 3},
        {"attempt": 1, "rule": "a", "rejudging": 2},
    )
    stored = read_conversation(run, "c001")
    assert [one["rule"] for one in stored.verdicts] == ["a"]
    assert [one["rejudging"] for one in stored.rejudged] == [1, 3]
    ((_, quick),) = read_conversations(run, ["c001"])
    assert quick.verdicts == stored.verdicts


def test_the_number_of_a_rejudging_that_was_cut_off_is_not_used_again(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"rule": "a"}, {"rule": "a", "rejudging": 1}, {"rule": "a", "rejudging": 4})
    assert rejudgings(run) == [1, 4]


def test_a_judges_answer_follows_no_line_that_a_crash_cut(tmp_path: Path) -> None:
    run = run_with(tmp_path)
    run.append_judged("c001", {"raw": "one"})
    path = run.conversation("c001") / "judge.jsonl"
    path.write_text(path.read_text() + '{"raw": "tw')
    run.append_judged("c001", {"raw": "half\ud83d"})
    assert [json.loads(line)["raw"] for line in path.read_text().splitlines()] == ["one", "half\ud83d"]
