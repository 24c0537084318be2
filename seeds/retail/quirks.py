"""The two places where tau2-bench's retail tools do not do what a shop would.

Its hashes hold the results, so this world has them too. Each is one function here, used in one place of
changes.py, and nothing else in this world depends on them. To have a shop that is right, let the first return
`money.difference(pairs)` and the second `pair.new`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from items import Pair, Variant

__all__ = ["unrounded_difference", "variant_that_is_recorded"]


def unrounded_difference(pairs: Sequence[Pair]) -> Decimal:
    """What new items cost more than old ones, summed pair by pair in binary floating point and not rounded.

    The difference of 46.66 and 47.84 is then 1.1800000000000068, and that is what is booked as paid.
    """
    total = 0.0
    for pair in pairs:
        total += float(pair.new.price) - float(pair.price)
    return Decimal(repr(total))


def variant_that_is_recorded(pairs: Sequence[Pair], pair: Pair) -> Variant:
    """Whose price and options a changed item of an order gets: those of the last pair, whichever it is."""
    del pair
    return pairs[-1].new
