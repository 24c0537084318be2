"""Many questions at once: the more rules are looked at, the more likely one of them looks bad by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from redteam_rubrics.statistics.intervals import CONFIDENCE
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

__all__ = ["bonferroni", "holm", "simultaneous"]

_Name = TypeVar("_Name", bound="Hashable")


def simultaneous(family: int, confidence: float = CONFIDENCE) -> float:
    """The confidence of each of several intervals, so that all of them hold together with `confidence`.

    Bonferroni's inequality: the chances to miss are shared out. It holds however the intervals depend on each
    other.

    Raises:
        InternalError: the family is empty.
    """
    if family < 1:
        raise InternalError("an empty family has no confidence")
    return 1 - (1 - confidence) / family


def bonferroni(p_values: Mapping[_Name, float]) -> dict[_Name, float]:
    """Bonferroni's adjusted p values: each times how many there are, at most 1.

    Raises:
        InternalError: a value that is not from 0 to 1.
    """
    _check(p_values)
    return {name: min(1.0, value * len(p_values)) for name, value in p_values.items()}


def holm(p_values: Mapping[_Name, float]) -> dict[_Name, float]:
    """Holm's adjusted p values (Scandinavian Journal of Statistics 6, 1979): never above Bonferroni's.

    Rejecting those that are at most alpha keeps the chance of any false rejection at most alpha.

    Raises:
        InternalError: a value that is not from 0 to 1.
    """
    _check(p_values)
    ordered = sorted(p_values, key=lambda name: p_values[name])
    adjusted: dict[_Name, float] = {}
    highest = 0.0
    for done, name in enumerate(ordered):
        highest = max(highest, min(1.0, p_values[name] * (len(ordered) - done)))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def _check(p_values: Mapping[_Name, float]) -> None:
    for name, value in p_values.items():
        if not 0 <= value <= 1:
            raise InternalError(f"{value} of {name!r} is no p value")
