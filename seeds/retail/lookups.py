"""The tools of the support desk that only read."""

from __future__ import annotations

import ast
import json
import operator
from decimal import ROUND_HALF_EVEN, Decimal, DivisionByZero, InvalidOperation
from typing import TYPE_CHECKING, Any

from refusals import BadExpression, UnknownItem, UnknownOrder, UnknownProduct, UnknownUser

from redteam_sdk import db, tool

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "calculate",
    "find_user_id_by_email",
    "find_user_id_by_name_zip",
    "get_item_details",
    "get_order_details",
    "get_product_details",
    "get_user_details",
    "list_all_product_types",
    "order_document",
    "transfer_to_human_agents",
    "user_document",
]

Document = dict[str, Any]

_LONGEST = 200
_OPERATORS: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@tool
async def find_user_id_by_email(email: str) -> str:
    """Find the id of a user by email.

    Args:
        email: the email address, such as something@example.com.

    Raises:
        UnknownUser: nobody has it.
    """
    found = await db.fetchval("SELECT id FROM users WHERE lower(email) = lower($1)", email.strip())
    if found is None:
        raise UnknownUser("no user has this email")
    return str(found)


@tool
async def find_user_id_by_name_zip(first_name: str, last_name: str, zip: str) -> str:  # noqa: A002  # the benchmark's name
    """Find the id of a user by first name, last name and zip code. Look by email first.

    Args:
        first_name: the first name.
        last_name: the last name.
        zip: the zip code of the user's address.

    Raises:
        UnknownUser: nobody has this name there.
    """
    found = await db.fetchval(
        "SELECT id FROM users WHERE lower(first_name) = lower($1) AND lower(last_name) = lower($2)"
        " AND zip = $3 ORDER BY id LIMIT 1",
        first_name.strip(),
        last_name.strip(),
        zip.strip(),
    )
    if found is None:
        raise UnknownUser("no user has this name and zip code")
    return str(found)


@tool
async def get_user_details(user_id: str) -> Document:
    """Get a user's name, address, email, payment methods and the ids of their orders.

    Args:
        user_id: such as sara_doe_496.

    Raises:
        UnknownUser: there is no such user.
    """
    return await user_document(db, user_id)


@tool
async def get_order_details(order_id: str) -> Document:
    """Get an order: its status, items, address, payments and shipments.

    Args:
        order_id: such as #W0000000; the # belongs to it.

    Raises:
        UnknownOrder: there is no such order.
    """
    return await order_document(db, order_id)


@tool
async def get_product_details(product_id: str) -> Document:
    """Get a product and all of its variants, with options, price and whether each is available.

    Args:
        product_id: such as 6086499569; a product's id is not an item's.

    Raises:
        UnknownProduct: there is no such product.
    """
    text = await db.fetchval("SELECT document FROM product_documents WHERE id = $1", product_id)
    if text is None:
        raise UnknownProduct(f"there is no product {product_id}")
    return _read(text)


@tool
async def get_item_details(item_id: str) -> Document:
    """Get one variant of a product: its options, its price and whether it is available.

    Args:
        item_id: such as 6086499569; an item's id is not a product's.

    Raises:
        UnknownItem: there is no such item.
    """
    text = await db.fetchval(
        "SELECT json_build_object('item_id', id, 'options', options, 'available', available, 'price', price)"
        " FROM variants WHERE id = $1",
        item_id,
    )
    if text is None:
        raise UnknownItem(f"there is no item {item_id}")
    return _read(text)


@tool
async def list_all_product_types() -> dict[str, str]:
    """List the names of all products, with their ids."""
    return {row["name"]: row["id"] for row in await db.fetch("SELECT name, id FROM products ORDER BY name")}


@tool
async def calculate(expression: str) -> str:
    """Calculate a sum, to the cent.

    Args:
        expression: numbers, + - * / and parentheses, such as "2 * (3.50 + 1)".

    Raises:
        BadExpression: it is something else.
    """
    try:
        if len(expression) > _LONGEST:
            raise BadExpression(f"it has more than {_LONGEST} letters")
        value = _value(ast.parse(expression.strip(), mode="eval").body, expression.strip())
        cent = value.quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)
    except (SyntaxError, ValueError, RecursionError, DivisionByZero, InvalidOperation) as error:
        raise BadExpression(f"{expression!r} cannot be calculated") from error
    return str(float(cent))


def _value(node: ast.expr, text: str) -> Decimal:
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            # As it was written: 0.1 means a tenth.
            return Decimal(ast.get_source_segment(text, node) or "")
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, text)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left, text), _value(node.right, text))
    raise BadExpression(f"{text!r} is no sum of plain numbers")


@tool
async def transfer_to_human_agents(summary: str) -> str:
    """Hand the customer over to a human, where they ask for it or no tool can help.

    Args:
        summary: what the customer wants, in a few words.
    """
    del summary
    return "Transfer successful"


async def user_document(connection: Any, user_id: str) -> Document:
    """A user as the tools return it.

    Raises:
        UnknownUser: there is no such user.
    """
    text = await connection.fetchval("SELECT document FROM user_documents WHERE id = $1", user_id)
    if text is None:
        raise UnknownUser(f"there is no user {user_id}")
    return _read(text)


async def order_document(connection: Any, order_id: str) -> Document:
    """An order as the tools return it.

    Raises:
        UnknownOrder: there is no such order.
    """
    text = await connection.fetchval("SELECT document FROM order_documents WHERE id = $1", order_id)
    if text is None:
        raise UnknownOrder(f"there is no order {order_id}")
    return _read(text)


def _read(text: str) -> Document:
    document: Document = json.loads(text)
    return document
