"""An order desk whose tools take a connection of the SDK for each call."""

from __future__ import annotations

import re

from redteam_sdk import db, tool


@tool
async def cancel_order(order_id: int) -> str:
    """Cancel an open order."""
    async with db.connection() as connection:
        return await connection.execute(
            "UPDATE orders SET status = 'cancelled' WHERE id = $1 AND status = 'open'", order_id
        )


async def answer(message: str, session: object) -> str:
    """Stands where the model's loop would: finds the order's number and calls the tool."""
    asked = re.search(r"cancel order (\d+)", message)
    if asked is None:
        return "Is there anything else?"
    done = await cancel_order(int(asked[1]))
    return f"Order {asked[1]} is cancelled." if done == "UPDATE 1" else "That order is not open."
