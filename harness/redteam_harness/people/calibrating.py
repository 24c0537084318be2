"""`redteam judge calibrate`: labels beside the judge's verdicts, measured, and put on file."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import RunDirectory, fingerprint, open_run
from redteam_harness.evidence.trace import now
from redteam_harness.people.judged import agent_length, latest_verdicts
from redteam_harness.people.labels import LABELS, evidence_hash, last_said, read_labels
from redteam_harness.people.questions import answers_the_same, questions_of
from redteam_harness.registers.people import (
    CALIBRATIONS,
    append_calibration,
    read_calibrations,
    register_folder,
)
from redteam_rubrics.calibration import (
    Calibration,
    Label,
    Pair,
    Share,
    agreements,
    consensus,
    corrected,
    measure,
)
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.people.judged import LatestVerdict
    from redteam_harness.people.labels import StoredLabel
    from redteam_rubrics.calibration import Between, Corrected, Figures

__all__ = ["CalibrateCommand", "Calibrated", "RuleCalibration", "calibrate", "run_calibrate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateCommand:
    """What `redteam judge calibrate` was asked to do.

    Attributes:
        labels: runs, or files of labels in a run's folder.
        suite: where the suite is now; None: where the runs were launched from.
        out: where runs are kept.
        json: whether the result is printed as JSON.
    """

    labels: tuple[str, ...]
    suite: Path | None
    out: Path
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCalibration:
    """One rule's judge, measured.

    Attributes:
        severity: the rule's.
        calibration: what is on file now.
        corrected: the pass rate that the judge gave in these runs, and what is left of it; None with severity
            1, which is counted and never a rate.
        fresh: whether it was put on file just now; else the same labels were measured before.
    """

    severity: int
    calibration: Calibration
    corrected: Corrected | None
    fresh: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What was measured.

    Attributes:
        rules: by rule and judge, the gravest first.
        overall: all of them together.
        people: how far each two people agree.
        left_out: how many labels were not counted, and why.
        register: the file that it was put into.
    """

    rules: Sequence[RuleCalibration]
    overall: Figures
    people: Sequence[Between]
    left_out: Mapping[str, int]
    register: Path

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "register": str(self.register),
            "rules": [
                {
                    "severity": one.severity,
                    **one.calibration.to_json(),
                    "corrected": None if one.corrected is None else one.corrected.to_json(),
                    "recorded": one.fresh,
                }
                for one in self.rules
            ],
            "overall": self.overall.to_json(),
            "people": [one.to_json() for one in self.people],
            "left_out": dict(self.left_out),
        }


class _Judge(NamedTuple):
    """A rule as one model answered one prompt."""

    severity: int
    rule: str
    model: str
    prompt: str


@dataclass(slots=True)
class _Group:
    """What is compared of one judge."""

    pairs: list[Pair] = field(default_factory=list)
    labels: list[StoredLabel] = field(default_factory=list)
    passed: int = 0
    decided: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A run and the labels that are given for it."""

    run: RunDirectory
    facts: Mapping[str, Any]
    labels: Sequence[StoredLabel]


def run_calibrate(command: CalibrateCommand) -> int:
    """Measure, put on file, and print.

    Returns:
        The exit code: 0, whatever was measured; a launch's gate decides what is good enough.

    Raises:
        UsageError: there is nothing to compare, or no suite to put the result beside.
        EnvironmentFault: a file cannot be read or written.
    """
    from rich.console import Console

    from redteam_harness.people.figures import print_calibrated

    found = calibrate(command)
    console = Console(highlight=False)
    if command.json:
        console.print(json.dumps(found.to_json(), indent=1), markup=False, soft_wrap=True)
    else:
        print_calibrated(console, found)
    return 0


def calibrate(command: CalibrateCommand) -> Calibrated:
    """Compare labels with the judge's latest verdicts, and append the result to the suite's register.

    Raises:
        UsageError: there is nothing to compare, or no suite to put the result beside.
        EnvironmentFault: a file cannot be read or written.
    """
    sources = _sources(command)
    folder = _suite_folder(command, sources)
    left_out: Counter[str] = Counter()
    groups: dict[_Judge, _Group] = defaultdict(_Group)
    said: list[Label] = []
    for source in sources:
        verdicts = {(one.conversation, one.rule): one for one in latest_verdicts(source.run)}
        judges = _judges(verdicts.values())
        for verdict in verdicts.values():
            judge = judges.get((verdict.conversation, verdict.rule))
            if judge is not None and verdict.status != "unclear":
                groups[judge].decided += 1
                groups[judge].passed += verdict.status == "pass"
        counted = _counted(source, verdicts, folder, left_out)
        said += [
            Label(
                conversation=f"{source.run.id}/{one.conversation}",
                rule=one.rule,
                who=one.who,
                status=one.status,
            )
            for one in counted
        ]
        for (conversation, rule), labels in _by_question(counted).items():
            judge = judges.get((conversation, rule))
            if judge is None:
                left_out["no judge's verdict on file"] += len(labels)
                continue
            groups[judge].pairs.append(
                _pair(verdicts[conversation, rule], labels, agent_length(source.run, conversation))
            )
            groups[judge].labels += labels
    measured = {judge: group for judge, group in sorted(groups.items()) if group.pairs}
    if not measured:
        raise UsageError(_nothing(sources, left_out))
    register = read_calibrations(folder)
    rules = [_measured(judge, group, register, folder) for judge, group in measured.items()]
    return Calibrated(
        rules=rules,
        overall=measure([pair for group in measured.values() for pair in group.pairs]),
        people=agreements(said),
        left_out=dict(left_out),
        register=folder / CALIBRATIONS,
    )


def _sources(command: CalibrateCommand) -> list[_Source]:
    labels: dict[Path, list[StoredLabel]] = defaultdict(list)
    runs: dict[Path, RunDirectory] = {}
    for reference in command.labels:
        path = Path(reference)
        if path.is_file():
            if not (path.parent / "run.json").is_file():
                raise UsageError(
                    f"{path} lies in no run's folder; labels are compared with the run beside them"
                )
            run = RunDirectory(id=path.resolve().parent.name, path=path.parent)
        else:
            run = open_run(reference, command.out)
            path = run.path / LABELS
            if not path.is_file():
                raise UsageError(f"run {run.id} has no labels yet; `redteam label {reference}` makes them")
        home = run.path.resolve()
        runs[home] = run
        labels[home] += read_labels(path)
    return [_Source(run=runs[home], facts=read_facts(runs[home]), labels=labels[home]) for home in runs]


def _suite_folder(command: CalibrateCommand, sources: Sequence[_Source]) -> Path:
    """The folder that keeps the register.

    Raises:
        UsageError: it is not there, or the runs are of several suites.
    """
    names = sorted({str(source.facts.get("suite")) for source in sources})
    if len(names) > 1:
        raise UsageError(
            f"these labels are of several suites ({', '.join(names)}); calibrate each on its own"
        )
    return register_folder(sources[-1].facts, command.suite)


def _counted(
    source: _Source,
    verdicts: Mapping[tuple[str, str], LatestVerdict],
    folder: Path,
    left_out: Counter[str],
) -> list[StoredLabel]:
    """The labels that count: each person's last, given blind, of the evidence and question as they are."""
    questions = questions_of(folder, source.facts)
    evidence: dict[str, str] = {}
    found = []
    for label in last_said(source.labels).values():
        where = source.run.conversation(label.conversation)
        if label.conversation not in evidence:
            evidence[label.conversation] = evidence_hash(where)
        verdict = verdicts.get((label.conversation, label.rule))
        if not label.blind:
            left_out["given with the verdicts in sight"] += 1
        elif label.run != source.run.id or label.evidence != evidence[label.conversation]:
            left_out["of evidence that is another one now"] += 1
        elif verdict and not answers_the_same(label, verdict.asked, questions.get(label.rule)):
            left_out["of another question than the judge was asked"] += 1
        else:
            found.append(label)
    return found


