"""Which conversations a launch holds: rows of the cast times dispositions, per case. Pure."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, TypeVar

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redteam_personas import Persona

__all__ = ["Planned", "plan"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One conversation that a launch is to hold.

    Attributes:
        id: `c001`, `c002`, ...; the same plan gives the same ids.
        case: the case's id.
        persona: the row that speaks.
        disposition: how it behaves.
        seed: for whatever the actor draws at random; differs from conversation to conversation.
    """

    id: str
    case: str
    persona: Persona
    disposition: str
    seed: int


def plan(
    casts: Mapping[str, Sequence[Persona]], dispositions: Mapping[str, int], *, count: int, draw: int
) -> tuple[Planned, ...]:
    """Plan `count` conversations.

    Cases take turns, so that any `count` covers them evenly. Within a case, personas are dealt from a
    shuffled deck that is shuffled anew only when it is used up, and dispositions from a deck that holds each
    as often as its weight says. A larger count begins with the conversations of a smaller one.

    Args:
        casts: the personas that fit each case, in a fixed order.
        dispositions: weights; 0 leaves one out.
        count: how many conversations.
        draw: the seed of every shuffle.

    Raises:
        UsageError: a case that nobody in the cast fits, or no disposition with a weight.
    """
    if not any(dispositions.values()):
        raise UsageError("no disposition has a weight above 0, so there is nobody to play; give one")
    for case, personas in casts.items():
        if not personas:
            raise UsageError(
                f"case {case!r}: no row of the cast fits its `who`; loosen the condition or widen the select"
            )
    weighted = [name for name in sorted(dispositions) for _ in range(dispositions[name])]
    decks = {
        case: (_deal(personas, f"{draw}/{case}/persona"), _deal(weighted, f"{draw}/{case}/disposition"))
        for case, personas in casts.items()
    }
    planned = []
    for number, case in enumerate(islice(cycle(casts), count), start=1):
        personas_deck, dispositions_deck = decks[case]
        persona, disposition = next(personas_deck), next(dispositions_deck)
        planned.append(
            Planned(
                id=f"c{number:03}",
                case=case,
                persona=persona,
                disposition=disposition,
                seed=_number(f"{draw}/{case}/{persona.key}/{disposition}/{number}"),
            )
        )
    return tuple(planned)


def _deal(items: Sequence[_T], label: str) -> Iterator[_T]:
    shuffled = random.Random(_number(label))  # noqa: S311 - a deterministic draw, not a secret
    while True:
        yield from shuffled.sample(items, len(items))


def _number(label: str) -> int:
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])
