"""`alternatives.json`: what is right in a task beside its gold actions, as who uses the benchmark sees it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from redteam_harness.benchmarks.tau2.action import Action
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

__all__ = ["Alternative", "read_alternatives"]

_SHAPE = '{"<task id>": [{"why": "...", "actions": [{"name": "<tool>", "arguments": {...}}]}]}'


class Alternative(BaseModel):
    """Actions that are as right as the gold ones.

    Attributes:
        why: why they are; rules and reports show it.
        actions: in order, from the initial state, not after the gold actions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    why: Annotated[str, Field(min_length=1)]
    actions: Annotated[list[Action], Field(min_length=1)]


_OF_A_TASK = TypeAdapter(Annotated[list[Alternative], Field(min_length=1)])


def read_alternatives(path: Path, tasks: Collection[str]) -> Mapping[str, Sequence[Alternative]]:
    """Read the file, if it is there: the alternatives by task.

    Args:
        path: the file.
        tasks: the ids of the tasks that there are.

    Raises:
        UsageError: it is of another shape, or speaks of a task that there is not.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no UTF-8 text; write it as {_SHAPE}") from None
    try:
        data = json.loads(text, object_pairs_hook=_without_repeats)
    except _Repeated as error:
        raise UsageError(f"{path} names {error.args[0]!r} twice in one place; put both into one") from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}; write it as {_SHAPE}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} must be an object with a task's id for each key; write it as {_SHAPE}")
    found: dict[str, Sequence[Alternative]] = {}
    for task, given in data.items():
        if task not in tasks:
            raise UsageError(
                f"{path} has alternatives for task {task}, and tasks.json has no such task; "
                "correct the id or take them out"
            )
        try:
            found[task] = _OF_A_TASK.validate_python(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise UsageError(
                f"{path}, task {task}{_place(first['loc'])}: {first['msg']}; write it as {_SHAPE}"
            ) from None
    return found


class _Repeated(Exception):
    """An object of the file has a key twice, of which JSON would keep the last."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    (most, times), *_ = Counter(name for name, _ in pairs).most_common(1) or [("", 0)]
    if times > 1:
        raise _Repeated(most)
    return dict(pairs)


def _place(loc: Sequence[int | str]) -> str:
    """Where in the alternatives of a task, which are numbered from 1 as they are everywhere else."""
    if not loc:
        return ""
    number, *rest = loc
    inside = f", {'/'.join(map(str, rest))}" if rest else ""
    return f", alternative {int(number) + 1}{inside}"
