"""An order desk whose tools are an MCP server's, started over stdio for each request."""

from __future__ import annotations

import os
import re
import sys

from mcp import Client, StdioServerParameters


async def call(tool: str, **arguments: object) -> str:
    """Call one tool of the shop's MCP server."""
    shop = StdioServerParameters(command=sys.executable, args=["server.py"], env=dict(os.environ))
    async with Client(shop) as client:
        result = await client.call_tool(tool, arguments)
        return result.content[0].text


async def database() -> str:
    """The probe: what the server's own pool sees."""
    return await call("database")


async def answer(message: str, session: object) -> str:
    """Stands where the model's loop would: finds the order's number and calls the tool."""
    asked = re.search(r"cancel order (\d+)", message)
    if asked is None:
        return "Is there anything else?"
    done = await call("cancel_order", order_id=int(asked[1]))
    return f"Order {asked[1]} is cancelled." if done == "cancelled" else "That order is not open."
