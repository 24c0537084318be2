"""The benchmark's nested document itself: the expected end state of a task, of which only a hash is given.

Nothing of the Postgres world is used, so what the two agree on was worked out twice. A result is the
expected end state only where it has the expected hash; whoever uses this compares.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from redteam_harness.benchmarks.tau2.draft import Document, Draft, Refusal
from redteam_harness.benchmarks.tau2.writes import WRITES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_harness.benchmarks.tau2.action import Action

__all__ = ["end_state", "initial_state", "sha256_of"]

_UNTIL_SET = (
    "cancel_reason",
    "exchange_items",
    "exchange_new_items",
    "exchange_payment_method_id",
    "exchange_price_difference",
    "return_items",
    "return_payment_method_id",
)


def sha256_of(document: Any) -> str:
    """The hash of a state, as the benchmark takes it: keys sorted, Python's own separators."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def initial_state(data: Mapping[str, Any]) -> Document:
    """The data set as a state: each order with the keys that are null until an action sets them."""
    nulls = dict.fromkeys(_UNTIL_SET)
    return {**data, "orders": {name: {**nulls, **order} for name, order in data["orders"].items()}}


def end_state(initial: Document, actions: Iterable[Action]) -> Document:
    """What actions lead to. One that is refused or only reads changes nothing, and the next is made.

    `initial` stays as it is; what no action has touched is shared with it.
    """
    state = initial
    for action in actions:
        if action.name in WRITES:
            draft = Draft(state)
            try:
                WRITES[action.name].model_validate(action.arguments).apply(draft)
            except (ValidationError, Refusal):
                continue
            state = draft.kept()
    return state
