"""From idle conversations to findings: which passes are worth nothing, and what is said about each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from support.cli import write_suite

from redteam_harness.checks import satisfied
from redteam_harness.checks.idle import idle_findings
from redteam_harness.checks.idling import Held, hung_up, without_judges
from redteam_harness.launch.suite import load_suite
from redteam_harness.report.summary import Finished

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_harness.launch.suite import Suite

RULES = """
the-rule: {severity: 1, sql: SELECT true FROM people}
told: {severity: 2, transcript: {agent_says: sorry}}
kind: {severity: 3, judge: "Was the agent kind?"}
both: {severity: 2, transcript: {agent_says: sorry}, judge: "Was it meant?"}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return _suite(tmp_path, "the-rule, told")


def _suite(folder: Path, rubric: str, more: str = "") -> Suite:
    path = write_suite(folder, schema="", agent="", rules=RULES)
    text = (path / "suite.yaml").read_text()
    (path / "suite.yaml").write_text(text.replace("[the-rule]", f"[{rubric}]{more}"))
    return load_suite(path)


def _held(
    outcome: Literal["pass", "fail", "judge-fault", "infra-fault"],
    kind: Literal["does-nothing", "hangs-up"] = "does-nothing",
    *,
    acted: bool = False,
    persona: str = "1",
    cause: str = "",
    **verdicts: str,
) -> Held:
    """A conversation of the only case; each verdict is `pass`, `vacuous`, `fail`, `null` or `error`."""
    by = "nothing" if kind == "does-nothing" else "agent:answer"
    finished = Finished(
        id="c001",
        case="only",
        persona=persona,
        disposition="cooperative",
        outcome=outcome,
        turns=1,
        ending="",
        cause=cause,
        message="it broke" if cause else "",
        verdicts=[_verdict(rule.replace("_", "-"), said) for rule, said in verdicts.items()],
        seconds=0,
    )
    return Held(kind=kind, by=by, finished=finished, acted=acted)


def _verdict(rule: str, said: str) -> dict[str, Any]:
    status = {"vacuous": "pass", "null": "unclear", "error": "unclear"}.get(said, said)
    return {
        "rule": rule,
        "status": status,
        "vacuous": said == "vacuous",
        "fault": "rule" if said == "error" else None,
        "reason": "because",
    }


def _told(suite: Suite, *held: Held) -> list[tuple[str, str]]:
    return [(finding.severity, finding.message) for finding in idle_findings(suite, held)]


def test_a_case_that_doing_nothing_passes_is_a_mistake_at_its_line(suite: Suite) -> None:
    (finding,) = idle_findings(suite, [_held("pass", the_rule="pass", told="vacuous")])
    assert finding.severity == "mistake"
    assert finding.place == f"{suite.document.path}:{suite.document.line_of(('cases', 0, 'id'))}"
    assert "passes when the agent does nothing" in finding.message
    assert finding.details == ("persona 1, cooperative",)
    assert "nothing_to_do: true" in finding.advice


def test_one_person_for_whom_doing_nothing_passes_is_enough_and_is_named(suite: Suite) -> None:
    (finding,) = idle_findings(
        suite,
        [
            _held("fail", the_rule="fail", told="fail"),
            _held("pass", persona="7", the_rule="pass", told="pass"),
        ],
    )
    assert "in 1 of 2 conversations" in finding.message
    assert finding.details == ("persona 7, cooperative",)


def test_failing_on_words_alone_is_a_suggestion(suite: Suite) -> None:
    ((severity, message),) = _told(suite, _held("fail", the_rule="pass", told="fail"))
    assert severity == "suggestion"
    assert "an agent that only talks can pass it" in message
    assert message.endswith("on words alone: told")


def test_words_that_made_the_agents_own_first_line_pass_are_a_mistake(suite: Suite) -> None:
    ((severity, message),) = _told(
        suite,
        _held("fail", the_rule="pass", told="fail"),
        _held("pass", "hangs-up", the_rule="pass", told="pass"),
    )
    assert severity == "mistake"
    assert "hangs up after the first line and agent:answer has called no tool" in message


