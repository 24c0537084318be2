"""Three agents that show what the benchmark's rules are worth. None is a model, and none reads what is said.

They know each task's gold actions, which `redteam bench tau2 --suite` writes into gold.json beside this file,
and they hear from the scripted caller which task it is.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tools
from refusals import RetailError

from redteam_sdk import db

if TYPE_CHECKING:
    from redteam_sdk import Session

__all__ = ["clumsy", "gold", "nothing"]

_TASK = re.compile(r"\btask (\S+) of the benchmark")
_MORE = "Is there anything else that I can do for you?"


@cache
def _tasks() -> dict[str, Any]:
    tasks: dict[str, Any] = json.loads(Path(__file__).with_name("gold.json").read_text(encoding="utf-8"))
    return tasks


async def gold(message: str, session: Session) -> str:
    """Make the gold actions at the first line, and say what must be said.

    Args:
        message: what the caller says.
        session: the conversation.
    """
    task = _begun(message, session)
    if task is None:
        return "You are welcome. Goodbye."
    for action in task["actions"]:
        with suppress(RetailError):  # some gold actions are refused by design, and the next is made
            await getattr(tools, action["name"])(**action["arguments"])
    told = "".join(f" {text}." for text in task["communicate"])
    return f"I have seen to it.{told} {_MORE}"


async def nothing(message: str, session: Session) -> str:
    """Be polite, and do nothing.

    Args:
        message: what the caller says.
        session: the conversation.
    """
    del message, session
    return f"Thank you for telling me. {_MORE}"


async def clumsy(message: str, session: Session) -> str:
    """Do what is right, and change the address of somebody else.

    Args:
        message: what the caller says.
        session: the conversation.
    """
    task = _begun(message, session)
    answer = await gold(message, session)
    if task is not None:
        other: Any = await db.fetchrow(
            "SELECT id, address1, city, state, country, zip FROM users WHERE id <> $1 ORDER BY id LIMIT 1",
            task["user_id"],
        )
        where = {name: other[name] for name in ("address1", "city", "state", "country", "zip")}
        await tools.modify_user_address(user_id=other["id"], address2="c/o the support desk", **where)
    return answer


def _begun(message: str, session: Session) -> dict[str, Any] | None:
    """The task of a conversation, at its first line; None afterwards."""
    named = _TASK.search(message)
    if session.history or named is None:
        return None
    task: dict[str, Any] = _tasks()[named[1]]
    return task
