"""What became of the tasks: values, and what they say of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redteam_forker import ChangeSet
    from redteam_harness.benchmarks.tau2.alternatives import Alternative
    from redteam_harness.benchmarks.tau2.data import Task
    from redteam_harness.benchmarks.tau2.difference import Beside

__all__ = ["AlternativeRun", "Attempt", "Benched", "Refused", "Standing", "TaskRun", "with_standings"]

Standing = Literal["accepted", "refused", "as gold", "changes nothing", "repeated", "fault"]
"""What an alternative is worth: only `accepted` ones are part of the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An action that a tool refused: its place among the actions, from 0, and the error."""

    index: int
    tool: str
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a list of actions did on a fork of its own.

    Attributes:
        sha256: of the end state; None where a fault of ours prevented one.
        refused: the actions that a tool refused.
        changes: what the actions changed.
        seconds: from the checkout of the fork to its drop.
        fault: what of ours failed, or None.
    """

    sha256: str | None = None
    refused: Sequence[Refused] = ()
    changes: ChangeSet | None = None
    seconds: float = 0.0
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeRun:
    """What became of an alternative of a task.

    Attributes:
        number: which of the task's, from 1.
        alternative: what it is.
        attempt: what its actions did.
        standing: what it is worth.
    """

    number: int
    alternative: Alternative
    attempt: Attempt
    standing: Standing

    @property
    def name(self) -> str:
        """What rules call it."""
        return f"alternative {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """What became of one task.

    Attributes:
        task: which.
        gold: what the gold actions did.
        beside: the end state beside the expected one; None where it has the expected hash.
        alternatives: in the order of the file.
    """

    task: Task
    gold: Attempt
    beside: Beside | None = None
    alternatives: Sequence[AlternativeRun] = ()

    @property
    def is_match(self) -> bool:
        """Whether the end state has the expected hash, and the expected actions were refused and no other."""
        expected = self.task.expected
        return self.gold.sha256 == expected.end_state_sha256 and [
            one.index for one in self.gold.refused
        ] == sorted(expected.failing_action_indexes)

    @property
    def attempts(self) -> Sequence[Attempt]:
        """Everything that was done on forks for it."""
        return [self.gold, *(one.attempt for one in self.alternatives)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """The whole run.

    Attributes:
        server: kind and version.
        template: the template that the forks were made of.
        load_s: how long making it took, in seconds; of the first time, if it was found.
        runs: in the order of the tasks.
        seconds: from the first checkout to the last drop.
        undropped: names of forks that could not be dropped.
    """

    server: str
    template: str
    load_s: float
    runs: Sequence[TaskRun]
    seconds: float
    undropped: Sequence[str] = ()

    @property
    def matches(self) -> int:
        """How many tasks match."""
        return sum(run.is_match for run in self.runs)

    @property
    def has_faults(self) -> bool:
        """Whether something of ours failed."""
        return any(attempt.fault is not None for run in self.runs for attempt in run.attempts)

    @property
    def forks_per_second(self) -> float:
        """Forks made, used, compared, exported and dropped."""
        forks = sum(len(run.attempts) for run in self.runs)
        return forks / self.seconds if self.seconds else 0.0


def with_standings(task: Task, attempts: Iterable[Attempt], *, initial_sha256: str) -> list[AlternativeRun]:
    """Say what each alternative of a task is worth, from what their actions did.

    Args:
        task: whose.
        attempts: in the order of its alternatives.
        initial_sha256: of the state that nothing was changed in.
    """
    accepted: set[str | None] = set()
    runs: list[AlternativeRun] = []
    for number, (alternative, attempt) in enumerate(zip(task.alternatives, attempts, strict=True), start=1):
        standing = _standing(task, attempt, initial_sha256)
        if standing == "accepted":
            standing = "repeated" if attempt.sha256 in accepted else "accepted"
            accepted.add(attempt.sha256)
        runs.append(
            AlternativeRun(number=number, alternative=alternative, attempt=attempt, standing=standing)
        )
    return runs


def _standing(task: Task, attempt: Attempt, initial_sha256: str) -> Standing:
    if attempt.fault is not None:
        return "fault"
    if attempt.refused:
        return "refused"
    if attempt.sha256 == task.expected.end_state_sha256:
        return "as gold"
    if attempt.sha256 == initial_sha256:
        return "changes nothing"
    return "accepted"
