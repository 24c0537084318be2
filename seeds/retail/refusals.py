"""What the shop's tools say no with. Each message may be read to the customer."""

from __future__ import annotations

__all__ = [
    "BadExpression",
    "InsufficientBalance",
    "InvalidReason",
    "ItemNotInOrder",
    "ItemUnavailable",
    "NothingToChange",
    "PaymentNotAllowed",
    "RetailError",
    "UnevenLists",
    "UnknownItem",
    "UnknownOrder",
    "UnknownPaymentMethod",
    "UnknownProduct",
    "UnknownUser",
    "WrongProduct",
    "WrongStatus",
]


class RetailError(Exception):
    """A request that the shop cannot carry out; nothing was changed."""


class UnknownUser(RetailError):
    """No user has this id, this email, or this name and zip code."""


class UnknownOrder(RetailError):
    """No order has this id."""


class UnknownProduct(RetailError):
    """No product has this id."""


class UnknownItem(RetailError):
    """No variant of any product has this id."""


class UnknownPaymentMethod(RetailError):
    """The user has no payment method of this id."""


class WrongStatus(RetailError):
    """The order's status does not allow it."""


class InvalidReason(RetailError):
    """An order is cancelled for one of two reasons only."""


class ItemNotInOrder(RetailError):
    """The order has no such item, or not as many of it."""


class UnevenLists(RetailError):
    """There must be as many new items as old ones, and at least one."""


class ItemUnavailable(RetailError):
    """The new item is not available."""


class WrongProduct(RetailError):
    """The new item is of another product."""


class NothingToChange(RetailError):
    """What it is to be changed to is what it is."""


class PaymentNotAllowed(RetailError):
    """The payments of the order do not allow it, or money may not go that way."""


class InsufficientBalance(RetailError):
    """The gift card does not cover the amount."""


class BadExpression(RetailError):
    """It is no sum of plain numbers."""
