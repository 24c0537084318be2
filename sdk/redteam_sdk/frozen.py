"""Recorded answers of external tools: in a replay they stand in place of what the mocks say now.

The mock still runs, for what it does beside answering: its state, and rows that it writes. What it answers is
put aside. A call that was not recorded has no answer: it raises, which voids the conversation.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redteam_sdk.errors import AnswerNotRecorded, InvalidContext
from redteam_sdk.faults import describe
from redteam_sdk.values import to_json, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Answer", "Answers"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a recorded call of an external tool came to.

    Attributes:
        name: the tool's.
        arguments: what it was given, as JSON-like data.
        result: what it answered, as JSON-like data; None where it raised.
        error: `TimeoutError: the text`, where it raised; else None.
        fault: the scripted fault that was played, or None.
        happened: whether the mock ran before the fault.
    """

    name: str
    arguments: Mapping[str, Any]
    result: Any = None
    error: str | None = None
    fault: str | None = None
    happened: bool = False

    def raised(self) -> Exception:
        """The error that it raised, of the same class and with the same text.

        Raises:
            AnswerNotRecorded: no class of that name says that text.
        """
        assert self.error is not None
        name, _, text = self.error.partition(": ")
        for kind in _subclasses(Exception):
            if kind.__name__ == name:
                # Its __init__ may want what was not recorded.
                error = kind.__new__(kind, text)
                error.args = (text,) if text else ()
                if describe(error) == self.error:
                    return error
        raise AnswerNotRecorded(
            f"external {self.name} raised {name} when it was recorded, which cannot be raised again as it was"
        )

    def like(self, now: Any) -> Any:
        """The recorded result in the types that the mock answers with.

        Args:
            now: what the mock answers now.

        Raises:
            AnswerNotRecorded: it cannot be put into these types.
        """
        try:
            return _like(self.result, now)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise AnswerNotRecorded(
                f"external {self.name} answers with {type_name(now)} now, of which the recorded answer "
                f"cannot be made ({type(error).__name__}); let the mock answer with plain data"
            ) from error


class Answers:
    """The recorded answers of one conversation. Each is given once; of equal calls, in their order."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._left = list(answers)
        self._taking = threading.Lock()  # two threads of a conversation must not take one answer

    @classmethod
    def from_json(cls, data: object) -> Answers:
        """Read the list that the harness hands over: objects with the attributes of `Answer`.

        Raises:
            InvalidContext: it is none.
        """
        if not isinstance(data, list):
            raise InvalidContext("recorded answers are a list")
        try:
            return cls(Answer(**one) for one in data)
        except TypeError as error:
            raise InvalidContext(
                f"a recorded answer is not of this version of redteam-sdk: {error}"
            ) from None

    def __len__(self) -> int:
        return len(self._left)

    def take(self, name: str, arguments: Mapping[str, Any]) -> Answer | None:
        """The next answer to a call with exactly these arguments, which is then used up; or None."""
        with self._taking:
            for index, answer in enumerate(self._left):
                if answer.name == name and answer.arguments == arguments:
                    return self._left.pop(index)
            return None

    def missing(self, name: str, arguments: Mapping[str, Any]) -> AnswerNotRecorded:
        """What to raise for a call without an answer; says how near a recorded one comes, and no values."""
        near = [one.arguments for one in self._left if one.name == name]
        if not near:
            why = "no further call of it was recorded"
        else:
            differ = min(
                ([key for key in {**one, **arguments} if one.get(key) != arguments.get(key)] for one in near),
                key=len,
            )
            why = f"the nearest recorded call differs in {', '.join(sorted(differ))}"
        return AnswerNotRecorded(f"external {name} was called as it was not recorded: {why}")


def _like(recorded: Any, now: Any) -> Any:
    if to_json(now, strict=False) == recorded:
        return now
    match now:
        case Enum() | PurePath() | Decimal() | UUID():
            return type(now)(recorded)
        case None | bool() | int() | float() | str():
            return copy.deepcopy(recorded)
        case datetime() | date() | time():
            return type(now).fromisoformat(recorded)
        case timedelta():
            return timedelta(seconds=recorded)
        case dict():
            if not isinstance(recorded, dict):
                return copy.deepcopy(recorded)
            return {key: _like(value, now.get(key)) for key, value in recorded.items()}
        case list() | tuple() | set() | frozenset():
            return _items_like(recorded, now)
    if dataclasses.is_dataclass(now) and not isinstance(now, type):
        fields = {name: _like(value, getattr(now, name)) for name, value in recorded.items()}
        return dataclasses.replace(now, **fields)
    validate = getattr(type(now), "model_validate", None)  # pydantic, without depending on it
    if callable(validate):
        return validate(recorded)
    raise TypeError(f"a {type_name(now)} cannot be made of a record")


def _items_like(recorded: Any, now: Any) -> Any:
    if not isinstance(recorded, list):
        return copy.deepcopy(recorded)
    samples = list(now)
    last = samples[-1] if samples else None
    items = [_like(item, samples[at] if at < len(samples) else last) for at, item in enumerate(recorded)]
    return type(now)(*items) if hasattr(now, "_fields") else type(now)(items)


def _subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)
