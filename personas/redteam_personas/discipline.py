"""Whether a line could be a persona's at all: not empty, and not the agent's part. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redteam_personas.questions import tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["fault_of"]

_LABEL = re.compile(
    r"\A\W*(?:agent|assistant|representative|front desk|operator|system|clerk)\W*:", re.IGNORECASE
)
_SERVES = re.compile(
    r"""\bhow\s+(?:can|may)\s+i\s+(?:help|assist)\s+you\b
      | \bas\s+an?\s+(?:ai\b|artificial\s+intelligence|(?:large\s+)?language\s+model)
      | \banything\s+else\s+(?:i|we)\s+can\s+(?:help|do|assist)\b
      | \bthank\s+you\s+for\s+(?:calling|contacting)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MIN_WORDS_OF_AN_ECHO = 5


def fault_of(text: str, history: Sequence[tuple[str, str]]) -> str:
    """Why the line cannot be taken, in words for a trace; empty where it can.

    Args:
        text: the actor's line.
        history: the lines before it, `(role, text)`.
    """
    words = tokens(text)
    if not words:
        return "it is empty"
    if _LABEL.search(text) or _SERVES.search(text):
        return "it speaks the agent's part"
    own = {tokens(said) for role, said in history if role == "user"}
    last = next((tokens(said) for role, said in reversed(history) if role == "agent"), ())
    # An agent may repeat the person; then the person's own words are no echo of the agent.
    if words == last and words not in own and len(words) >= _MIN_WORDS_OF_AN_ECHO:
        return "it repeats the agent's line"
    return ""