def test_an_agent_that_does_the_work_at_the_first_line_may_pass(suite: Suite) -> None:
    done = _held("pass", "hangs-up", acted=True, the_rule="pass", told="pass")
    assert _told(suite, _held("fail", the_rule="fail", told="fail"), done) == []


def test_where_nothing_is_to_be_done_words_may_decide_but_silence_may_not(tmp_path: Path) -> None:
    suite = _suite(tmp_path, "the-rule, told", "\n    nothing_to_do: true")
    spoken = _held("pass", "hangs-up", the_rule="pass", told="pass")
    assert _told(suite, _held("fail", the_rule="pass", told="fail"), spoken) == []
    ((severity, message),) = _told(suite, _held("pass", the_rule="pass", told="pass"))
    assert severity == "mistake"
    assert "the person must be told" in message


def test_a_rule_on_the_end_state_that_contradicts_nothing_to_do_is_named(tmp_path: Path) -> None:
    suite = _suite(tmp_path, "the-rule, told", "\n    nothing_to_do: true")
    ((severity, message),) = _told(suite, _held("fail", the_rule="fail", told="fail"))
    assert severity == "suggestion"
    assert "its rule the-rule fails when nothing is done" in message


@pytest.mark.parametrize(
    ("more", "severity"), [("", "suggestion"), ("\n    nothing_to_do: true", "note")], ids=["to-do", "not"]
)
@pytest.mark.parametrize("rubric", ["the-rule, kind", "the-rule, both"])
def test_a_judge_that_was_not_asked_may_be_all_that_stands_against_silence(
    tmp_path: Path, more: str, severity: str, rubric: str
) -> None:
    suite = _suite(tmp_path, rubric, more)
    ((told, message),) = _told(suite, _held("pass", the_rule="pass"))
    assert told == severity
    assert "only a model stands between" in message


def test_an_undecided_rule_is_told_once_and_a_broken_one_is_a_mistake(suite: Suite) -> None:
    held = [_held("judge-fault", the_rule="error", told="null") for _ in range(3)]
    (broken, undecided) = _told(suite, *held)
    assert broken[0] == "mistake"
    assert broken[1].startswith("rule the-rule cannot be evaluated: because")
    assert undecided[0] == "suggestion"
    assert undecided[1].startswith("rule told is undecided when nothing is done: because")


def test_a_fault_of_the_agent_is_told_once_with_its_cause(suite: Suite) -> None:
    held = [_held("infra-fault", "hangs-up", cause="crash", persona=str(number)) for number in range(3)]
    ((severity, message),) = _told(suite, *held)
    assert severity == "mistake"
    assert "agent agent:answer came to no verdict (infra-fault, crash): it broke" in message


def test_the_table_keeps_vacuous_passes_apart_and_says_what_varies(suite: Suite) -> None:
    held = [
        _held("fail", the_rule="pass", told="vacuous", other="fail", collateral="pass"),
        _held("fail", the_rule="vacuous", told="vacuous", other="fail", collateral="fail"),
    ]
    (row,) = satisfied(suite, held)
    assert (row.conversations, row.passed) == (2, 0)
    assert row.satisfied == ("the-rule",)
    assert row.vacuous == ("told",)
    assert row.broken == ("other",)
    assert row.mixed == ("collateral",)
    assert row.to_json()["mixed"] == ["collateral"]


def test_no_judge_is_asked_and_who_hangs_up_does_so_after_one_line(tmp_path: Path) -> None:
    suite = _suite(tmp_path, "the-rule, kind, both")
    bare = hung_up(without_judges(suite))
    assert list(bare.rules_of("only")) == ["the-rule", "both"]
    assert all(rule.judge is None for rule in bare.rules_of("only").values())
    assert bare.turns == 1
    assert suite.case("only").rubric == ["the-rule", "kind", "both"]
