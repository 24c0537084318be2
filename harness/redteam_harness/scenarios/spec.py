"""A scenario as a person writes it: what the user says, what mocks answer. Bounded before it is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from redteam_harness.launch.documents import read_document
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MAX_TEXT", "MockSpec", "ScenarioSpec", "StepSpec", "read_scenario"]

MAX_TEXT = 8_192
"""The most characters of a step, an answer or an output."""
_MAX_NAME, _MAX_DESCRIPTION = 200, 1_024
_MAX_DOCUMENT = 2**20
_MAX_STEPS, _MAX_MOCKS = 200, 1_000


def _small(value: JsonValue) -> JsonValue:
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise ValueError("holds a number that is none (.nan or .inf)") from None
    if size > MAX_TEXT:
        raise ValueError(f"has {size:,} characters as JSON, and at most {MAX_TEXT:,} are taken")
    return value


_Small = Annotated[JsonValue, AfterValidator(_small)]
_Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepSpec(_Spec):
    """One line of the user, and what is expected of the reply."""

    say: Annotated[str, Field(min_length=1, max_length=MAX_TEXT, description="What the user says.")]
    expected: Annotated[
        str | None, Field(max_length=MAX_TEXT, description="What the scorer compares the reply with.")
    ] = None


class MockSpec(_Spec):
    """What one call is answered with; of several for the same call, the last."""

    tool: Annotated[_Name, Field(description="The function's name, marked by @tool or @external.")]
    arguments: Annotated[
        dict[str, JsonValue],
        AfterValidator(_small),
        Field(description="All of its arguments by name, defaults included; they must be exactly these."),
    ] = {}
    answer: Annotated[_Small, Field(description="What the call returns.")] = None
    error: Annotated[
        str | None,
        Field(min_length=1, max_length=MAX_TEXT, description="What it raises instead, `TimeoutError: why`."),
    ] = None

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if self.error is not None and "answer" in self.model_fields_set:
            raise ValueError("a mock has an answer or an error, and not both")
        if self.error is None and "answer" not in self.model_fields_set:
            raise ValueError("a mock needs an answer (null, where the call returns nothing) or an error")
        return self


class ScenarioSpec(_Spec):
    """A scenario."""

    scenario: Annotated[_Name, Field(description="Its name.")]
    description: Annotated[str, Field(max_length=_MAX_DESCRIPTION, description="What it is about.")] = ""
    agent: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
            max_length=_MAX_NAME,
            description="`module:callable`, imported from the scenario's folder.",
        ),
    ]
    steps: Annotated[list[StepSpec], Field(min_length=1, max_length=_MAX_STEPS, description="In order.")]
    mocks: Annotated[list[MockSpec], Field(max_length=_MAX_MOCKS, description="Answers to calls.")] = []
    scorer: Annotated[
        _Name | None, Field(description="`exact` or `contains`: how replies are compared with `expected`.")
    ] = None
    timeout_s: Annotated[
        float, Field(gt=0, le=600, description="How long all of it may take, its imports too.")
    ] = 30.0

    @model_validator(mode="after")
    def _is_scored(self) -> Self:
        expects = any(step.expected is not None for step in self.steps)
        if expects and self.scorer is None:
            raise ValueError("a step has `expected` and there is no `scorer` that would look at it")
        if self.scorer is not None and not expects:
            raise ValueError("there is a `scorer`, and no step has `expected`")
        return self


def read_scenario(path: Path) -> ScenarioSpec:
    """Read a scenario.

    Raises:
        UsageError: what is wrong, in which line: too large, an unknown key, a second document, an alias.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if size > _MAX_DOCUMENT:
        raise UsageError(f"{path} has {size:,} bytes, and a scenario at most {_MAX_DOCUMENT:,}")
    document = read_document(path)
    for event in yaml.parse(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            # A few aliases of aliases are gigabytes.
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise UsageError(f"{path}:{line}: aliases (`*{event.anchor}`) are not taken")
    return document.validate(ScenarioSpec)
