"""The fault matrix: every kind of token, every driver, every way in; production, the fork, or a refusal.

Production and the fork are two real databases, and every driver is set up for production first. No cell may
ever be a fork for production traffic, or production for redteam traffic.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route
from support.drivers import DRIVERS, Drivers, answer_of
from support.sdk import Minter, armed, fork, unconfigured
from support.services import uvicorn_serving, wsgi_serving

from redteam_sdk import carry, db
from redteam_sdk.context import HEADER, TRUST_VARIABLE, bind
from redteam_sdk.errors import ContextError
from redteam_sdk.middleware import asgi, wsgi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from starlette.requests import Request

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

MINTER = Minter()
TOKENS: dict[str, Callable[[Context], str | None]] = {
    "absent": lambda context: None,
    "valid": MINTER.mint,
    "forged": lambda context: Minter().mint(context),
    "expired": lambda context: MINTER.mint(context, nbf=1000, exp=2000),
    "garbled": lambda context: MINTER.mint(context)[:-2],
}
WAYS = ("asgi", "wsgi", "thread", "subprocess")
SYNC = ("SQLAlchemy, sync", "psycopg", "psycopg_pool")
REFUSED = {"forged": "UntrustedContext", "expired": "ExpiredContext", "garbled": "InvalidContext"}


def expected(token: str, *, is_armed: bool, production: str, fork: str) -> str:
    """The rule of docs/sdk.md, in its order."""
    if token == "absent":
        return "NoContext" if is_armed else production
    if not is_armed:
        return "NotConfigured"
    return fork if token == "valid" else REFUSED[token]


async def through_asgi(drivers: Drivers, token: str | None) -> dict[str, str]:
    async def ask(request: Request) -> JSONResponse:
        return JSONResponse({name: await answer_of(drivers.ask(name)) for name in DRIVERS})

    app = Starlette(routes=[Route("/", ask)], middleware=[Middleware(asgi.RedteamMiddleware)])
    async with uvicorn_serving(app) as url, httpx.AsyncClient(timeout=40) as client:
        return said(await client.get(url, headers={HEADER: token} if token else {}), DRIVERS)


async def through_wsgi(drivers: Drivers, token: str | None) -> dict[str, str]:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        answers = {name: asyncio.run(answer_of(drivers.ask(name))) for name in SYNC}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answers).encode()]

    with wsgi_serving(wsgi.RedteamMiddleware(app)) as url:
        async with httpx.AsyncClient(timeout=40) as client:
            return said(await client.get(url, headers={HEADER: token} if token else {}), SYNC)


def said(answer: httpx.Response, names: Iterable[str]) -> dict[str, str]:
    if answer.status_code == 403:
        assert answer.text == "Forbidden\n"
        return dict.fromkeys(names, "refused")
    return {str(name): str(seen) for name, seen in answer.json().items()}


async def through_thread(drivers: Drivers, token: str | None) -> dict[str, str]:
    """A bare thread that is handed a carried function, from code that bound the token."""
    seen: dict[str, str] = {}

    def work() -> None:
        for name in SYNC:
            seen[name] = asyncio.run(answer_of(drivers.ask(name)))

    try:
        with bind(token) if token is not None else nullcontext():
            worker = threading.Thread(target=carry(work))
            worker.start()
            await anyio.to_thread.run_sync(worker.join)
    except ContextError as error:
        return dict.fromkeys(SYNC, type(error).__name__)
    return seen


async def through_subprocess(place: Context, token: str | None) -> dict[str, str]:
    """A child process that adopts what is in its environment, and asks everything all the same."""
    tests = str(Path(__file__).parents[1])
    given = {"REDTEAM_CONTEXT": token} if token is not None else {}
    trust = {TRUST_VARIABLE: os.environ[TRUST_VARIABLE]} if TRUST_VARIABLE in os.environ else {}
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": tests,
        "DATABASE_URL": place.dsn(),
        **given,
        **trust,
    }
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-W", "error", "-m", "support.drivers", place.dsn()],
            env=environment,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, str] = json.loads(done.stdout)
    refusal = answers.pop("adopt")
    if refusal:
        # What goes on after the refusal finds no database at all.
        assert set(answers.values()) == {"NoContext"}
        return dict.fromkeys(answers, refusal)
    return answers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_armed", [True, False], ids=["armed", "not-armed"])
async def test_every_cell_of_the_fault_matrix_is_what_the_rule_says(
    server: Server, way: str, is_armed: bool
) -> None:
    async with fork(server, sessions=20) as place, fork(server, sessions=20) as context:
        with unconfigured():
            db.configure(place.dsn())
            drivers = Drivers(place.dsn())
            async with drivers.opened():
                await drivers.ask("SQLAlchemy on asyncpg")  # one that has a production connection to hand out
                for token, make in TOKENS.items():
                    # Each token is for the same fork in a conversation that is not over.
                    with armed(MINTER, server.facts.host) if is_armed else nullcontext():
                        seen = await seen_through(way, drivers, place, make(context))
                    should = expected(
                        token, is_armed=is_armed, production=place.database, fork=context.database
                    )
                    if way in ("asgi", "wsgi") and should not in (
                        place.database,
                        context.database,
                        "NoContext",
                    ):
                        should = "refused"
                    assert seen == dict.fromkeys(seen, should), token
                    assert set(seen) in (set(DRIVERS), set(SYNC))
            await db.close_context(context)


async def seen_through(way: str, drivers: Drivers, place: Context, token: str | None) -> dict[str, Any]:
    if way == "asgi":
        return await through_asgi(drivers, token)
    if way == "wsgi":
        return await through_wsgi(drivers, token)
    if way == "thread":
        return await through_thread(drivers, token)
    return await through_subprocess(place, token)
