"""Names of conversations: `c008`, and `c008.2` for the second time that the same is held. Pure."""

from __future__ import annotations

import re

__all__ = ["conversation_id", "first_of", "in_order"]


def conversation_id(number: int, repetition: int = 1) -> str:
    """The name of a conversation: `c008`, `c008.2`.

    Args:
        number: of what was planned, from 1.
        repetition: which time it is held, from 1; the first has the bare name, however many follow.
    """
    return f"c{number:03}" if repetition == 1 else f"c{number:03}.{repetition}"


def first_of(conversation: str) -> str:
    """The name of the first repetition, which all repetitions of the same share."""
    return conversation.partition(".")[0]


def in_order(conversation: str) -> tuple[int, ...]:
    """Sorts names as people count: `c9` before `c10`, `c008` and its repetitions before `c009`."""
    return tuple(int(number) for number in re.findall(r"\d+", conversation))
