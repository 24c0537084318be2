"""What an agent's line asks for, found by rules over its sentences. Pure; plain English.

A sentence asks for a fact when it is a request and holds one of the fact's phrases: its words in a row,
articles and the like not counted. "Thanks, I have your date of birth" is no request; "Shall I book it under
your name?" is one, but it wants a yes. "Is there anything else?" is an offer: it is never a confirmation.
Where a line holds both, the confirmation counts, because an agent that waits for a yes goes no further
without it, while an offer comes again.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "asks_confirmation",
    "asks_for",
    "asks_question",
    "offers_choice",
    "offers_more",
    "sentences",
    "tokens",
]

_WORD = re.compile(r"[^\W_]+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_TITLE = re.compile(r"\b(dr|mr|mrs|ms|prof|st)\.(?=\s)", re.IGNORECASE)
_FILLERS = frozenset({"a", "an", "the", "of", "is", "my", "to", "in", "on", "for", "at"})

_REQUEST = re.compile(
    r"""\?\s*$ | \bplease\W*$ | ^\W*(?:and\s+)?(?:what|which|when|where|who|whose|how)\b
      | \bplease\s+(?:tell|give|provide|state|share|confirm|send|enter|spell|verify|let|repeat)\b
      | \b(?:tell|give|send)\s+(?:me|us)\b | \blet\s+(?:me|us)\s+know\b
      | \b(?:can|could|would|will)\s+you\b
      | \b(?:may|can|could)\s+(?:i|we)\s+(?:please\s+)?(?:have|get|ask|know)\b
      | \bneeds?\b | \brequired?\b | \bwithout\b | \bmissing\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SOLICITS = re.compile(
    r"\b(?:tell|give|share|provide|confirm|verify|spell|state)\s+(?:me|us|with|your|the)\b", re.IGNORECASE
)
_OFFER = re.compile(
    r"""\b(?:any|some)(?:thing|one)\s+(?:else|more|further)\b | \bwhat\s+else\b
      | \banything\s+(?:i|we)\s+can\b | \belse\s+(?:i|we)\s+can\b
      | \bhelp\s+(?:you\s+)?with\s+(?:any|some)thing\b
      | \b(?:any\s+)?(?:other|further|more)\s+(?:help|questions?|assistance)\b
      | \bhow\s+(?:else\s+)?(?:can|may|could)\s+(?:i|we)\s+(?:help|assist|be\s+of)\b
      | \b(?:can|may)\s+i\s+(?:help|assist)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CONFIRM = re.compile(
    r"""\b(?:shall|should)\s+(?:i|we)\b | \bmay\s+(?:i|we)\s+(?!(?:please\s+)?(?:have|get|ask|know)\b)
      | \bcan\s+(?:i|we)\s+(?:go\s+ahead|proceed|book|cancel|move|change|update|confirm|reschedule)\b
      | \b(?:want|like)\s+(?:me|us)\s+to\b
      | \b(?:do|did)\s+you\s+(?:still\s+|really\s+)?(?:want|wish|mean|agree)\b
      | \bwould\s+you\s+(?:(?:still\s+)?like|prefer)\b | \bare\s+you\s+(?:sure|happy|certain)\b
      | \b(?:is|was)\s+(?:that|this|it|everything|all)\s+(?:\w+\s+){0,2}
            (?:right|correct|ok|okay|fine|good|alright)\b
      | \b(?:does|do|would|will)\s+(?:that|this|it|these|those)\s+(?:\w+\s+)?
            (?:work|suit|sound|look|help|fit|do)\b
      | \b(?:does|do|would)\b[^?]{1,60}\b(?:work|suit)\s+(?:for\s+)?you\b | \bhow\s+about\b
      | \bhow\s+do(?:es)?\s+(?:that|this|these|those)\s+(?:sound|look)\b
      | \b(?:right|correct|ok|okay|agreed|yes)\s*\?\s*$ | \byes\s+or\s+no\b | \bok(?:ay)?\s+to\b
      | \b(?:confirm|go\s+ahead|proceed)\b[^?]*\?\s*$ | \bplease\s+confirm\b
      | \b(?:say|reply|answer)\s+(?:with\s+)?\W?yes\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_OPEN_WORD = re.compile(r"\b(?:what|which|when|where|who|whose|how)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:]|\s-\s|\b(?:or|and)\b", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:^|(?<=[\s(:,;]))\(?([1-9]\d?)[).](?=\s)", re.MULTILINE)
_EITHER = re.compile(r"\bor\b(?!\s+(?:not|no)\b)", re.IGNORECASE)


def tokens(text: str) -> tuple[str, ...]:
    """The words and numbers of a text, folded for comparison."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def sentences(text: str) -> tuple[str, ...]:
    """Split a line into sentences, each with its closing mark. A title such as `Dr.` ends none."""
    plain = _TITLE.sub(r"\1", unicodedata.normalize("NFKC", text).replace("\u2019", "'"))
    return tuple(part for found in _SENTENCE.findall(plain) if (part := found.strip()))


def asks_for(text: str, asked_by: Sequence[str]) -> bool:
    """Whether the line asks for what one of the phrases names."""
    wanted = [_content(phrase) for phrase in asked_by]
    for sentence in sentences(text):
        if not _REQUEST.search(sentence) or (_wants_yes(sentence) and not _SOLICITS.search(sentence)):
            continue
        said = _content(sentence)
        if any(_holds(said, words) for words in wanted):
            return True
    return False


def asks_confirmation(text: str) -> bool:
    """Whether the line waits for a yes. An offer of more help alone does not."""
    return any(_wants_yes(sentence) for sentence in sentences(text))


def offers_more(text: str) -> bool:
    """Whether the line asks if anything else is wanted, or what is wanted at all."""
    return any(_OFFER.search(sentence) for sentence in sentences(text))


def offers_choice(text: str) -> bool:
    """Whether the line asks to choose: numbered options, or a yes-or-no question with an `or` in it."""
    if len(set(_NUMBERED.findall(text))) >= 2:
        return asks_question(text)
    return any(
        _wants_yes(sentence)
        and "yes or no" not in sentence.casefold()
        and _EITHER.search(_without_offer(sentence))
        for sentence in sentences(text)
    )


def asks_question(text: str) -> bool:
    """Whether any sentence of the line is a request at all."""
    return any(_REQUEST.search(sentence) for sentence in sentences(text))


def _content(phrase: str) -> tuple[str, ...]:
    words = tokens(phrase)
    return tuple(word for word in words if word not in _FILLERS) or words


def _holds(said: tuple[str, ...], words: tuple[str, ...]) -> bool:
    size = len(words)
    return size > 0 and any(
        all(heard in (word, f"{word}s") for heard, word in zip(said[start:], words, strict=False))
        for start in range(len(said) - size + 1)
    )


def _without_offer(sentence: str) -> str:
    if not _OFFER.search(sentence):
        return sentence
    clauses = [clause for clause in _CLAUSE.split(sentence) if not _OFFER.search(clause)]
    return ", ".join(clause.strip() for clause in clauses if clause.strip(" ?.!"))


def _wants_yes(sentence: str) -> bool:
    """A cue for a yes counts unless its clause began with an open question: "which day would you like?"."""
    rest = _without_offer(sentence)
    return any(
        not _OPEN_WORD.search(_CLAUSE.split(rest[: cue.start()])[-1]) for cue in _CONFIRM.finditer(rest)
    )
