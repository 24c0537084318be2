"""Which conversations a launch holds: rows of the cast times dispositions, per case. Pure."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace
from itertools import cycle, islice
from typing import TYPE_CHECKING, TypeVar

from redteam_harness.evidence.ids import conversation_id
from redteam_personas import Others
from redteam_personas.disposition import suggest
from redteam_personas.persona import value_text
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast, Persona

__all__ = ["Planned", "plan", "plan_suite", "repeated", "stratum_of"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One conversation that a launch is to hold.

    Attributes:
        id: `c001`, `c002`, ...; repetitions are `c001.2`, `c001.3`, ... The same plan gives the same ids.
        case: the case's id.
        persona: the row that speaks.
        disposition: how it behaves.
        seed: for whatever the actor draws at random; differs from conversation to conversation.
        claims: the row that it claims to be, where the disposition impersonates; never its own.
        others: the cast, to notice a line that tells another row's data.
        repetition: which time the same case, persona, disposition and claim are held, from 1.
    """

    id: str
    case: str
    persona: Persona
    disposition: str
    seed: int
    claims: Persona | None = None
    others: Others | None = field(default=None, repr=False, compare=False)
    repetition: int = 1


def plan_suite(
    suite: Suite, cast: Cast, *, count: int | None = None, draw: int | None = None, repeat: int | None = None
) -> tuple[Planned, ...]:
    """Plan a launch of a suite.

    Everything is held once before anything is held a second time, so that a launch that ends early has as
    many different conversations as it can.

    Args:
        suite: the suite.
        cast: its cast.
        count: how many different conversations; by default as many as the suite says.
        draw: the seed of every shuffle; by default the suite's.
        repeat: how often each is held; by default as often as the suite says.

    Raises:
        UsageError: a case that nobody fits, a stratum that is no column, or an impersonator who
            has nobody to claim to be.
    """
    draw = suite.spec.draw if draw is None else draw
    column = suite.spec.personas.stratify
    if column is not None and column not in cast.columns:
        place = suite.document.where(("personas", "stratify"))
        raise UsageError(
            f"{place}: personas.stratify {column!r} is no column of the cast{suggest(column, cast.columns)}; "
            "select it in personas.select, or stratify by one of these"
        )
    casts = {case.id: cast.rows_for(case.id) for case in suite.spec.cases}
    planned = plan(
        casts,
        {case.id: suite.weights_of(case.id) for case in suite.spec.cases},
        count=count or suite.spec.count,
        draw=draw,
        stratum=None if column is None else lambda persona: stratum_of(persona, column),
    )
    others = Others(cast.personas, (name for case in suite.spec.cases for name in case.facts))
    complete = [
        replace(one, others=others, claims=_claimed(one, suite, casts[one.case], cast.personas, draw))
        if suite.dispositions[one.disposition].impersonates
        else replace(one, others=others)
        for one in planned
    ]
    return repeated(complete, suite.spec.repeat if repeat is None else repeat)


def repeated(planned: Sequence[Planned], repeat: int) -> tuple[Planned, ...]:
    """Every conversation `repeat` times: first all of them once, then all of them again.

    Repetitions have the same case, persona, disposition and claim, and an id and a seed of their own, so that
    whoever draws at random does not draw the same again. A larger number begins with what a smaller one has.
    """
    again = [
        replace(
            one,
            id=conversation_id(number, repetition),
            seed=one.seed if repetition == 1 else _number(f"{one.seed}/{repetition}"),
            repetition=repetition,
        )
        for repetition in range(1, repeat + 1)
        for number, one in enumerate(planned, start=1)
    ]
    return tuple(again)


def stratum_of(persona: Persona, column: str) -> str:
    """The stratum of a row: the column's value as text. NULL and blank text are one stratum, `""`."""
    return value_text(persona.row[column]) or ""


