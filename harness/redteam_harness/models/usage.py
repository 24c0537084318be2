"""Who used how much: tokens and costs by role and model, for each conversation and for the run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redteam_harness.models.chat import NOTHING, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Ledger", "Spent", "spent_from_json", "spent_in", "sum_spent"]

_TOKENS = ("input", "cache_write", "cache_read", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What calls took, of one role and model.

    Attributes:
        role: whose calls.
        model: the model's id.
        calls: those that were answered; an answer that could not be used is one.
        replayed: those that the call cache answered; they took no tokens and are not in `calls`.
        faults: tries that failed; what the API had counted of them by then is in `usage`.
        usage: tokens that the API counted.
        usd: what they cost, as far as prices are known.
        unpriced: answers without a known price; where there are some, `usd` is not all.
    """

    role: str
    model: str
    calls: int = 0
    replayed: int = 0
    faults: int = 0
    usage: Usage = NOTHING
    usd: float = 0.0
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return replace(
            self,
            calls=self.calls + other.calls,
            replayed=self.replayed + other.replayed,
            faults=self.faults + other.faults,
            usage=self.usage + other.usage,
            usd=self.usd + other.usd,
            unpriced=self.unpriced + other.unpriced,
        )

    def to_json(self) -> dict[str, Any]:
        """As journal and report.json have it."""
        return {
            "role": self.role,
            "model": self.model,
            "calls": self.calls,
            "replayed": self.replayed,
            "faults": self.faults,
            **asdict(self.usage),
            "usd": round(self.usd, 6),
            "unpriced": self.unpriced,
        }


def spent_from_json(data: Mapping[str, Any]) -> Spent:
    """What `to_json` wrote."""
    rest = {name: value for name, value in data.items() if name not in _TOKENS}
    return Spent(**rest, usage=Usage(**{name: data[name] for name in _TOKENS}))


def spent_in(events: Iterable[Mapping[str, Any]]) -> tuple[Spent, ...]:
    """What the calls of a trace took: for a conversation that has no entry in the journal."""
    return sum_spent(
        Spent(
            role=event["role"],
            model=event["model"],
            calls=event["answers"],
            replayed=int(event.get("replayed", False)),
            faults=len(event.get("faults", ())),
            usage=Usage(**event["usage"]),
            usd=event["usd"] or 0.0,
            unpriced=event["answers"] if event["usd"] is None else 0,
        )
        for event in events
        if event["kind"] == "model_call"
    )


def sum_spent(rows: Iterable[Spent]) -> tuple[Spent, ...]:
    """One row for each role and model, by role, then by model."""
    sums: dict[tuple[str, str], Spent] = {}
    for row in rows:
        key = (row.role, row.model)
        sums[key] = sums[key] + row if key in sums else row
    return tuple(sums[key] for key in sorted(sums))


@dataclass(slots=True)
class Ledger:
    """Everything that was used in a run, by conversation ("" for calls outside any)."""

    _rows: dict[str, list[Spent]] = field(default_factory=lambda: defaultdict(list))

    def book(self, conversation: str, rows: Iterable[Spent]) -> None:
        """Book rows."""
        self._rows[conversation] = list(sum_spent([*self._rows[conversation], *rows]))

    def of(self, conversation: str) -> tuple[Spent, ...]:
        """What one conversation used, all its attempts."""
        return tuple(self._rows.get(conversation, ()))

    @property
    def all(self) -> tuple[Spent, ...]:
        """What the run used."""
        return sum_spent(row for rows in self._rows.values() for row in rows)
