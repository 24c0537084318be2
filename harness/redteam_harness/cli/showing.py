"""`redteam show`: one conversation of a run, from its evidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console

from redteam_harness.evidence.run import open_run, read_conversation
from redteam_harness.report.terminal import print_conversation

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["show_conversation"]


def show_conversation(run: str, conversation: str, base: Path) -> None:
    """Print one conversation.

    Raises:
        UsageError: there is no such run, or no such conversation in it.
    """
    directory = open_run(run, base)
    stored = read_conversation(directory, conversation)
    notice = json.loads(directory.facts.read_text(encoding="utf-8"))["notice"]
    print_conversation(Console(highlight=False), stored, notice)