def plan(
    casts: Mapping[str, Sequence[Persona]],
    dispositions: Mapping[str, Mapping[str, int]],
    *,
    count: int,
    draw: int,
    stratum: Callable[[Persona], Hashable] | None = None,
) -> tuple[Planned, ...]:
    """Plan `count` conversations.

    Cases take turns, so that any `count` covers them evenly. Within a case, personas are dealt from a
    shuffled deck that is shuffled anew only when it is used up, and dispositions from a deck that holds each
    as often as its weight says. A larger count begins with the conversations of a smaller one.

    Args:
        casts: the personas that fit each case, in a fixed order.
        dispositions: weights in each case; 0 leaves one out.
        count: how many conversations.
        draw: the seed of every shuffle.
        stratum: what a persona belongs to; then each stratum has a deck of its own, and its share.

    Raises:
        UsageError: a case that nobody in the cast fits, or no disposition with a weight.
    """
    decks: dict[str, tuple[Iterator[Persona], Iterator[str]]] = {}
    for case, personas in casts.items():
        if not any(dispositions[case].values()):
            raise UsageError("no disposition has a weight above 0, so there is nobody to play; give one")
        if not personas:
            raise UsageError(
                f"case {case!r}: no row of the cast fits its `who`; loosen the condition or widen the select"
            )
        weighted = [name for name in sorted(dispositions[case]) for _ in range(dispositions[case][name])]
        label = f"{draw}/{case}/persona"
        people = _deal(personas, label) if stratum is None else _deal_strata(personas, stratum, label)
        decks[case] = (people, _deal(weighted, f"{draw}/{case}/disposition"))
    planned = []
    for number, case in enumerate(islice(cycle(casts), count), start=1):
        personas_deck, dispositions_deck = decks[case]
        persona, disposition = next(personas_deck), next(dispositions_deck)
        planned.append(
            Planned(
                id=conversation_id(number),
                case=case,
                persona=persona,
                disposition=disposition,
                seed=_number(f"{draw}/{case}/{persona.key}/{disposition}/{number}"),
            )
        )
    return tuple(planned)


def _deal_strata(
    personas: Sequence[Persona], stratum: Callable[[Persona], Hashable], label: str
) -> Iterator[Persona]:
    """Each stratum once, the largest first; then always the one that is furthest behind its share (Webster).

    So a count of at least the number of strata has all of them, and a larger count begins with a smaller
    one's.
    """
    rows: dict[Hashable, list[Persona]] = {}
    for persona in personas:
        rows.setdefault(stratum(persona), []).append(persona)
    order = sorted(rows, key=lambda name: (-len(rows[name]), _number(f"{label}/{name}/order")))
    decks = {name: _deal(rows[name], f"{label}/{name}") for name in order}
    for name in order:
        yield next(decks[name])
    due = [(3 / len(rows[name]), number, 1, name) for number, name in enumerate(order)]
    heapify(due)
    while True:
        _, number, dealt, name = due[0]
        yield next(decks[name])
        heapreplace(due, ((2 * dealt + 3) / len(rows[name]), number, dealt + 1, name))


def _claimed(
    one: Planned, suite: Suite, fitting: Sequence[Persona], everybody: Sequence[Persona], draw: int
) -> Persona:
    """The row that an impersonator claims to be: one that fits the case too, where there is one.

    It differs from the impersonator's own in what the case tells at once: to give a namesake's name would be
    to give one's own.
    """
    told = [name for name, fact in suite.case(one.case).facts.items() if fact.reveal.kind == "at once"]
    own = [value_text(one.persona.row.get(name)) for name in told]
    for rows in (fitting, everybody):
        start = _number(f"{draw}/{one.case}/{one.persona.key}/{one.id}/claims")
        for step in range(len(rows)):
            other = rows[(start + step) % len(rows)]
            values = [value_text(other.row.get(name)) for name in told]
            if other.key != one.persona.key and None not in values and (not told or values != own):
                return other
    number = [case.id for case in suite.spec.cases].index(one.case)
    mixed = suite.case(one.case).dispositions is not None
    place = suite.document.where(("cases", number, "dispositions") if mixed else ("personas", "dispositions"))
    raise UsageError(
        f"{place}: case {one.case!r}: disposition {one.disposition!r} claims to be another row of the cast, "
        f"and there is none beside {one.persona.key!r} that differs in {', '.join(told) or 'its key'}; widen "
        "personas.select, or leave the disposition out"
    )


def _deal(items: Sequence[_T], label: str) -> Iterator[_T]:
    shuffled = random.Random(_number(label))  # noqa: S311 - a deterministic draw, not a secret
    while True:
        yield from shuffled.sample(items, len(items))


def _number(label: str) -> int:
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8])
