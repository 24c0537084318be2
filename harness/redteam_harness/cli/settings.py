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
        openai_key: `OPENAI_API_KEY`, or None.
        openai_base_url: `OPENAI_BASE_URL`, where an OpenAI-compatible server is, or None.
        state: the folder that keeps the embedded server of this user: `redteam` in the user's cache.
        postgres_user: `REDTEAM_POSTGRES_USER`: whom an embedded server runs as when we are root, or None.
        signing_key: `REDTEAM_SIGNING_KEY`: the file of the key that deployed services trust; default: one in
            `state`.
        environment: the whole environment, for the agent process to be given a part of.
    """

    api_key: str | None = field(repr=False)
    base_url: str | None
    openai_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    state: Path
    postgres_user: str | None
    signing_key: Path
    environment: Mapping[str, str] = field(repr=False)


def read_settings() -> Settings:
    """Read the environment of this process."""
    environment = dict(os.environ)
    state = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "redteam"
    return Settings(
        api_key=environment.get("ANTHROPIC_API_KEY") or None,
        base_url=environment.get("ANTHROPIC_BASE_URL") or None,
        openai_key=environment.get("OPENAI_API_KEY") or None,
        openai_base_url=environment.get("OPENAI_BASE_URL") or None,
        state=state,
        postgres_user=environment.get("REDTEAM_POSTGRES_USER") or None,
        signing_key=Path(environment.get("REDTEAM_SIGNING_KEY") or state / "signing-key.pem"),
        environment=environment,
    )
