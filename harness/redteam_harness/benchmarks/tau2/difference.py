"""What an end state changed beside what it should have: value by value, as far as a person wants to read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from redteam_harness.benchmarks.tau2.document import end_state, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redteam_harness.benchmarks.tau2.data import Benchmark, Task

__all__ = ["Beside", "Difference", "Leaf", "Side", "beside_expected", "difference_of"]

Side = Literal["before", "expected", "found"]

# Two worlds that have nothing in common differ in each of a hundred thousand values.
_KEPT = 200
_SIDES = len(get_args(Side))
_AN_OBJECT = len(("orders", "#W0000000"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One value that is not the same in all three documents.

    Attributes:
        path: keys, and places in lists, from the top of the document.
        sides: the value in each document; one that does not have it is not among them.
    """

    path: tuple[str | int, ...]
    sides: Mapping[Side, Any]

    @property
    def is_as_expected(self) -> bool:
        """Whether what was found is what was expected."""
        return self.text("expected") == self.text("found")

    def text(self, side: Side) -> str | None:
        """The value as JSON; None where there is none. 20 and 20.0 are two texts, as they are to a hash."""
        return json.dumps(self.sides[side], sort_keys=True) if side in self.sides else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Three documents compared: before, expected, found.

    Attributes:
        leaves: what is not as expected, and after that what changed as expected; at most 200.
        wrong: how many values are not as expected.
        right: how many changed as expected.
    """

    leaves: Sequence[Leaf]
    wrong: int
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What could be put beside an end state that has not the expected hash.

    Attributes:
        reference_sha256: what the gold actions lead the nested document to.
        difference: None where that is not the expected hash either, so that what was expected is not known.
    """

    reference_sha256: str
    difference: Difference | None


def beside_expected(benchmark: Benchmark, task: Task, found: str) -> Beside:
    """Compare an exported end state, as JSON text, with the expected one.

    Args:
        benchmark: with the initial state.
        task: whose end state it is.
        found: the exported document.
    """
    before = benchmark.initial
    # The initial state has its hash already; to take it again would cost as much as all the rest.
    expected = before if task.expected.unchanged else end_state(before, task.actions)
    reference = benchmark.initial_sha256 if expected is before else sha256_of(expected)
    if reference != task.expected.end_state_sha256:
        return Beside(reference_sha256=reference, difference=None)
    return Beside(reference_sha256=reference, difference=difference_of(before, expected, json.loads(found)))


def difference_of(before: Any, expected: Any, found: Any) -> Difference:
    """Compare three documents."""
    leaves = list(_leaves((), {"before": before, "expected": expected, "found": found}))
    wrong = [leaf for leaf in leaves if not leaf.is_as_expected]
    right = [leaf for leaf in leaves if leaf.is_as_expected]
    return Difference(leaves=[*wrong, *right][:_KEPT], wrong=len(wrong), right=len(right))


def _leaves(path: tuple[str | int, ...], sides: Mapping[Side, Any]) -> Iterator[Leaf]:
    """Where the documents differ. What only one of them has is one value, however much is inside."""
    values = list(sides.values())
    # One order or user of thousands: nearly all are alike, which their texts tell soonest.
    if len(path) == _AN_OBJECT and len(values) == _SIDES and _alike(values):
        return
    if len(values) > 1 and all(isinstance(value, dict) for value in values):
        for name in sorted({name for value in values for name in value}):
            yield from _leaves(
                (*path, name), {side: value[name] for side, value in sides.items() if name in value}
            )
    elif len(values) > 1 and all(isinstance(value, list) for value in values) and _has_parts(values):
        for place in range(max(len(value) for value in values)):
            yield from _leaves(
                (*path, place), {side: value[place] for side, value in sides.items() if place < len(value)}
            )
    elif len(values) < _SIDES or not _alike(values):
        yield Leaf(path=path, sides=sides)


def _has_parts(values: Iterable[list[Any]]) -> bool:
    """Whether a list is worth looking into: one of names or numbers is read at a glance."""
    return any(isinstance(item, dict | list) for value in values for item in value)


def _alike(values: Sequence[Any]) -> bool:
    first, *others = values
    if isinstance(first, str):
        return all(other == first for other in others)
    text = json.dumps(first, sort_keys=True)
    return all(other is first or json.dumps(other, sort_keys=True) == text for other in others)
