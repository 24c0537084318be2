"""`externals:` of a case: which external tools fail in it, and how. The token carries it to the SDK."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from redteam_sdk.scripted import ScriptedFault

__all__ = ["Externals", "FaultSpec", "faults_of"]

_MAX_FAULTS = 32  # what a token has room for
_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"


class FaultSpec(BaseModel):
    """One fault of an external tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fault: Annotated[
        str,
        Field(pattern=_NAME, description="`timeout`, `duplicate`, `bounce`, or one that the code names."),
    ]
    call: Annotated[int | None, Field(ge=1, le=10_000, description="At which call only; 1 is the first.")] = (
        None
    )
    share: Annotated[float, Field(gt=0, le=1, description="The share of those calls that fail.")] = 1.0
    happened: Annotated[
        bool | None,
        Field(description="Whether it was done all the same. Of a time-out it was, unless this says no."),
    ] = None


def _one_or_many(value: Any) -> Any:
    return [_named(one) for one in value] if isinstance(value, list) else [_named(value)]


def _named(value: Any) -> Any:
    return {"fault": value} if isinstance(value, str) else value


def _few(value: dict[str, list[FaultSpec]]) -> dict[str, list[FaultSpec]]:
    if sum(map(len, value.values())) > _MAX_FAULTS:
        raise ValueError(f"a case plays at most {_MAX_FAULTS} faults of external tools")
    return value


Externals = Annotated[
    dict[
        Annotated[str, Field(pattern=_NAME)],
        Annotated[list[FaultSpec], Field(min_length=1), BeforeValidator(_one_or_many)],
    ],
    AfterValidator(_few),
]
"""Faults by external tool: a name, a fault, or a list of either. The first that fits a call is played."""


def faults_of(externals: Externals) -> tuple[ScriptedFault, ...]:
    """A case's faults as the token carries them."""
    return tuple(
        ScriptedFault(name, one.fault, one.call, one.share, one.happened)
        for name, faults in externals.items()
        for one in faults
    )
