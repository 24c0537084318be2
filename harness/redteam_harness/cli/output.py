"""Where a command's document goes: to standard output, or to the file that `--output` names."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_output"]


def write_output(text: str, output: Path | None) -> None:
    """Write `text` to the file, or print it without one.

    Raises:
        EnvironmentFault: the file cannot be written.
    """
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"{output} cannot be written: {error.strerror or error}") from error
