"""An order desk whose tools share one asyncpg pool, at an address that is read at import."""

from __future__ import annotations

import os
import re

import asyncpg

DATABASE_URL = os.environ["DATABASE_URL"]
_pool: asyncpg.Pool | None = None


async def pool() -> asyncpg.Pool:
    """The one pool of the process."""
    global _pool
    if _pool is None:
        _pool = await asyncpg.create_pool(DATABASE_URL, min_size=1, max_size=5)
    return _pool


async def cancel_order(order_id: int) -> str:
    """Cancel an open order."""
    async with (await pool()).acquire() as connection:
        return await connection.execute(
            "UPDATE orders SET status = 'cancelled' WHERE id = $1 AND status = 'open'", order_id
        )


async def database() -> str:
    """The probe: what the desk's own pool sees."""
    return await (await pool()).fetchval("SELECT current_database()")


async def answer(message: str, session: object) -> str:
    """Stands where the model's loop would: finds the order's number and calls the tool."""
    asked = re.search(r"cancel order (\d+)", message)
    if asked is None:
        return "Is there anything else?"
    done = await cancel_order(int(asked[1]))
    return f"Order {asked[1]} is cancelled." if done == "UPDATE 1" else "That order is not open."
