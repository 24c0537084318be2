"""The environment of an agent that we start: the launcher's, without what could lead it to production."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["agent_environment"]

# libpq's variables (with PGSERVICEFILE and PGPASSFILE), the database images', ours and the model's.
_PREFIXES = ("PG", "POSTGRES_", "POSTGRESQL_", "DB_", "DATABASE_", "ANTHROPIC_", "OPENAI_", "REDTEAM_")
_SUFFIXES = ("DATABASE_URL", "DATABASE_URI", "DB_URL", "DB_URI", "_DSN", "PGPASSWORD")
# Anywhere in a value: jdbc:postgresql://, a JSON of settings, postgresql+asyncpg://.
_ADDRESS = re.compile(r"postgres(ql)?(\+\w+)?://|\bdbname\s*=", re.IGNORECASE)
# Not read by libpq and asyncpg where the file is not there; unset, they would look into the home directory
# and the system's, and a service or password of production's found there completes an address.
_NOWHERE = "/nonexistent/redteam"
_FILES = {"PGPASSFILE": _NOWHERE, "PGSERVICEFILE": _NOWHERE, "PGSYSCONFDIR": _NOWHERE}


def agent_environment(environment: Mapping[str, str], passed: Sequence[str]) -> dict[str, str]:
    """The launcher's environment without what could lead the agent's code to production, or to our keys.

    Args:
        environment: the launcher's.
        passed: names that the suite passes on all the same.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name in passed
        or not (name.startswith(_PREFIXES) or name.endswith(_SUFFIXES) or _ADDRESS.search(value))
    }
    return {**_FILES, **kept}
