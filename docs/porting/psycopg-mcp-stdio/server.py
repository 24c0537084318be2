"""The shop's MCP server: tools on a psycopg pool, started over stdio by whoever uses it."""

from __future__ import annotations

import os

from mcp.server import MCPServer
from psycopg_pool import ConnectionPool

pool = ConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=2, open=True)
server = MCPServer("shop")


@server.tool()
def cancel_order(order_id: int) -> str:
    """Cancel an open order."""
    with pool.connection() as connection:
        done = connection.execute(
            "UPDATE orders SET status = 'cancelled' WHERE id = %s AND status = 'open'", (order_id,)
        )
        return "cancelled" if done.rowcount else "not open"


@server.tool()
def database() -> str:
    """The probe: what the server's own pool sees."""
    with pool.connection() as connection:
        return str(connection.execute("SELECT current_database()").fetchone()[0])


if __name__ == "__main__":
    server.run("stdio")
