"""What one action may write to: its own copies of a document's orders and users."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["GIFT_CARD", "Document", "Draft", "Refusal", "require"]

Document = dict[str, Any]

GIFT_CARD = "gift_card"
"""The source of the payment methods that have a balance."""


class Refusal(Exception):
    """A condition of an action does not hold."""


class Draft:
    """The copies of one action, made when they are asked for; without `kept`, nothing happened.

    What is not there is refused: every method but `kept` raises `Refusal`.
    """

    def __init__(self, state: Document) -> None:
        self._state = state
        self._orders: Document = {}
        self._users: Document = {}

    def order(self, order_id: str) -> Document:
        """An order, to be written to."""
        return _copied(self._orders, self._state["orders"], order_id)

    def user(self, user_id: str) -> Document:
        """A user, to be written to."""
        return _copied(self._users, self._state["users"], user_id)

    def method(self, order: Document, method_id: str) -> Document:
        """A payment method of the user whose order it is, to be written to."""
        method: Document | None = self.user(order["user_id"])["payment_methods"].get(method_id)
        return _required(method)

    def variant(self, item: Document, new_id: str) -> Document:
        """What an item of an order can be changed for: available, and of the same product."""
        product = self._state["products"].get(item["product_id"], {"variants": {}})
        variant: Document = _required(product["variants"].get(new_id))
        require(variant["available"])
        return variant

    def kept(self) -> Document:
        """The document with the copies in it; the rest of it is shared."""
        return {
            **self._state,
            "orders": {**self._state["orders"], **self._orders},
            "users": {**self._state["users"], **self._users},
        }


def _copied(copies: Document, originals: Document, name: str) -> Document:
    if name not in copies:
        copies[name] = copy.deepcopy(_required(originals.get(name)))
    copied: Document = copies[name]
    return copied


def require(holds: object) -> None:
    """Refuse the action unless a condition of it holds.

    Raises:
        Refusal: it does not.
    """
    if not holds:
        raise Refusal


def _required(found: Document | None) -> Document:
    if found is None:
        raise Refusal
    return found
