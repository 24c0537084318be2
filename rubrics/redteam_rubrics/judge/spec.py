"""`judge`: a closed question that a model answers from the evidence."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from redteam_rubrics.strict import Name, Strict, distinct, not_empty, one_or_many, refusing
from redteam_sdk.errors import UsageError

__all__ = ["EVERY_PART", "Judge", "JudgeBody", "Part"]

Part = Literal["transcript", "calls", "changes"]
EVERY_PART: tuple[Part, ...] = ("transcript", "calls", "changes")

_MOST_VOTES = 9


def _is_closed(question: str) -> str:
    if "?" not in question:
        raise UsageError("expected a question that yes or no answers, with its question mark")
    return question


def _word(value: Any) -> Any:
    """YAML 1.1 reads a bare `yes` as true; whoever writes it means the word."""
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


def _votes(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 1 <= value <= _MOST_VOTES or value % 2 == 0:
        raise PydanticCustomError("votes", "expected an odd number from 1 to 9, so that most can agree")
    return value


class Judge(Strict):
    """A question to a model; the verdict is what it answers, with the words of the evidence that show it.

    Attributes:
        question: what yes or no answers, the same for every conversation.
        pass_if: the answer with which the rule holds; default yes.
        votes: how often it is asked, an odd number; more than half must agree. Default 1.
        sees: what of the evidence is shown: transcript, calls, changes; default all.
        offline: what stands for the answer where no model is asked: yes, no or unclear; default unclear.
    """

    question: Annotated[Name, refusing(_is_closed)]
    pass_if: Annotated[Literal["yes", "no"], BeforeValidator(_word)] = "yes"  # noqa: S105 - an answer
    votes: Annotated[int, BeforeValidator(_votes), Field(ge=1, le=_MOST_VOTES)] = 1
    sees: Annotated[tuple[Part, ...], refusing(distinct), refusing(not_empty), one_or_many(Part)] = EVERY_PART
    offline: Annotated[Literal["yes", "no", "unclear"], BeforeValidator(_word)] = "unclear"


def _long_form(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return {"question": _is_closed(value)}
    except UsageError as error:  # here, because the text has no key `question`
        raise PydanticCustomError("rule", "{message}", {"message": str(error)}) from None


JudgeBody = Annotated[Judge, BeforeValidator(_long_form, json_schema_input_type=str | Judge)]
"""A question, or a mapping with one and what else is to be said of it."""
