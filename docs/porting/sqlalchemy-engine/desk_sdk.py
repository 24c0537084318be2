"""An order desk with a SQLAlchemy engine that decides at every checkout."""

from __future__ import annotations

import os
import re

from sqlalchemy import text

from redteam_sdk import tool
from redteam_sdk.contrib.sqlalchemy import create_async_engine

engine = create_async_engine(os.environ.get("DATABASE_URL", "postgresql+asyncpg://"))


@tool
async def cancel_order(order_id: int) -> int:
    """Cancel an open order; the number of orders that were."""
    async with engine.begin() as connection:
        done = await connection.execute(
            text("UPDATE orders SET status = 'cancelled' WHERE id = :id AND status = 'open'"),
            {"id": order_id},
        )
        return done.rowcount


async def answer(message: str, session: object) -> str:
    """Stands where the model's loop would: finds the order's number and calls the tool."""
    asked = re.search(r"cancel order (\d+)", message)
    if asked is None:
        return "Is there anything else?"
    done = await cancel_order(int(asked[1]))
    return f"Order {asked[1]} is cancelled." if done else "That order is not open."
