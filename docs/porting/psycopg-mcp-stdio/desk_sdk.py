"""An order desk whose tools are an MCP server's, started over stdio for each request."""

from __future__ import annotations

import os
import re
import sys

from mcp import Client, StdioServerParameters

from redteam_sdk import context, tool


async def call(name: str, **arguments: object) -> str:
    """Call one tool of the shop's MCP server."""
    env = {**os.environ, **context.handover()}
    shop = StdioServerParameters(command=sys.executable, args=["server_sdk.py"], env=env)
    async with Client(shop) as client:
        result = await client.call_tool(name, arguments)
        return result.content[0].text


@tool
async def cancel_order(order_id: int) -> str:
    """Cancel an open order."""
    return await call("cancel_order", order_id=order_id)


async def answer(message: str, session: object) -> str:
    """Stands where the model's loop would: finds the order's number and calls the tool."""
    asked = re.search(r"cancel order (\d+)", message)
    if asked is None:
        return "Is there anything else?"
    done = await cancel_order(int(asked[1]))
    return f"Order {asked[1]} is cancelled." if done == "cancelled" else "That order is not open."
