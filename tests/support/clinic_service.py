"""The clinic's front desk as a deployed service: `python -m support.clinic_service FD [FAULT...]`, run in the
folder of the clinic. It is an ordinary FastAPI application with the SDK's middleware in front.

A fault changes one thing about it; tests name them: see `build`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import anyio
import uvicorn
from fastapi import BackgroundTasks, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse

from redteam_sdk import EnvironmentFault, Session, context, external, handoff, record
from support.traced import instrument, traced_turn

__all__ = ["build"]


@external
async def charge() -> None:
    """Charges a card, in production."""
    raise AssertionError("an external call was made")


def build(given: frozenset[str]) -> Any:
    """The application, and what is wrong with it; more may be asked for by the query, `?fault=hangs`."""
    from agent import front_desk  # type: ignore[import-not-found,unused-ignore]

    app = FastAPI()
    sessions: dict[str, Session] = {}

    async def reply(text: str, conversation: str) -> str:
        session = sessions.setdefault(conversation, Session(id=conversation))
        if "hands_off" in given and not session.state:
            handoff("front desk", by="greeter")
        return str(await front_desk(text, session))

    @app.post("/chat")
    async def chat(request: Request, background: BackgroundTasks) -> Response:
        body = await request.json()
        faults = given | set(request.query_params.getlist("fault"))
        if "redirects" in faults:
            return RedirectResponse("/elsewhere", status_code=307)
        if "hangs" in faults:
            await anyio.sleep_forever()
        if "is_down" in faults:
            return PlainTextResponse("no", status_code=503)
        if "is_traced" in faults or "traces_elsewhere" in faults:
            name = "front desk" if body["conversation"] in sessions else "greeter"
            headers = dict(request.headers) if "is_traced" in faults else {}
            async with traced_turn(headers, name):
                text = await reply(body["message"], body["conversation"])
        else:
            text = await reply(body["message"], body["conversation"])
        if "works_late" in faults:
            background.add_task(late_work)
        if "calls_out" in faults:
            await swallowed()
        if "calls_out_late" in faults:
            background.add_task(swallowed)
        if "speaks_html" in faults:
            return PlainTextResponse(f"<p>{text}</p>")
        if "says_nothing" in faults:
            return JSONResponse({"reply": "  "})
        if "answers_a_number" in faults:
            return JSONResponse({"reply": 7})
        if "talks_on" in faults:
            return StreamingResponse(endless(), media_type="application/json")
        return JSONResponse({"reply": text})

    async def endless() -> Any:
        for _ in range(256):
            yield b" " * 65536

    async def late_work() -> None:
        record.emit("external", name="late_mail", arguments={})

    async def swallowed() -> None:
        with contextlib.suppress(EnvironmentFault):
            await charge()

    @app.post("/v1/chat/completions")
    async def completions(request: Request) -> Response:
        body = await request.json()
        text = await reply(body["messages"][-1]["content"], body["user"])
        message = {"role": "assistant", "content": text}
        return JSONResponse({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    @app.post("/v1/messages")
    async def messages(request: Request) -> Response:
        body = await request.json()
        text = await reply(body["messages"][-1]["content"], body["metadata"]["user_id"])
        half = len(text) // 2
        blocks = [{"type": "text", "text": part} for part in (text[:half], text[half:])]
        return JSONResponse({"role": "assistant", "content": blocks, "stop_reason": "end_turn"})

    @app.get("/elsewhere")
    @app.post("/elsewhere")
    async def elsewhere(request: Request) -> Response:
        raise AssertionError("a redirect was followed")

    if "never_armed" in given:
        return app
    from redteam_sdk.middleware.asgi import RedteamMiddleware

    context.arm_from_env()
    if os.environ.get("TRACES_URL"):
        instrument()
    return RedteamMiddleware(app)


if __name__ == "__main__":
    config = uvicorn.Config(
        build(frozenset(sys.argv[2:])), fd=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run()
