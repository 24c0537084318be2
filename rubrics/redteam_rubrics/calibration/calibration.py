"""Figures bound to the judge that they were measured of: one model, one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from redteam_rubrics.calibration.figures import Figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_rubrics.verdict import Asked

__all__ = ["Calibrated", "Calibration", "calibration_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How the judge of one rule compared with people.

    Attributes:
        rule: the rule.
        model: the judge's model.
        prompt: the hash of what it was asked (`Asked.prompt`).
        at: when it was measured, UTC in ISO 8601.
        who: who labelled.
        runs: ids of the runs that the labelled conversations are of.
        labels: SHA-256 of the labels that were counted, in hexadecimal.
        figures: what was found.
    """

    rule: str
    model: str
    prompt: str
    at: str
    who: tuple[str, ...]
    runs: tuple[str, ...]
    labels: str
    figures: Figures

    @property
    def n(self) -> int:
        """How many conversations people and judge both decided."""
        return self.figures.n

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data: a line of the register, and the `calibration` of a report."""
        return {
            "rule": self.rule,
            "model": self.model,
            "prompt": self.prompt,
            "at": self.at,
            "who": list(self.who),
            "runs": list(self.runs),
            "labels": self.labels,
            **self.figures.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """The reverse of `to_json`."""
        return cls(
            rule=data["rule"],
            model=data["model"],
            prompt=data["prompt"],
            at=data["at"],
            who=tuple(data["who"]),
            runs=tuple(data["runs"]),
            labels=data["labels"],
            figures=Figures.from_json(data),
        )


class Calibrated(NamedTuple):
    """What a register knows of a judge.

    Attributes:
        calibration: the newest of this rule, model and prompt; else the newest of this rule; None: there is
            none of the rule.
        stale: whether it is of another model or prompt than the judge that was asked for, so that it says
            nothing about this one.
    """

    calibration: Calibration | None
    stale: bool


def calibration_of(rule: str, asked: Asked, register: Iterable[Calibration]) -> Calibrated:
    """What is known of the judge `asked` by `rule`.

    Args:
        rule: the rule's name.
        asked: the judge's model and prompt, as its verdicts have them.
        register: calibrations in the order in which they were written.
    """
    of_rule = [one for one in register if one.rule == rule]
    fresh = [one for one in of_rule if (one.model, one.prompt) == (asked.model, asked.prompt)]
    if fresh:
        return Calibrated(fresh[-1], stale=False)
    return Calibrated(of_rule[-1] if of_rule else None, stale=bool(of_rule))
