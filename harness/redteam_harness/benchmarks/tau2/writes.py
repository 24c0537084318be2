"""The benchmark's write actions on the nested document, as its description has them.

Each condition that does not hold is a refusal: why makes no difference here, only that nothing changes.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from redteam_harness.benchmarks.tau2.draft import GIFT_CARD, Document, Draft, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["WRITES", "Write"]


class Write(BaseModel):
    """The arguments of an action, as strictly as a tool takes them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def apply(self, draft: Draft) -> None:
        """Carry it out, or raise `Refusal`."""
        raise NotImplementedError


class _Cancel(Write):
    order_id: str
    reason: Literal["no longer needed", "ordered by mistake"]

    def apply(self, draft: Draft) -> None:
        order = draft.order(self.order_id)
        require(order["status"] == "pending")
        for payment in [one for one in order["payment_history"] if one["transaction_type"] == "payment"]:
            method = draft.method(order, payment["payment_method_id"])
            _take(method, -payment["amount"])
            _record(order, "refund", payment["amount"], method)
        order.update(status="cancelled", cancel_reason=self.reason)


class _Address(Write):
    address1: str
    address2: str
    city: str
    state: str
    country: str
    zip: str

    @property
    def written(self) -> Document:
        return {name: getattr(self, name) for name in _Address.model_fields}


class _OrderAddress(_Address):
    order_id: str

    def apply(self, draft: Draft) -> None:
        order = draft.order(self.order_id)
        require("pending" in order["status"])
        order["address"] = self.written


class _UserAddress(_Address):
    user_id: str

    def apply(self, draft: Draft) -> None:
        draft.user(self.user_id)["address"] = self.written


class _Payment(Write):
    order_id: str
    payment_method_id: str

    def apply(self, draft: Draft) -> None:
        order = draft.order(self.order_id)
        require("pending" in order["status"])
        history = order["payment_history"]
        require([one["transaction_type"] for one in history] == ["payment"])
        paid, old_id = history[0]["amount"], history[0]["payment_method_id"]
        require(old_id != self.payment_method_id)
        new, old = draft.method(order, self.payment_method_id), draft.method(order, old_id)
        _require_cover(new, paid)
        _take(new, paid)
        _record(order, "payment", paid, new)
        _take(old, -paid)
        _record(order, "refund", paid, old)


class _Pair(NamedTuple):
    """An item of an order, and what it is changed for."""

    item: Document
    new: Document


class _Swap(Write):
    order_id: str
    item_ids: list[str]
    new_item_ids: list[str]
    payment_method_id: str

    def pairs(self, draft: Draft, order: Document) -> list[_Pair]:
        require(self.item_ids and len(self.item_ids) == len(self.new_item_ids))
        items = _items_named(order, self.item_ids)
        return [
            _Pair(items[old], draft.variant(items[old], new))
            for old, new in zip(self.item_ids, self.new_item_ids, strict=True)
        ]


class _ModifyItems(_Swap):
    def apply(self, draft: Draft) -> None:
        order = draft.order(self.order_id)
        require(order["status"] == "pending")
        pairs = self.pairs(draft, order)
        require(all(old != new for old, new in zip(self.item_ids, self.new_item_ids, strict=True)))
        method = draft.method(order, self.payment_method_id)
        difference = _difference(pairs)
        _require_cover(method, difference)
        _take(method, difference)
        # Not rounded: one of the two quirks that the hashes hold.
        _record(order, "payment" if difference > 0 else "refund", abs(difference), method)
        # The other one: of several, each gets the price and options of the last.
        last = pairs[-1].new
        for old, new in zip(self.item_ids, self.new_item_ids, strict=True):
            item = next(one for one in order["items"] if one["item_id"] == old)
            item.update(item_id=new, price=last["price"], options=copy.deepcopy(last["options"]))
        order["status"] = "pending (item modified)"


class _Exchange(_Swap):
    def apply(self, draft: Draft) -> None:
        order = draft.order(self.order_id)
        require(order["status"] == "delivered")
        difference = round(_difference(self.pairs(draft, order)), 2)
        _require_cover(draft.method(order, self.payment_method_id), difference)
        order.update(
            status="exchange requested",
            exchange_items=sorted(self.item_ids),
            exchange_new_items=sorted(self.new_item_ids),
            exchange_payment_method_id=self.payment_method_id,
            exchange_price_difference=difference,
        )


class _Return(Write):
    order_id: str
    item_ids: list[str]
    payment_method_id: str

    def apply(self, draft: Draft) -> None:
        order = draft.order(self.order_id)
        require(order["status"] == "delivered")
        method = draft.method(order, self.payment_method_id)
        original = [one["payment_method_id"] for one in order["payment_history"][:1]]
        require(method["source"] == GIFT_CARD or original == [self.payment_method_id])
        require(self.item_ids)
        _items_named(order, self.item_ids)
        order.update(
            status="return requested",
            return_items=sorted(self.item_ids),
            return_payment_method_id=self.payment_method_id,
        )


WRITES: Mapping[str, type[Write]] = {
    "cancel_pending_order": _Cancel,
    "exchange_delivered_order_items": _Exchange,
    "modify_pending_order_address": _OrderAddress,
    "modify_pending_order_items": _ModifyItems,
    "modify_pending_order_payment": _Payment,
    "modify_user_address": _UserAddress,
    "return_delivered_order_items": _Return,
}
"""The actions that write, by the name of the tool. Every other one only reads."""


def _items_named(order: Document, item_ids: Sequence[str]) -> dict[str, Document]:
    """The first item of each id; refused unless the order has each as often as it is named."""
    there = Counter(item["item_id"] for item in order["items"])
    require(all(there[name] >= times for name, times in Counter(item_ids).items()))
    return {item["item_id"]: item for item in reversed(order["items"])}


def _difference(pairs: Iterable[_Pair]) -> float:
    total = 0.0
    for pair in pairs:
        total += pair.new["price"] - pair.item["price"]
    return total


def _require_cover(method: Document, amount: float) -> None:
    require(method["source"] != GIFT_CARD or method["balance"] >= amount)


def _take(method: Document, amount: float) -> None:
    """Take money from a gift card at once; a negative amount is given. Others are settled elsewhere."""
    if method["source"] == GIFT_CARD:
        method["balance"] = round(method["balance"] - amount, 2)


def _record(order: Document, kind: str, amount: float, method: Document) -> None:
    order["payment_history"].append(
        {"transaction_type": kind, "amount": amount, "payment_method_id": method["id"]}
    )
