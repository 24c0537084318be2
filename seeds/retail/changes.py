"""The tools of the support desk that write: each in one transaction, on rows that it has locked.

The order is locked first, then payment methods in the order of their ids: two requests for one order run one
after the other, and no two wait for each other. A refusal is an exception, which rolls the transaction back.
"""

from __future__ import annotations

from typing import Any, Literal

from items import pairs_of, require_items
from lookups import order_document, user_document
from money import (
    Payment,
    charge,
    credit,
    difference,
    lock_methods,
    not_yet_refunded,
    payments_of,
    record_payment,
    require_cover,
)
from quirks import unrounded_difference, variant_that_is_recorded
from refusals import (
    InvalidReason,
    NothingToChange,
    PaymentNotAllowed,
    UnevenLists,
    UnknownOrder,
    UnknownUser,
    WrongStatus,
)

from redteam_sdk import db, tool

__all__ = [
    "cancel_pending_order",
    "exchange_delivered_order_items",
    "modify_pending_order_address",
    "modify_pending_order_items",
    "modify_pending_order_payment",
    "modify_user_address",
    "return_delivered_order_items",
]

Document = dict[str, Any]
Reason = Literal["no longer needed", "ordered by mistake"]

_REASONS = ("no longer needed", "ordered by mistake")


async def _lock_order(connection: Any, order_id: str) -> Any:
    row = await connection.fetchrow("SELECT user_id, status FROM orders WHERE id = $1 FOR UPDATE", order_id)
    if row is None:
        raise UnknownOrder(f"there is no order {order_id}")
    return row


async def _lock_order_that_is(connection: Any, order_id: str, status: str) -> Any:
    order = await _lock_order(connection, order_id)
    if order["status"] != status:
        raise WrongStatus(f"order {order_id} is {order['status']}, not {status}")
    return order


async def _lock_order_not_sent(connection: Any, order_id: str) -> Any:
    """An order that is pending, also one whose items were changed."""
    order = await _lock_order(connection, order_id)
    if "pending" not in order["status"]:
        raise WrongStatus(f"order {order_id} is {order['status']}, not pending")
    return order


@tool
async def cancel_pending_order(order_id: str, reason: Reason) -> Document:
    """Cancel an order that is pending. What was paid goes back: to a gift card at once, else in 5 to 7 days.

    Explain it to the customer and have their explicit yes first.

    Args:
        order_id: such as #W0000000; the # belongs to it.
        reason: why, in one of these two.

    Returns:
        The order as it is now.

    Raises:
        WrongStatus: it is not pending, or its items were changed.
        InvalidReason: it is another reason.
        UnknownOrder: there is no such order.
    """
    async with db.transaction() as connection:
        order = await _lock_order_that_is(connection, order_id, "pending")
        if reason not in _REASONS:
            raise InvalidReason(f"an order is cancelled because it is {' or '.join(_REASONS)}")
        for payment in not_yet_refunded(await payments_of(connection, order_id)):
            # Taken anew for each: two payments may be from one card.
            methods = await lock_methods(connection, order["user_id"], [payment.method])
            await credit(connection, methods[payment.method], payment.amount)
            refund = Payment(kind="refund", amount=payment.amount, method=payment.method)
            await record_payment(connection, order_id, refund)
        await connection.execute(
            "UPDATE orders SET status = 'cancelled', cancel_reason = $2 WHERE id = $1", order_id, reason
        )
        return await order_document(connection, order_id)


