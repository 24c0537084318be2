"""What a run must reach to be green, as a suite says it before the run: the key `gates` of suite.yaml.

A threshold can only add a reason to be red. Unless the suite says otherwise, no rule may fail (`fail_on:
any`) and every planned conversation must have a verdict.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from redteam_sdk.errors import UsageError

__all__ = [
    "AtMost",
    "CalibrationGate",
    "CostGate",
    "FailOn",
    "GatesSpec",
    "PassRateGate",
    "RuleGate",
    "ShareAtMost",
    "severities",
    "with_fail_on",
]

FailOn = Literal["sev1", "sev2", "any", "none"]
"""Failures of which rules are red: of severity 1; of 1 and 2; of any; of none, where thresholds decide."""

_SEVERITIES: dict[FailOn, tuple[int, ...]] = {"sev1": (1,), "sev2": (1, 2), "any": (1, 2, 3), "none": ()}


class _Gate(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PassRateGate(_Gate):
    """How many of the judged conversations must pass."""

    min: Annotated[float, Field(gt=0, le=1, description="As a share of 1.")]
    figure: Annotated[
        Literal["lower_bound", "share"],
        Field(description="What is compared: the interval's lower bound, or the share itself."),
    ] = "lower_bound"


class AtMost(_Gate):
    """A number that may not be exceeded."""

    max: Annotated[int, Field(ge=0, strict=True, description="How many there may be.")]


class ShareAtMost(_Gate):
    """A number, or a share of all, that may not be exceeded."""

    max: Annotated[int | None, Field(ge=0, strict=True, description="How many there may be.")] = None
    max_share: Annotated[float | None, Field(ge=0, lt=1, description="As a share of 1.")] = None

    @model_validator(mode="after")
    def _one(self) -> ShareAtMost:
        if (self.max is None) == (self.max_share is None):
            raise ValueError("give either max or max_share")
        return self


class RuleGate(_Gate):
    """In how many conversations one rule may fail."""

    max_failed: Annotated[int, Field(ge=0, strict=True, description="In how many conversations.")]


class CostGate(_Gate):
    """What the models of a run may cost."""

    max_usd: Annotated[float, Field(gt=0, description="US dollars, of all launches of the run.")]


class CalibrationGate(_Gate):
    """How well a judge must be known to agree with people, for every rule that it judged."""

    min_labels: Annotated[int, Field(ge=1, strict=True, description="How many labels there are.")] = 1
    min_agreement: Annotated[
        float | None, Field(gt=0, le=1, description="The lower bound of the agreement's interval.")
    ] = None
    min_kappa: Annotated[float | None, Field(gt=-1, le=1, description="Cohen's kappa.")] = None
    max_false_passes: Annotated[
        int | None, Field(ge=0, strict=True, description="How often it passed what people failed.")
    ] = None


class GatesSpec(_Gate):
    """What a run must reach. A gate that cannot be evaluated is red."""

    fail_on: Annotated[
        FailOn, Field(description="Failures of which rules are red: sev1, sev2 (1 and 2), any, or none.")
    ] = "any"
    pass_rate: Annotated[PassRateGate | None, Field(description="The least that must pass.")] = None
    severity_1: Annotated[
        AtMost | None, Field(description="Conversations that broke a rule of severity 1.")
    ] = None
    rules: Annotated[dict[str, RuleGate], Field(description="The most that a rule may fail, by name.")] = {}
    min_judged: Annotated[
        int | None, Field(ge=1, strict=True, description="The fewest conversations with a verdict.")
    ] = None
    faults: Annotated[
        ShareAtMost, Field(description="Planned conversations without a verdict, faults of ours among them.")
    ] = ShareAtMost(max=0)
    unclear: Annotated[
        ShareAtMost | None, Field(description="Verdicts that are unclear, of all verdicts.")
    ] = None
    cost: Annotated[CostGate | None, Field(description="What models may cost.")] = None
    calibration: Annotated[CalibrationGate | None, Field(description="What must be known of the judge.")] = (
        None
    )

    @model_validator(mode="after")
    def _can_be_red(self) -> GatesSpec:
        if self.fail_on == "none" and not (self.pass_rate or self.severity_1 or self.rules):
            raise ValueError(
                "with `fail_on: none` no failure of the agent could turn a run red; "
                "give pass_rate, severity_1 or rules as well"
            )
        return self


def with_fail_on(gates: GatesSpec, fail_on: FailOn | None) -> GatesSpec:
    """The same gates with another `fail_on`, where one is given.

    Raises:
        UsageError: nothing of the agent's could turn a run red any more.
    """
    if fail_on is None:
        return gates
    try:
        return GatesSpec.model_validate({**gates.model_dump(), "fail_on": fail_on})
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"--fail-on {fail_on}: {said}") from None


def severities(fail_on: FailOn) -> tuple[int, ...]:
    """The severities of rules whose failure is red."""
    return _SEVERITIES[fail_on]
