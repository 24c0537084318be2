"""A judge beside people: how often they agree, and which mistakes the judge makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_rubrics.calibration.agreement import Kappa, Share, cohen_kappa
from redteam_rubrics.calibration.verbosity import Correlation, rank_correlation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_rubrics.calibration.people import Consensus
    from redteam_rubrics.verdict import Fault, Status

__all__ = ["Figures", "Mistakes", "Pair", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What people and the judge said of one conversation by one rule.

    Attributes:
        severity: the rule's.
        human: what people said together.
        judge: what the judge said.
        fault: where the judge's verdict is unclear because something of ours failed.
        length: how many characters the agent's lines have.
    """

    severity: int
    human: Consensus
    judge: Status
    fault: Fault | None = None
    length: int

    @property
    def decided(self) -> bool:
        """Whether both said pass or fail, so that they can be compared."""
        return {self.human, self.judge} <= {"pass", "fail"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """A judge's mistakes by rules of one severity.

    Attributes:
        severity: 1 (worst) to 3.
        n: how many pairs could be compared.
        false_passes: people failed it, the judge passed it.
        false_fails: people passed it, the judge failed it.
    """

    severity: int
    n: int
    false_passes: int
    false_fails: int

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "severity": self.severity,
            "n": self.n,
            "false_passes": self.false_passes,
            "false_fails": self.false_fails,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mistakes:
        """The reverse of `to_json`."""
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How a judge compares with people. `agreement.n` pairs count; the rest is counted apart.

    Attributes:
        agreement: how often both said the same, of the pairs that both decided.
        kappa: agreement beyond chance; None where it is undefined.
        pass_recall: of what people passed, what the judge passed.
        fail_recall: of what people failed, what the judge failed.
        mistakes: by severity, the worst first.
        judge_unclear: people decided, the judge said unclear.
        judge_faults: people decided, the judge could not be heard.
        human_unclear: people said unclear, whatever the judge said.
        disputed: as many people said pass as said fail.
        verbosity: how the judge's mistakes go with the length of the agent's lines. Above 0, it is the more
            lenient the more the agent says; below 0, the stricter. None where it made no mistakes, or made
            the same one throughout, or all are of one length.
    """

    agreement: Share
    kappa: Kappa | None
    pass_recall: Share
    fail_recall: Share
    mistakes: tuple[Mistakes, ...]
    judge_unclear: int
    judge_faults: int
    human_unclear: int
    disputed: int
    verbosity: Correlation | None

    @property
    def n(self) -> int:
        """How many pairs both decided."""
        return self.agreement.n

    @property
    def false_passes(self) -> int:
        """How often people failed what the judge passed."""
        return sum(one.false_passes for one in self.mistakes)

    @property
    def false_fails(self) -> int:
        """How often people passed what the judge failed."""
        return sum(one.false_fails for one in self.mistakes)

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "n": self.n,
            "agreement": self.agreement.to_json(),
            "kappa": None if self.kappa is None else self.kappa.to_json(),
            "pass_recall": self.pass_recall.to_json(),
            "fail_recall": self.fail_recall.to_json(),
            "false_passes": self.false_passes,
            "false_fails": self.false_fails,
            "mistakes": [one.to_json() for one in self.mistakes],
            "judge_unclear": self.judge_unclear,
            "judge_faults": self.judge_faults,
            "human_unclear": self.human_unclear,
            "disputed": self.disputed,
            "verbosity": None if self.verbosity is None else self.verbosity.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Figures:
        """The reverse of `to_json`."""
        kappa, verbosity = data["kappa"], data["verbosity"]
        return cls(
            agreement=Share.from_json(data["agreement"]),
            kappa=None if kappa is None else Kappa.from_json(kappa),
            pass_recall=Share.from_json(data["pass_recall"]),
            fail_recall=Share.from_json(data["fail_recall"]),
            mistakes=tuple(Mistakes.from_json(one) for one in data["mistakes"]),
            judge_unclear=data["judge_unclear"],
            judge_faults=data["judge_faults"],
            human_unclear=data["human_unclear"],
            disputed=data["disputed"],
            verbosity=None if verbosity is None else Correlation.from_json(verbosity),
        )


def measure(pairs: Iterable[Pair]) -> Figures:
    """Compare a judge with people."""
    pairs = list(pairs)
    decided = [pair for pair in pairs if pair.decided]
    cells = Counter((pair.human, pair.judge) for pair in decided)
    table = [[cells[human, judge] for judge in ("pass", "fail")] for human in ("pass", "fail")]
    (both_pass, false_fails), (false_passes, both_fail) = table
    heard = [pair for pair in pairs if pair.human in ("pass", "fail") and pair.judge == "unclear"]
    return Figures(
        agreement=Share(count=both_pass + both_fail, n=len(decided)),
        kappa=cohen_kappa(table),
        pass_recall=Share(count=both_pass, n=both_pass + false_fails),
        fail_recall=Share(count=both_fail, n=both_fail + false_passes),
        mistakes=tuple(
            _mistakes(severity, [pair for pair in decided if pair.severity == severity])
            for severity in sorted({pair.severity for pair in decided})
        ),
        judge_unclear=sum(pair.fault is None for pair in heard),
        judge_faults=sum(pair.fault is not None for pair in heard),
        human_unclear=sum(pair.human == "unclear" for pair in pairs),
        disputed=sum(pair.human == "disputed" for pair in pairs),
        verbosity=rank_correlation([_leniency(pair) for pair in decided], [pair.length for pair in decided]),
    )


def _mistakes(severity: int, pairs: list[Pair]) -> Mistakes:
    lenient = [_leniency(pair) for pair in pairs]
    return Mistakes(
        severity=severity, n=len(pairs), false_passes=lenient.count(1), false_fails=lenient.count(-1)
    )


def _leniency(pair: Pair) -> int:
    """1 for a false pass, -1 for a false fail, 0 where both said the same."""
    return 0 if pair.judge == pair.human else 1 if pair.judge == "pass" else -1
