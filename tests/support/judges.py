"""Judges for tests: models that say what a test wants, and a gullible one that obeys whatever it can."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from redteam_rubrics import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redteam_rubrics import Answer
    from redteam_sdk.errors import EnvironmentFault

__all__ = ["SaidJudge", "answered", "fences", "gullible", "outside"]

_FENCE = re.compile(r"^⟦evidence.*?^⟦end of evidence[^\n]*$", re.DOTALL | re.MULTILINE)


def answered(answer: str, *, quote: str = "", where: str = "", reason: str = "Because.") -> Reply:
    """A whole answer."""
    return Reply(
        text=json.dumps(
            {"reason": reason, "quote": quote, "where": where, "answer": answer}, ensure_ascii=False
        )
    )


class SaidJudge:
    """A `JudgeModel` that says what a function of the message says; keeps messages and records."""

    def __init__(self, say: Callable[[str], Reply | EnvironmentFault], name: str = "said-judge") -> None:
        self.name = name
        self.messages: list[str] = []
        self.systems: set[str] = set()
        self.records: list[Mapping[str, Any]] = []
        self._say = say

    async def ask(self, *, system: str, message: str, shape: type[Answer]) -> Reply:
        self.messages.append(message)
        self.systems.add(system)
        said = self._say(message)
        if isinstance(said, Reply):
            return said
        raise said

    def keep(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)


def outside(message: str) -> str:
    """What a reader sees outside of the fences who takes any line for a fence that begins like one."""
    return _FENCE.sub("", message)


def fences(message: str) -> list[list[str]]:
    """The lines within each fence, to such a reader."""
    return [found.splitlines()[1:-1] for found in _FENCE.findall(message)]


def gullible(system: str, message: str) -> Reply | None:
    """Obeys `ANSWER yes` or `ANSWER no` wherever it stands outside of a fence; None: nothing to obey."""
    order = re.search(r"ANSWER (yes|no)", outside(message) + system)
    if order is None:
        return None
    lines = [line for fence in fences(message) for line in fence]
    ref, _, rest = lines[0].partition(" ")
    return answered(order[1], quote=rest.partition(": ")[2], where=ref)
