"""For Starlette, FastAPI and every other ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from redteam_sdk.context import Context, bound
from redteam_sdk.middleware import FORBIDDEN, HEADER_NAME, admitted
from redteam_sdk.middleware.requests import WELL_KNOWN, answer, in_flight, recorded, reporter_for
from redteam_sdk.reporting import REQUEST_HEADER, Reporter

__all__ = ["RedteamMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEADER = HEADER_NAME.encode()
_POLICY_VIOLATION = 1008


class RedteamMiddleware:
    """Binds the context of each request or websocket that bears a token, until the application is done.

    That includes streamed responses, background tasks and tasks that the application starts. The application
    does not see the header, nor requests to `/.well-known/redteam` that bear a token.
    `app.add_middleware(RedteamMiddleware)`; put it outermost.
    """

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI protocol."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        tokens = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == _HEADER]
        if not tokens:
            await self.app(scope, receive, send)
            return
        context = admitted(tokens, scope.get("client"))
        del tokens
        if context is None:
            await _refuse(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] == WELL_KNOWN:
            status, body = await answer(scope["method"], context)
            await _respond(send, status, b"application/json", body)
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != _HEADER]
        await self._serve({**scope, "headers": headers}, receive, send, context)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, context: Context) -> None:
        reporter = reporter_for(context)
        try:
            with in_flight(context), bound(context), recorded(reporter):
                await self.app(scope, receive, send if reporter is None else _reporting(send, reporter))
        finally:
            if reporter is not None:
                reporter.close()


def _reporting(send: Send, reporter: Reporter) -> Send:
    """Name the request in the response's head, and hold its last byte back until its events are delivered."""

    async def reporting(message: Message) -> None:
        if message["type"] == "http.response.start":
            header = (REQUEST_HEADER.lower().encode(), reporter.request.encode())
            message = {**message, "headers": [*message.get("headers", ()), header]}
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            await asyncio.wrap_future(reporter.replied())
        await send(message)

    return reporting


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        # Closed before it was accepted, it is an HTTP response with status 403.
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": ""})
        return
    await _respond(send, 403, b"text/plain; charset=utf-8", FORBIDDEN)


async def _respond(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
