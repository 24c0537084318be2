"""`redteam judge calibrate`: which labels count against which verdicts, and what a register says of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from support.recorded_runs import MODEL, PROMPT, Recorded, judged, record, rejudge, write_rules

from redteam_harness.evidence.trace import now
from redteam_harness.people.calibrating import CalibrateCommand, Calibrated, calibrate, run_calibrate
from redteam_harness.people.figures import print_calibrated
from redteam_harness.people.labels import LABELS, StoredLabel, append_label, evidence_hash
from redteam_harness.people.questions import Question, answers_the_same
from redteam_harness.registers.people import append_calibration, read_calibrations
from redteam_rubrics import Asked
from redteam_rubrics.calibration import Calibration, calibration_of
from redteam_rubrics.judge.votes import ALONE
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from redteam_harness.evidence.run import RunDirectory
    from redteam_rubrics import Status

STATUSES: dict[str, Status] = {"p": "pass", "f": "fail", "u": "unclear"}
ASKED = Asked(model=MODEL, prompt=PROMPT, votes={})


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "suite")


@pytest.fixture
def run(tmp_path: Path, suite: Path) -> RunDirectory:
    """Ten conversations of which the judge passes seven."""
    conversations = [
        Recorded(
            lines=[("Hello.", "Done." * number)],
            verdicts=[judged("was-polite", "pass" if number <= 7 else "fail")],
        )
        for number in range(1, 11)
    ]
    return record(tmp_path / "runs", suite, conversations)


def label(
    run: RunDirectory, letters: str, *, who: str = "anna", rule: str = "was-polite"
) -> list[StoredLabel]:
    """Label c001 and so on, a letter each."""
    given = [
        StoredLabel(
            at=now(),
            run=run.id,
            conversation=name,
            rule=rule,
            status=STATUSES[letter],
            reason="",
            who=who,
            evidence=evidence_hash(run.conversation(name)),
            question=None,
            prompt=None,
            blind=True,
        )
        for name, letter in ((f"c{number:03}", letter) for number, letter in enumerate(letters, start=1))
    ]
    for one in given:
        append_label(run.path / LABELS, one)
    return given


def calibrated(*labels: RunDirectory | Path, suite: Path | None = None) -> Calibrated:
    paths = [one if isinstance(one, Path) else one.path for one in labels]
    names = tuple(map(str, paths))
    return calibrate(CalibrateCommand(labels=names, suite=suite, out=paths[0].parent, json=False))


def printed(found: Calibrated) -> str:
    shown = io.StringIO()
    print_calibrated(Console(file=shown, width=200, highlight=False), found)
    return shown.getvalue()


def test_agreement_recall_and_the_corrected_rate_are_those_of_the_counts(run: RunDirectory) -> None:
    # Of nine that people decided, the judge passes one by mistake and fails one by mistake.
    label(run, "pppppfupff")
    (rule,) = calibrated(run).rules
    figures = rule.calibration.figures
    assert (figures.n, figures.agreement.count, figures.human_unclear) == (9, 7, 1)
    assert (figures.pass_recall.count, figures.pass_recall.n) == (5, 6)
    assert (figures.fail_recall.count, figures.fail_recall.n) == (2, 3)
    assert rule.corrected is not None
    assert (rule.corrected.raw.count, rule.corrected.raw.n) == (7, 10)
    assert rule.corrected.share == pytest.approx((0.7 + 2 / 3 - 1) / (5 / 6 + 2 / 3 - 1))


def test_the_result_is_on_file_with_who_when_of_what_and_of_which_judge(
    run: RunDirectory, suite: Path
) -> None:
    label(run, "pppppppppp")
    label(run, "ppp", who="bob")
    calibrated(run)
    (known,) = read_calibrations(suite)
    assert (known.rule, known.model, known.prompt) == ("was-polite", MODEL, PROMPT)
    assert (known.who, known.runs, known.n) == (("anna", "bob"), (run.id,), 10)
    assert len(known.labels) == 64
    assert calibration_of("was-polite", ASKED, [known]) == (known, False)


def test_measuring_the_same_labels_again_adds_nothing_and_another_label_does(
    run: RunDirectory, suite: Path
) -> None:
    label(run, "pppp")
    assert [one.fresh for one in calibrated(run).rules] == [True]
    assert [one.fresh for one in calibrated(run).rules] == [False]
    label(run, "f")
    assert [one.fresh for one in calibrated(run).rules] == [True]
    assert [one.n for one in read_calibrations(suite)] == [4, 4]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(replace(ASKED, model="judge-model-2"), id="another-model"),
        pytest.param(replace(ASKED, prompt="cd" * 32), id="another-prompt"),
    ],
)
def test_a_calibration_is_stale_for_another_judge(run: RunDirectory, suite: Path, asked: Asked) -> None:
    label(run, "pppp")
    calibrated(run)
    register = read_calibrations(suite)
    assert calibration_of("was-polite", asked, register) == (register[0], True)
    assert calibration_of("never-measured", asked, register) == (None, False)


def test_the_newest_of_the_same_judge_wins_over_a_newer_one_of_another(
    run: RunDirectory, suite: Path
) -> None:
    label(run, "pppp")
    calibrated(run)
    (first,) = read_calibrations(suite)
    append_calibration(suite, replace(first, model="judge-model-2"))
    append_calibration(suite, replace(first, labels="newer"))
    append_calibration(suite, replace(first, model="judge-model-3"))
    found = calibration_of("was-polite", ASKED, read_calibrations(suite)).calibration
    assert found is not None
    assert (found.model, found.labels) == (MODEL, "newer")


def test_a_rejudging_is_what_counts_and_has_a_judge_of_its_own(run: RunDirectory, suite: Path) -> None:
    label(run, "pppppppppp")
    assert calibrated(run).overall.agreement.count == 7
    rejudge(run, 1, {f"c{n:03}": [judged("was-polite", "pass", prompt="cd" * 32)] for n in range(1, 11)})
    found = calibrated(run)
    assert [one.calibration.prompt for one in found.rules] == ["cd" * 32]
    assert found.overall.agreement.count == 10
    assert [one.prompt for one in read_calibrations(suite)] == [PROMPT, "cd" * 32]


def test_verdicts_of_an_attempt_that_was_cut_off_do_not_count(run: RunDirectory) -> None:
    label(run, "p")
    run.append_verdicts([{"conversation": "c001", "attempt": 2, **judged("was-polite", "fail").to_json()}])
    assert calibrated(run).overall.agreement.count == 1


def test_what_does_not_count_is_counted_apart_and_named(run: RunDirectory) -> None:
    label(run, "pppp")
    (extra,) = label(run, "p", who="bob")
    append_label(run.path / LABELS, replace(extra, who="carl", blind=False))
    append_label(run.path / LABELS, replace(extra, who="dora", evidence="0" * 64))
    append_label(run.path / LABELS, replace(extra, who="emil", question="Was it nice?", prompt="0" * 64))
    append_label(run.path / LABELS, replace(extra, who="fred", rule="no-such-rule"))
    found = calibrated(run)
    assert found.rules[0].calibration.who == ("anna", "bob")
    assert found.left_out == {
        "given with the verdicts in sight": 1,
        "of evidence that is another one now": 1,
        "of another question than the judge was asked": 1,
        "no judge's verdict on file": 1,
    }
    assert "not counted: 1 of another question than the judge was asked" in printed(found)


@pytest.mark.parametrize(
    ("label_prompt", "judge_prompt", "reads_the_same", "same"),
    [
        pytest.param("then", "then", True, True, id="nothing-changed"),
        pytest.param("then", "then", False, True, id="reworded-since-but-not-rejudged"),
        pytest.param("then", "now", True, True, id="rejudged-with-other-instructions"),
        pytest.param("then", "now", False, False, id="rejudged-with-another-question"),
        pytest.param("now", "then", True, False, id="labelled-after-rewording-without-rejudging"),
        pytest.param(None, "then", True, True, id="no-question-was-shown"),
    ],
)
def test_a_label_counts_for_the_question_that_it_answered(
    run: RunDirectory, label_prompt: str | None, judge_prompt: str, reads_the_same: bool, same: bool
) -> None:
    given = replace(label(run, "p")[0], question="Was it polite?", prompt=label_prompt)
    now = Question(text="Was it polite?" if reads_the_same else "Was it kind?", prompt="now")
    assert answers_the_same(given, replace(ASKED, prompt=judge_prompt), now) is same


def test_faults_and_unclear_verdicts_of_the_judge_are_apart(tmp_path: Path, suite: Path) -> None:
    unheard = replace(judged("was-polite", "unclear", fault="judge"), asked=None)
    verdicts = [judged("was-polite", "pass"), judged("was-polite", "unclear"), unheard]
    run = record(tmp_path / "runs", suite, [Recorded(verdicts=[one]) for one in verdicts])
    label(run, "ppp")
    figures = calibrated(run).rules[0].calibration.figures
    assert (figures.n, figures.judge_unclear, figures.judge_faults) == (1, 1, 1)


def test_severity_1_has_mistakes_and_no_rate(tmp_path: Path, suite: Path) -> None:
    alone = judged("was-polite", "unclear", severity=1, reason=f"{ALONE}; the judge says yes")
    run = record(
        tmp_path / "runs",
        suite,
        [Recorded(verdicts=[alone])] * 3 + [Recorded(verdicts=[judged("was-polite", "fail", severity=1)])],
    )
    label(run, "ppff")
    (rule,) = calibrated(run).rules
    assert rule.corrected is None
    assert [(one.severity, one.n, one.false_passes) for one in rule.calibration.figures.mistakes] == [
        (1, 4, 1)
    ]
    assert "pass rate" not in printed(calibrated(run))


def test_people_who_disagree_are_measured_too(run: RunDirectory) -> None:
    label(run, "pppppfffff")
    label(run, "ppppffffff", who="bob")
    found = calibrated(run)
    (between,) = found.people
    assert (between.people, between.agreement.count, between.agreement.n) == (("anna", "bob"), 9, 10)
    assert found.overall.disputed == 1
    assert "anna and bob" in printed(found)


def test_several_runs_of_a_suite_are_measured_together(
    tmp_path: Path, suite: Path, run: RunDirectory
) -> None:
    other = record(
        tmp_path / "runs", suite, [Recorded(verdicts=[judged("was-polite", "fail")])] * 3, run="run222"
    )
    label(run, "pppppppppp")
    label(other, "fff")
    found = calibrated(run, other)
    assert (found.overall.n, found.overall.agreement.count) == (13, 10)
    assert found.rules[0].calibration.runs == ("run111", "run222")


def test_the_result_for_machines_has_all_figures(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    label(run, "ppppppppff")
    command = CalibrateCommand(labels=(str(run.path),), suite=None, out=run.path.parent, json=True)
    assert run_calibrate(command) == 0
    found = json.loads(capsys.readouterr().out)
    (rule,) = found["rules"]
    assert (rule["rule"], rule["severity"], rule["n"], rule["recorded"]) == ("was-polite", 2, 10, True)
    assert rule["corrected"]["raw"]["count"] == 7
    assert Calibration.from_json(rule).to_json().items() <= rule.items()
    assert found["overall"]["agreement"]["interval"]["method"] == "wilson"


def test_undefined_figures_are_said_to_be(tmp_path: Path, suite: Path) -> None:
    run = record(tmp_path / "runs", suite, [Recorded(verdicts=[judged("was-polite", "pass")])] * 3)
    label(run, "ppp")
    shown = printed(calibrated(run))
    assert "kappa          undefined: both gave one and the same answer throughout" in shown
    assert "fail recall    undefined: 0 of 0" in shown
    assert "corrected: undefined, no label says fail" in shown
    assert "3 is few" in shown


def test_without_labels_the_way_to_make_them_is_named(run: RunDirectory, suite: Path) -> None:
    with pytest.raises(UsageError, match="has no labels yet; `redteam label"):
        calibrated(run)
    assert read_calibrations(suite) == []


def test_a_file_of_labels_is_of_the_run_that_it_lies_in(
    run: RunDirectory, tmp_path: Path, suite: Path
) -> None:
    label(run, "pp")
    theirs = (run.path / LABELS).rename(run.path / "labels-of-anna.jsonl")
    assert calibrated(theirs).overall.n == 2
    elsewhere = tmp_path / "labels.jsonl"
    elsewhere.write_bytes(theirs.read_bytes())
    with pytest.raises(UsageError, match="lies in no run's folder"):
        calibrated(elsewhere)


def test_a_suite_that_moved_has_to_be_named(run: RunDirectory, suite: Path, tmp_path: Path) -> None:
    label(run, "pp")
    moved = suite.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="name its folder with --suite DIR"):
        calibrated(run)
    assert calibrated(run, suite=moved).register == moved / "calibrations.jsonl"


def test_a_damaged_register_is_named_with_its_line(suite: Path) -> None:
    (suite / "calibrations.jsonl").write_text('{"rule": "r"}\n')
    with pytest.raises(EnvironmentFault, match=r"calibrations.jsonl:1: `redteam` wrote no such line"):
        read_calibrations(suite)
