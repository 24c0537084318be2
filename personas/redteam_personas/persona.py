"""A persona is one row of the cast; a fact is what of that row may be told, and when."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Fact", "FactSpec", "Persona", "Reveal", "default_asked_by", "value_text"]

RevealKind = Literal["at once", "at turn", "when asked", "when pressed", "never"]

_FORMS = "at once | at turn N | when asked | when pressed | when pressed N times | never"
_TURN = re.compile(r"at turn (\d{1,4})")
_PRESSED = re.compile(r"when pressed(?: (once|twice|(\d{1,4}) times?))?")

# How people ask for facts whose column names they never say. Keys are whole fact names.
_NAME = ("your name", "full name", "name please", "who is speaking", "who is calling", "who am i speaking")
_BIRTH = ("birth", "born", "birthday", "birthdate", "dob")
_PHONE = ("phone", "telephone", "mobile", "cell", "call you back")
_EMAIL = ("email", "e-mail")
_WAYS_TO_ASK: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("name", "full_name", "customer_name", "patient_name", "owner_name"), _NAME),
    "first_name": ("given name", *_NAME),
    "last_name": ("family name", "surname", *_NAME),
    **dict.fromkeys(("date_of_birth", "birth_date", "birthdate", "birthday", "dob", "born"), _BIRTH),
    **dict.fromkeys(("phone", "phone_number", "telephone", "mobile"), _PHONE),
    **dict.fromkeys(("email", "email_address"), _EMAIL),
    "insurance": ("insurance", "insurer", "insured", "coverage"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """One row of the cast.

    Attributes:
        key: the row's key as text, unique in the cast.
        row: column to value, as the driver gave them. Never shown to an actor.
    """

    key: str
    row: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reveal:
    """When a fact may be told.

    `when pressed N times` is asked once and then pressed N times more, so `when pressed` is asked twice.

    Attributes:
        kind: which rule.
        number: the turn for `at turn` (from 1), how often to press for `when pressed`; else 0.
    """

    kind: RevealKind
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Reveal:
        """Read a rule as it is written in a suite.

        Raises:
            ValueError: it is none of the forms; the message lists them.
        """
        said = " ".join(text.casefold().split())
        if said == "at once":
            return cls(kind="at once")
        if said == "when asked":
            return cls(kind="when asked")
        if said == "never":
            return cls(kind="never")
        if (turn := _TURN.fullmatch(said)) and int(turn[1]) >= 1:
            return cls(kind="at turn", number=int(turn[1]))
        if pressed := _PRESSED.fullmatch(said):
            words = {None: 1, "once": 1, "twice": 2}
            times = int(pressed[2]) if pressed[2] else words[pressed[1]]
            if times >= 1:
                return cls(kind="when pressed", number=times)
        raise ValueError(f"{text!r} does not say when to reveal a fact; write one of: {_FORMS}")

    @property
    def asks(self) -> int | None:
        """How many times the agent must ask; None where asking does not help."""
        match self.kind:
            case "when asked":
                return 1
            case "when pressed":
                return self.number + 1
            case _:
                return None

    @property
    def turn(self) -> int | None:
        """The turn from which the fact is known without a question; None where there is none."""
        match self.kind:
            case "at once":
                return 1
            case "at turn":
                return self.number
            case _:
                return None

    def __str__(self) -> str:
        if self.kind == "at turn":
            return f"at turn {self.number}"
        if self.kind == "when pressed" and self.number != 1:
            return f"when pressed {self.number} times"
        return self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a persona knows about itself.

    Attributes:
        name: the column of the cast.
        value: its value as text for people; never empty.
        reveal: when it may be told.
        asked_by: phrases; a question that holds one of them asks for this fact (`questions.asks_for`).
    """

    name: str
    value: str = field(repr=False)
    reveal: Reveal
    asked_by: tuple[str, ...]


def _parse_reveal(value: object) -> Reveal:
    if isinstance(value, Reveal):
        return value
    if not isinstance(value, str):
        raise ValueError(f"expected text that says when to reveal the fact, one of: {_FORMS}")
    return Reveal.parse(value)


RevealText = Annotated[
    Reveal,
    BeforeValidator(_parse_reveal),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "description": f"One of: {_FORMS}."}),
]


class FactSpec(BaseModel):
    """A fact as a suite writes it: `full_name: at once`, or a mapping with `reveal` and `asked_by`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reveal: RevealText = Field(description="When the actor may tell it.")
    asked_by: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Phrases that ask for it; by default the words of its name and common ways to ask.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"reveal": data} if isinstance(data, str) else data


def default_asked_by(name: str) -> tuple[str, ...]:
    """How a fact is asked for where the suite does not say: the words of its name, and common synonyms."""
    words = re.sub(r"[\W_]+", " ", name).strip() or name
    return tuple(dict.fromkeys((words, *_WAYS_TO_ASK.get(name.casefold(), ()))))


def value_text(value: object) -> str | None:
    """A column's value as text that a person could say; None for NULL and for blank text.

    Dates and times are ISO (`1984-03-07`, `2026-12-08 09:00`), so that every agent can read them; how they
    are spoken is a phrase's matter. Booleans are yes and no.
    """
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case dt.datetime():
            text = value.isoformat(sep=" ", timespec="minutes" if value.second == 0 else "seconds")
        case dt.date():
            text = value.isoformat()
        case dt.time():
            text = value.isoformat(timespec="minutes" if value.second == 0 else "seconds")
        case Decimal():
            text = format(value, "f")
        case bytes() | memoryview():
            text = bytes(value).hex()
        case list() | tuple() | set() | frozenset():
            text = ", ".join(part for item in value if (part := value_text(item)) is not None)
        case dict():
            text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        case _:
            text = str(value)
    return text.strip() or None
