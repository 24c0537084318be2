"""Whose money goes where: payment methods, gift cards, and the payments of an order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any, Literal

from refusals import InsufficientBalance, UnknownPaymentMethod

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from items import Pair

__all__ = [
    "Method",
    "Payment",
    "cents",
    "charge",
    "credit",
    "difference",
    "lock_methods",
    "not_yet_refunded",
    "payments_of",
    "record_payment",
    "require_cover",
]

_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A payment method, locked; `balance` is None where it is no gift card."""

    id: str
    balance: Decimal | None

    @property
    def is_gift_card(self) -> bool:
        """Whether money moves at once."""
        return self.balance is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """What was paid for an order, or paid back; the amount is in dollars and has no sign."""

    kind: Literal["payment", "refund"]
    amount: Decimal
    method: str


def cents(amount: Decimal) -> Decimal:
    """Rounded to cents."""
    return amount.quantize(_CENT, rounding=ROUND_HALF_EVEN)


def difference(pairs: Sequence[Pair]) -> Decimal:
    """What new items cost more than old ones; negative where they cost less."""
    return sum((pair.new.price - pair.price for pair in pairs), start=Decimal("0.00"))


async def lock_methods(connection: Any, user_id: str, ids: Collection[str]) -> dict[str, Method]:
    """Take payment methods of a user, by id; always in the order of ids, so that no two requests deadlock.

    Raises:
        UnknownPaymentMethod: one is not the user's.
    """
    rows = await connection.fetch(
        "SELECT id, balance FROM payment_methods WHERE user_id = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE",
        user_id,
        list(ids),
    )
    methods = {row["id"]: Method(id=row["id"], balance=row["balance"]) for row in rows}
    for wanted in ids:
        if wanted not in methods:
            raise UnknownPaymentMethod(f"{user_id} has no payment method {wanted}")
    return methods


def require_cover(method: Method, amount: Decimal) -> None:
    """Check that a gift card covers an amount; other methods are not ours to ask.

    Raises:
        InsufficientBalance: it does not.
    """
    if method.balance is not None and method.balance < amount:
        raise InsufficientBalance(f"{method.id} has {method.balance}, which does not cover {amount}")


async def charge(connection: Any, method: Method, amount: Decimal) -> None:
    """Take an amount from a gift card at once; a negative one is given. Others are settled elsewhere."""
    if method.balance is not None:
        await connection.execute(
            "UPDATE payment_methods SET balance = $2 WHERE id = $1", method.id, cents(method.balance - amount)
        )


async def credit(connection: Any, method: Method, amount: Decimal) -> None:
    """Give an amount to a gift card at once."""
    await charge(connection, method, -amount)


async def payments_of(connection: Any, order_id: str) -> list[Payment]:
    """The payments of an order, in order."""
    rows = await connection.fetch(
        "SELECT kind, amount, payment_method_id FROM payments WHERE order_id = $1 ORDER BY position", order_id
    )
    return [Payment(kind=r["kind"], amount=r["amount"], method=r["payment_method_id"]) for r in rows]


def not_yet_refunded(payments: Sequence[Payment]) -> list[Payment]:
    """The payments that were not paid back, in order: after a change of the method, only the new one."""
    refunded = Counter((one.method, one.amount) for one in payments if one.kind == "refund")
    due: list[Payment] = []
    for payment in payments:
        if payment.kind == "payment":
            if refunded[payment.method, payment.amount]:
                refunded[payment.method, payment.amount] -= 1
            else:
                due.append(payment)
    return due


async def record_payment(connection: Any, order_id: str, payment: Payment) -> None:
    """Add a payment to an order, whose row must be locked."""
    await connection.execute(
        "INSERT INTO payments (order_id, position, kind, amount, payment_method_id)"
        " SELECT $1, count(*) + 1, $2, $3, $4 FROM payments WHERE order_id = $1",
        order_id,
        payment.kind,
        payment.amount,
        payment.method,
    )
