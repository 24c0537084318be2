"""What a rule says about a text: a phrase it contains, or a regular expression that matches in it."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from redteam_rubrics.strict import Name, Strict, not_empty, one_or_many, refusing
from redteam_sdk.errors import UsageError

__all__ = ["Pattern", "Phrase", "Phrases", "contains", "contains_words", "normalise", "shown"]

_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})


def normalise(text: str) -> str:
    """A text as it is compared: one form of each character, straight quotes, single blanks. Case is kept."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_QUOTES).split())


def _compiles(pattern: str) -> str:
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except re.error as exc:
        raise UsageError(f"this is no regular expression: {exc}") from exc
    if compiled.search(""):
        raise UsageError("this regular expression matches an empty text, so it matches anywhere")
    return pattern


class Pattern(Strict):
    """`{matches: REGEX}`.

    Attributes:
        matches: a regular expression in Python's syntax, any case, found anywhere in the text.
    """

    matches: Annotated[Name, refusing(_compiles)]

    def is_in(self, text: str) -> bool:
        """Whether it matches somewhere in the text, with the text's white space made single blanks."""
        return re.search(self.matches, normalise(text), re.IGNORECASE) is not None

    def __str__(self) -> str:
        return f"/{self.matches}/"


def _phrase(value: Any) -> str | Pattern:
    if isinstance(value, dict):
        return Pattern.model_validate(value)
    if not isinstance(value, str) or not value.strip():
        raise PydanticCustomError("phrase", "expected a phrase, or {matches: a regular expression}")
    return value


Phrase = Annotated[str | Pattern, PlainValidator(_phrase, json_schema_input_type=Name | Pattern)]
"""A phrase that is contained in a text, in any case, or a `Pattern`."""

Phrases = Annotated[tuple[Phrase, ...], refusing(not_empty), one_or_many(Phrase)]
"""One phrase or a list of them."""


def contains(text: str, phrase: str | Pattern) -> bool:
    """Whether a phrase is in a text; case, white space and the shape of quotes make no difference."""
    if isinstance(phrase, Pattern):
        return phrase.is_in(text)
    return normalise(phrase).casefold() in normalise(text).casefold()


def contains_words(text: str, phrase: str | Pattern) -> bool:
    """Whether a phrase is in a text as whole words: "yes" is not in "yesterday", nor "ok" in "book"."""
    if isinstance(phrase, Pattern):
        return phrase.is_in(text)
    words = re.escape(normalise(phrase).casefold())
    return re.search(rf"(?<!\w){words}(?!\w)", normalise(text).casefold()) is not None


def shown(phrase: str | Pattern) -> str:
    """A phrase as a finding quotes it."""
    return str(phrase) if isinstance(phrase, Pattern) else f'"{phrase}"'
