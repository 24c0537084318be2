"""How much a run, and one conversation of it, may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redteam_harness.models.usage import Spent

__all__ = ["Budget", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that may be used; None is no limit.

    Attributes:
        usd: US dollars.
        tokens: all tokens, cached ones too.
        seconds: wall clock.
    """

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None

    def spent_by(self, rows: Iterable[Spent], seconds: float) -> str | None:
        """Which limit is reached, in words, or None."""
        used = list(rows)
        usd, tokens = sum(row.usd for row in used), sum(row.usage.total for row in used)
        if self.usd is not None and usd >= self.usd:
            return f"its budget of ${self.usd:g} is spent (${usd:.4f})"
        if self.tokens is not None and tokens >= self.tokens:
            return f"its budget of {self.tokens:,} tokens is spent ({tokens:,})"
        if self.seconds is not None and seconds >= self.seconds:
            return f"its {self.seconds:g} seconds are over"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a launch.

    Attributes:
        run: when it is reached, no conversation is started any more; those that run are finished.
        conversation: when it is reached, the conversation ends by a fault of ours.
    """

    run: Limits = Limits()
    conversation: Limits = Limits()

    @property
    def needs_prices(self) -> bool:
        """Whether it can be kept only where every model has a price."""
        return self.run.usd is not None or self.conversation.usd is not None