def _by_question(labels: Sequence[StoredLabel]) -> dict[tuple[str, str], list[StoredLabel]]:
    found: dict[tuple[str, str], list[StoredLabel]] = defaultdict(list)
    for label in labels:
        found[label.conversation, label.rule].append(label)
    return found


def _judges(verdicts: Iterable[LatestVerdict]) -> dict[tuple[str, str], _Judge]:
    """Which judge gave each verdict. One that could not be heard may not say; then it is that of its rule."""
    of_rule: dict[str, _Judge] = {}
    found: dict[tuple[str, str], _Judge] = {}
    unnamed = []
    for one in verdicts:
        if one.source != "judge":
            continue
        if one.asked is None:
            unnamed.append(one)
            continue
        judge = _Judge(one.severity, one.rule, one.asked.model, one.asked.prompt)
        found[one.conversation, one.rule] = of_rule[one.rule] = judge
    for one in unnamed:
        if one.rule in of_rule:
            found[one.conversation, one.rule] = of_rule[one.rule]
    return found


def _pair(verdict: LatestVerdict, labels: Sequence[StoredLabel], length: int) -> Pair:
    return Pair(
        severity=verdict.severity,
        human=consensus([label.status for label in labels]),
        judge=verdict.status,
        fault=verdict.fault,
        length=length,
    )


def _measured(judge: _Judge, group: _Group, register: Sequence[Calibration], folder: Path) -> RuleCalibration:
    """Measure one judge, and put it on file unless the same was put there before."""
    labels = fingerprint(sorted(json.dumps(label.to_json(), sort_keys=True) for label in group.labels))
    calibration = Calibration(
        rule=judge.rule,
        model=judge.model,
        prompt=judge.prompt,
        at=now(),
        who=tuple(sorted({label.who for label in group.labels})),
        runs=tuple(sorted({label.run for label in group.labels})),
        labels=labels,
        figures=measure(group.pairs),
    )
    judges = (judge.rule, judge.model, judge.prompt)
    same = [one for one in register if (one.rule, one.model, one.prompt) == judges][-1:]
    known = {**calibration.to_json(), "at": None} in [{**one.to_json(), "at": None} for one in same]
    if not known:
        append_calibration(folder, calibration)
    figures = calibration.figures
    raw = Share(count=group.passed, n=group.decided)
    return RuleCalibration(
        severity=judge.severity,
        calibration=same[-1] if known else calibration,
        corrected=None if judge.severity == 1 else corrected(raw, figures.pass_recall, figures.fail_recall),
        fresh=not known,
    )


def _nothing(sources: Sequence[_Source], left_out: Mapping[str, int]) -> str:
    named = ", ".join(source.run.id for source in sources)
    if not any(source.labels for source in sources):
        return f"run {named} has no labels yet; `redteam label {named}` makes them"
    why = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
    return f"no label of run {named} can be compared with a judge's verdict: {why}"
