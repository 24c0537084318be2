"""What the environment says, read once, here, into a value that is passed down."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Settings", "read_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The launcher's settings.

    Attributes:
        api_key: `ANTHROPIC_API_KEY`, or None.
        base_url: `ANTHROPIC_BASE_URL`, or None.
        state: the folder that keeps the embedded server of this user: `redteam` in the user's cache.
        postgres_user: `REDTEAM_POSTGRES_USER`: whom an embedded server runs as when we are root, or None.
        environment: the whole environment, for the agent process to be given a part of.
    """

    api_key: str | None = field(repr=False)
    base_url: str | None
    state: Path
    postgres_user: str | None
    environment: Mapping[str, str] = field(repr=False)


def read_settings() -> Settings:
    """Read the environment of this process."""
    environment = dict(os.environ)
    return Settings(
        api_key=environment.get("ANTHROPIC_API_KEY") or None,
        base_url=environment.get("ANTHROPIC_BASE_URL") or None,
        state=Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redteam",
        postgres_user=environment.get("REDTEAM_POSTGRES_USER") or None,
        environment=environment,
    )