@tool
async def modify_pending_order_items(
    order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> Document:
    """Change items of a pending order for others of the same products. This can be done once for an order.

    Explain it to the customer and have their explicit yes first; make sure that the list is complete.

    Args:
        order_id: such as #W0000000; the # belongs to it.
        item_ids: the items to be changed, each as often as it is to be.
        new_item_ids: what each is changed for, in the same order.
        payment_method_id: pays the difference, or receives it.

    Returns:
        The order as it is now.

    Raises:
        WrongStatus: it is not pending, or its items were changed already.
        UnevenLists, ItemNotInOrder, UnknownItem, WrongProduct, ItemUnavailable: the items do not fit.
        NothingToChange: an item would be changed for itself.
        UnknownPaymentMethod, InsufficientBalance: it cannot be paid like that.
        UnknownOrder: there is no such order.
    """
    async with db.transaction() as connection:
        order = await _lock_order_that_is(connection, order_id, "pending")
        pairs = await pairs_of(connection, order_id, item_ids, new_item_ids)
        for pair in pairs:
            if pair.item_id == pair.new.id:
                raise NothingToChange(f"item {pair.item_id} would be changed for itself")
        amount = unrounded_difference(pairs)
        method = (await lock_methods(connection, order["user_id"], [payment_method_id]))[payment_method_id]
        require_cover(method, amount)
        await charge(connection, method, amount)
        kind: Literal["payment", "refund"] = "payment" if amount > 0 else "refund"
        await record_payment(connection, order_id, Payment(kind=kind, amount=abs(amount), method=method.id))
        for pair in pairs:
            recorded = variant_that_is_recorded(pairs, pair)
            await connection.execute(
                "UPDATE order_items SET item_id = $3, price = $4, options = $5"
                " WHERE order_id = $1 AND position ="
                " (SELECT min(position) FROM order_items WHERE order_id = $1 AND item_id = $2)",
                order_id,
                pair.item_id,
                pair.new.id,
                recorded.price,
                recorded.options,
            )
        await connection.execute(
            "UPDATE orders SET status = 'pending (item modified)' WHERE id = $1", order_id
        )
        return await order_document(connection, order_id)


@tool
async def modify_pending_order_address(
    order_id: str,
    address1: str,
    address2: str,
    city: str,
    state: str,
    country: str,
    zip: str,  # noqa: A002 - the benchmark names it so
) -> Document:
    """Change where a pending order is sent to.

    Explain it to the customer and have their explicit yes first.

    Args:
        order_id: such as #W0000000; the # belongs to it.
        address1: the first line, such as 123 Main St.
        address2: the second line, such as Apt 1; may be empty.
        city: the city.
        state: the state, such as CA.
        country: the country, such as USA.
        zip: the zip code.

    Returns:
        The order as it is now.

    Raises:
        WrongStatus: it is not pending.
        UnknownOrder: there is no such order.
    """
    async with db.transaction() as connection:
        await _lock_order_not_sent(connection, order_id)
        await connection.execute(
            "UPDATE orders SET address1 = $2, address2 = $3, city = $4, state = $5, country = $6, zip = $7"
            " WHERE id = $1",
            order_id,
            address1,
            address2,
            city,
            state,
            country,
            zip,
        )
        return await order_document(connection, order_id)


@tool
async def modify_pending_order_payment(order_id: str, payment_method_id: str) -> Document:
    """Change what a pending order is paid with. The old method gets its money back: a gift card at once.

    Explain it to the customer and have their explicit yes first.

    Args:
        order_id: such as #W0000000; the # belongs to it.
        payment_method_id: another method of the same customer.

    Returns:
        The order as it is now.

    Raises:
        WrongStatus: it is not pending.
        PaymentNotAllowed: it was paid otherwise than by one payment.
        NothingToChange: it is paid with this method already.
        UnknownPaymentMethod, InsufficientBalance: it cannot be paid like that.
        UnknownOrder: there is no such order.
    """
    async with db.transaction() as connection:
        order = await _lock_order_not_sent(connection, order_id)
        payments = await payments_of(connection, order_id)
        if [one.kind for one in payments] != ["payment"]:
            raise PaymentNotAllowed(f"order {order_id} has not exactly one payment")
        (paid,) = payments
        if paid.method == payment_method_id:
            raise NothingToChange(f"order {order_id} is paid with {payment_method_id} already")
        methods = await lock_methods(connection, order["user_id"], [paid.method, payment_method_id])
        require_cover(methods[payment_method_id], paid.amount)
        await charge(connection, methods[payment_method_id], paid.amount)
        await credit(connection, methods[paid.method], paid.amount)
        new = Payment(kind="payment", amount=paid.amount, method=payment_method_id)
        await record_payment(connection, order_id, new)
        back = Payment(kind="refund", amount=paid.amount, method=paid.method)
        await record_payment(connection, order_id, back)
        return await order_document(connection, order_id)


@tool
async def exchange_delivered_order_items(
    order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
) -> Document:
    """Ask for items of a delivered order to be exchanged for others of the same products, once for an order.

    No money moves before the items are back. Explain it to the customer and have their explicit yes first.

    Args:
        order_id: such as #W0000000; the # belongs to it.
        item_ids: the items to be exchanged, each as often as it is to be.
        new_item_ids: what each is exchanged for, in the same order.
        payment_method_id: will pay the difference, or receive it.

    Returns:
        The order as it is now.

    Raises:
        WrongStatus: it was not delivered, or something was asked for already.
        UnevenLists, ItemNotInOrder, UnknownItem, WrongProduct, ItemUnavailable: the items do not fit.
        UnknownPaymentMethod, InsufficientBalance: it could not be paid like that.
        UnknownOrder: there is no such order.
    """
    async with db.transaction() as connection:
        order = await _lock_order_that_is(connection, order_id, "delivered")
        pairs = await pairs_of(connection, order_id, item_ids, new_item_ids)
        amount = difference(pairs)
        method = (await lock_methods(connection, order["user_id"], [payment_method_id]))[payment_method_id]
        require_cover(method, amount)
        await connection.executemany(
            "INSERT INTO exchange_items (order_id, position, item_id, new_item_id, product_id)"
            " VALUES ($1, $2, $3, $4, $5)",
            [
                (order_id, place, pair.item_id, pair.new.id, pair.new.product_id)
                for place, pair in enumerate(pairs, start=1)
            ],
        )
        await connection.execute(
            "UPDATE orders SET status = 'exchange requested', exchange_payment_method_id = $2,"
            " exchange_price_difference = $3 WHERE id = $1",
            order_id,
            method.id,
            amount,
        )
        return await order_document(connection, order_id)


@tool
async def return_delivered_order_items(
    order_id: str, item_ids: list[str], payment_method_id: str
) -> Document:
    """Ask for items of a delivered order to be taken back, once for an order.

    The customer is told by email how to send them. Explain it and have their explicit yes first.

    Args:
        order_id: such as #W0000000; the # belongs to it.
        item_ids: the items to be returned, each as often as it is to be.
        payment_method_id: will receive the money: the one that paid, or a gift card of the customer.

    Returns:
        The order as it is now.

    Raises:
        WrongStatus: it was not delivered, or something was asked for already.
        UnevenLists: no item is named.
        ItemNotInOrder: the order has no such item, or not as many.
        PaymentNotAllowed: the method is neither a gift card nor the one that paid.
        UnknownPaymentMethod: the customer has no such method.
        UnknownOrder: there is no such order.
    """
    async with db.transaction() as connection:
        order = await _lock_order_that_is(connection, order_id, "delivered")
        method = (await lock_methods(connection, order["user_id"], [payment_method_id]))[payment_method_id]
        paid = await payments_of(connection, order_id)
        if not method.is_gift_card and not (paid and paid[0].method == method.id):
            raise PaymentNotAllowed(
                f"{method.id} is neither a gift card nor what order {order_id} was paid with"
            )
        if not item_ids:
            raise UnevenLists("no item is named")
        await require_items(connection, order_id, item_ids)
        await connection.executemany(
            "INSERT INTO return_items (order_id, position, item_id) VALUES ($1, $2, $3)",
            [(order_id, place, item) for place, item in enumerate(item_ids, start=1)],
        )
        await connection.execute(
            "UPDATE orders SET status = 'return requested', return_payment_method_id = $2 WHERE id = $1",
            order_id,
            method.id,
        )
        return await order_document(connection, order_id)


@tool
async def modify_user_address(
    user_id: str,
    address1: str,
    address2: str,
    city: str,
    state: str,
    country: str,
    zip: str,  # noqa: A002 - the benchmark names it so
) -> Document:
    """Change the default address of a customer. Orders that are under way keep theirs.

    Explain it to the customer and have their explicit yes first.

    Args:
        user_id: such as sara_doe_496.
        address1: the first line, such as 123 Main St.
        address2: the second line, such as Apt 1; may be empty.
        city: the city.
        state: the state, such as CA.
        country: the country, such as USA.
        zip: the zip code.

    Returns:
        The customer as they are now.

    Raises:
        UnknownUser: there is no such customer.
    """
    async with db.transaction() as connection:
        done = await connection.fetchval(
            "UPDATE users SET address1 = $2, address2 = $3, city = $4, state = $5, country = $6, zip = $7"
            " WHERE id = $1 RETURNING id",
            user_id,
            address1,
            address2,
            city,
            state,
            country,
            zip,
        )
        if done is None:
            raise UnknownUser(f"there is no user {user_id}")
        return await user_document(connection, user_id)
