"""An order desk behind FastAPI: each request is given its connection by dependency injection."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads annotations
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from redteam_sdk import context, db
from redteam_sdk.middleware.asgi import RedteamMiddleware


class Line(BaseModel):
    """What a request holds."""

    message: str
    conversation: str


context.arm_from_env()
app = FastAPI()
app.add_middleware(RedteamMiddleware)


async def get_connection() -> AsyncIterator[Any]:
    """A connection for one request."""
    async with db.connection() as connection:
        yield connection


async def cancel_order(connection: Any, order_id: int) -> str:
    """Cancel an open order."""
    return await connection.execute(
        "UPDATE orders SET status = 'cancelled' WHERE id = $1 AND status = 'open'", order_id
    )


@app.post("/chat")
async def chat(line: Line, connection: Annotated[Any, Depends(get_connection)]) -> dict[str, str]:
    """Stands where the model's loop would: finds the order's number and calls the tool."""
    asked = re.search(r"cancel order (\d+)", line.message)
    if asked is None:
        return {"reply": "Is there anything else?"}
    done = await cancel_order(connection, int(asked[1]))
    return {"reply": f"Order {asked[1]} is cancelled." if done == "UPDATE 1" else "That order is not open."}
