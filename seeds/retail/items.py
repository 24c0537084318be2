"""Items of an order, and what they are changed for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from refusals import ItemNotInOrder, ItemUnavailable, UnevenLists, UnknownItem, WrongProduct

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

__all__ = ["Pair", "Variant", "pairs_of", "require_items"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A product in one make. `options` is JSON text, as the database has it; the price is in dollars."""

    id: str
    product_id: str
    price: Decimal
    options: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An item of an order, at the price that it was sold for, and what it is changed for."""

    item_id: str
    price: Decimal
    new: Variant


async def require_items(connection: Any, order_id: str, item_ids: Sequence[str]) -> dict[str, Any]:
    """Check that an order has these items, each as often as it is named; returns a row of each, by id.

    Raises:
        ItemNotInOrder: it has not.
    """
    rows = await connection.fetch(
        "SELECT item_id, product_id, price FROM order_items WHERE order_id = $1 ORDER BY position", order_id
    )
    there = Counter(row["item_id"] for row in rows)
    for item, wanted in Counter(item_ids).items():
        if there[item] < wanted:
            raise ItemNotInOrder(f"order {order_id} has item {item} {there[item]} times, not {wanted}")
    return {row["item_id"]: row for row in reversed(rows)}


async def pairs_of(
    connection: Any, order_id: str, item_ids: Sequence[str], new_item_ids: Sequence[str]
) -> list[Pair]:
    """The items of an order with what they are changed for: available variants of the same products.

    Raises:
        UnevenLists, ItemNotInOrder, UnknownItem, WrongProduct, ItemUnavailable: it cannot be.
    """
    if not item_ids or len(item_ids) != len(new_item_ids):
        raise UnevenLists(f"{len(item_ids)} items cannot be changed for {len(new_item_ids)}")
    sold = await require_items(connection, order_id, item_ids)
    found = await connection.fetch(
        "SELECT id, product_id, price, options, available FROM variants WHERE id = ANY ($1)",
        list(new_item_ids),
    )
    variants = {row["id"]: row for row in found}
    pairs: list[Pair] = []
    for old, new in zip(item_ids, new_item_ids, strict=True):
        row = variants.get(new)
        if row is None:
            raise UnknownItem(f"there is no item {new}")
        if row["product_id"] != sold[old]["product_id"]:
            raise WrongProduct(f"item {new} is of another product than item {old}")
        if not row["available"]:
            raise ItemUnavailable(f"item {new} is not available")
        variant = Variant(id=new, product_id=row["product_id"], price=row["price"], options=row["options"])
        pairs.append(Pair(item_id=old, price=sold[old]["price"], new=variant))
    return pairs
