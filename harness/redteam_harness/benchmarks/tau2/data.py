"""The benchmark's files: `tasks.json`, `expected.json`, and `db.json`, which the world's loader reads.

`alternatives.json` beside them is not the benchmark's but its user's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from redteam_harness.benchmarks.tau2.action import Action, Part
from redteam_harness.benchmarks.tau2.alternatives import read_alternatives
from redteam_harness.benchmarks.tau2.document import initial_state
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.benchmarks.tau2.alternatives import Alternative
    from redteam_harness.benchmarks.tau2.draft import Document

__all__ = ["Benchmark", "Expected", "Instructions", "Task", "read_benchmark"]

_T = TypeVar("_T")


class Instructions(Part):
    """What the person is told to play."""

    task_instructions: str = ""
    reason_for_call: str
    known_info: str | None = None
    unknown_info: str | None = None


class _Scenario(Part):
    instructions: Instructions


class _Criteria(Part):
    actions: list[Action] | None = None
    communicate_info: list[str] | None = None


class _TaskFile(Part):
    id: Annotated[str, Field(coerce_numbers_to_str=True)]
    user_scenario: _Scenario
    evaluation_criteria: _Criteria


class Expected(Part):
    """The oracle's word on one task.

    Attributes:
        end_state_sha256: of the end state that the gold actions lead to.
        unchanged: whether that is the initial state.
        failing_action_indexes: which gold actions are refused, counted from 0.
    """

    end_state_sha256: str
    unchanged: bool
    failing_action_indexes: tuple[int, ...] = ()


class _Users(Part):
    users: dict[str, dict[str, Any]]


class _ExpectedFile(Part):
    initial_sha256: str
    tasks: dict[str, Expected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task with what the oracle says of it.

    Attributes:
        id: the benchmark's.
        instructions: what the person is told to play.
        actions: the gold actions, in order.
        communicate: what the person must be told.
        expected: what the gold actions lead to.
        alternatives: what is right beside the gold actions; nobody knows their hashes.
    """

    id: str
    instructions: Instructions
    actions: Sequence[Action]
    communicate: Sequence[str]
    expected: Expected
    alternatives: Sequence[Alternative] = ()


@dataclass(frozen=True, kw_only=True)  # without slots: what is read of `db` is read once, if it is asked for
class Benchmark:
    """A folder of the benchmark.

    Attributes:
        db: its nested data set.
        policy: the agent's policy, or None where there is none.
        initial_sha256: of the untouched data set.
        tasks: in the order of the file.
    """

    db: Path
    policy: Path | None
    initial_sha256: str
    tasks: Sequence[Task]

    @cached_property
    def users(self) -> Mapping[str, Any]:
        """The users of the data set, as it has them."""
        return _read(self.db, TypeAdapter(_Users)).users

    @cached_property
    def initial(self) -> Document:
        """The untouched data set as a state. Nobody may change it."""
        return initial_state(_read(self.db, TypeAdapter(dict[str, Any])))


def read_benchmark(folder: Path) -> Benchmark:
    """Read a folder with db.json, tasks.json and expected.json; policy.md and alternatives.json are optional.

    Raises:
        UsageError: a file is missing or of another shape, or a task is in one file only.
    """
    if not (folder / "db.json").is_file():
        inside = sorted(path.parent.name for path in folder.glob("*/db.json"))
        near = f"; did you mean {folder / inside[0]}?" if inside else ""
        raise UsageError(f"{folder} has no db.json, which the benchmark's data set is in{near}")
    tasks = _read(folder / "tasks.json", TypeAdapter(list[_TaskFile]))
    oracle = _read(folder / "expected.json", TypeAdapter(_ExpectedFile))
    unknown = [task.id for task in tasks if task.id not in oracle.tasks]
    if unknown:
        raise UsageError(f"{folder / 'expected.json'} says nothing of {_listed(unknown)}")
    alternatives = read_alternatives(folder / "alternatives.json", {task.id for task in tasks})
    policy = folder / "policy.md"
    return Benchmark(
        db=folder / "db.json",
        policy=policy if policy.is_file() else None,
        initial_sha256=oracle.initial_sha256,
        tasks=[
            Task(
                id=task.id,
                instructions=task.user_scenario.instructions,
                actions=task.evaluation_criteria.actions or (),
                communicate=task.evaluation_criteria.communicate_info or (),
                expected=oracle.tasks[task.id],
                alternatives=alternatives.get(task.id, ()),
            )
            for task in tasks
        ],
    )


def _read(path: Path, shape: TypeAdapter[_T]) -> _T:
    try:
        return shape.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "/".join(map(str, first["loc"]))
        raise UsageError(f"{path} is not of the benchmark's shape: {where}: {first['msg']}") from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from None


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:5])
    return f"task {shown}" if len(ids) == 1 else f"{len(ids)} tasks: {shown}{', ...' * (len(ids) > 5)}"
