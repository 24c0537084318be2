"""The call cache: answers of calls that were made before, for the same conversation and the same attempt.

The key holds the conversation and how often it asked exactly this before. Two conversations that ask the
same, or one that asks again, therefore never share an answer: a model's variation stays what is measured.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from redteam_harness.evidence.run import fingerprint
from redteam_harness.evidence.storage import write_json, writing
from redteam_harness.models.chat import Reply, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_harness.models.chat import Request

__all__ = ["CallCache"]


class CallCache:
    """A folder with one file for each answer. Delete files, or the folder, as you like."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def key(self, model: str, request: Request, conversation: str, asked: dict[str, int]) -> str:
        """The name of an answer's file.

        Args:
            model: who is asked.
            request: what.
            conversation: by which conversation.
            asked: how often this conversation asked what; the call is counted in it.
        """
        what = fingerprint(
            {
                "model": model,
                "system": request.system,
                "messages": list(request.messages),
                "tools": list(request.tools),
                "shape": request.shape.model_json_schema() if request.shape else None,
            }
        )
        asked[what] = asked.get(what, 0) + 1
        return fingerprint({"call": what, "conversation": conversation, "attempt": asked[what]})

    def get(self, key: str) -> Reply | None:
        """The kept answer, or None; a file that cannot be read is none."""
        try:
            data = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            return Reply(**{**data, "usage": Usage(**data["usage"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def put(self, key: str, reply: Reply) -> None:
        """Keep an answer."""
        write_json(self._folder / f"{key}.json", {**asdict(reply), "content": list(reply.content)})
