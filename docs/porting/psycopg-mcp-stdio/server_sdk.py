"""The shop's MCP server: tools on a psycopg pool, started over stdio by whoever uses it."""

from __future__ import annotations

import os

from mcp.server import MCPServer

from redteam_sdk import context
from redteam_sdk.contrib.psycopg import ConnectionPool

context.adopt()
pool = ConnectionPool(os.environ.get("DATABASE_URL", ""), min_size=1, max_size=2, open=True)
server = MCPServer("shop")


@server.tool()
def cancel_order(order_id: int) -> str:
    """Cancel an open order."""
    with pool.connection() as connection:
        done = connection.execute(
            "UPDATE orders SET status = 'cancelled' WHERE id = %s AND status = 'open'", (order_id,)
        )
        return "cancelled" if done.rowcount else "not open"


if __name__ == "__main__":
    server.run("stdio")
