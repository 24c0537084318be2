"""`redteam init`: a small suite that launches as it is."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_starter"]

_FILES = ("suite.yaml", "rules.yaml", "schema.sql", "agent.py")


def write_starter(directory: Path) -> list[Path]:
    """Write the starter suite into a folder that does not exist, or is empty.

    Raises:
        UsageError: something is there already; nothing was written.
        EnvironmentFault: the folder cannot be written.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is there already and not an empty folder; name a new one")
    source = files("redteam_harness") / "starter"
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            path = directory / name
            path.write_text((source / name).read_text(encoding="utf-8"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise EnvironmentFault(f"{directory} cannot be written: {error.strerror}") from error
    return written
