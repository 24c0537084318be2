"""One call of a tool, as the files of a benchmark write it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["Action", "Part"]


class Part(BaseModel):
    """What is not ours may say more than we read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Action(Part):
    """One call of a tool."""

    name: str
    arguments: dict[str, Any]
