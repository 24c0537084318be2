"""The middlewares, in real servers: a valid token in the one header leads to its fork; nothing else does.

Long because three frameworks are served.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI
from fastapi.responses import StreamingResponse
from flask import Flask, Response, request, stream_with_context
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request  # noqa: TC002 - FastAPI reads it from the hints
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from support.sdk import Minter, armed, context_for, fork, production
from support.services import uvicorn_serving, wsgi_serving

from redteam_sdk import context as redteam
from redteam_sdk import db
from redteam_sdk.context import bind
from redteam_sdk.errors import NoContext
from redteam_sdk.middleware import asgi, wsgi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

MINTER = Minter()
WHERE = "SELECT current_database()"
HEADER = "Redteam-Context"


async def where() -> str:
    """The database that the running code sees."""
    return str(await db.fetchval(WHERE))


def where_sync() -> str:
    """The same by its address, for code without a loop; `NoContext` where there is none."""
    try:
        return db.dsn().partition("?")[0].rpartition("/")[2]
    except NoContext:
        return "NoContext"


SEEN: dict[str, str] = {}
DONE = threading.Event()


def note(name: str) -> None:
    SEEN[name] = where_sync()
    DONE.set()


async def note_async(name: str) -> None:
    SEEN[name] = await where()
    DONE.set()


async def chunks() -> AsyncIterator[str]:
    for _ in range(3):
        yield f"{await where()} "


def fastapi_app() -> FastAPI:
    app = FastAPI()
    app.add_middleware(asgi.RedteamMiddleware)

    @app.api_route("/where", methods=["GET", "POST"])
    async def ask(request: Request) -> dict[str, Any]:
        return {"database": await where(), "headers": [name.lower() for name in request.headers]}

    @app.get("/sync")
    def ask_sync() -> str:
        return where_sync()

    @app.get("/streamed")
    async def streamed() -> StreamingResponse:
        return StreamingResponse(chunks())

    @app.get("/background")
    async def background(tasks: BackgroundTasks) -> str:
        tasks.add_task(note_async, "background")
        return "later"

    @app.get("/health")
    async def health() -> str:
        return "ok"

    return app


def starlette_app() -> Starlette:
    tasks: set[asyncio.Task[None]] = set()

    async def ask(request: Request) -> JSONResponse:
        return JSONResponse(
            {"database": await where(), "headers": [name.lower() for name in request.headers]}
        )

    def ask_sync(request: Request) -> JSONResponse:
        return JSONResponse(where_sync())

    async def background(request: Request) -> PlainTextResponse:
        return PlainTextResponse("later", background=BackgroundTask(note, "background"))

    async def created(request: Request) -> PlainTextResponse:
        tasks.add(asyncio.get_running_loop().create_task(note_async("created")))
        return PlainTextResponse("later")

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        while await socket.receive_text() != "bye":
            await socket.send_text(where_sync())
        await socket.close()

    routes = [
        Route("/where", ask, methods=["GET", "POST"]),
        Route("/sync", ask_sync),
        Route("/background", background),
        Route("/created", created),
        WebSocketRoute("/talk", talk),
    ]
    return Starlette(routes=routes, middleware=[Middleware(asgi.RedteamMiddleware)])


def flask_app() -> Flask:
    app = Flask(__name__)
    app.wsgi_app = wsgi.RedteamMiddleware(app.wsgi_app)  # type: ignore[method-assign]

    @app.route("/where", methods=["GET", "POST"])
    def ask() -> dict[str, Any]:
        return {"database": asyncio.run(where()), "headers": [name.lower() for name, _ in request.headers]}

    @app.get("/streamed")
    def streamed() -> Response:
        def steps() -> Iterator[str]:
            try:
                for _ in range(3):
                    yield f"{where_sync()} "
            finally:
                SEEN["end of the body"] = where_sync()

        answer = Response(stream_with_context(steps()))
        answer.call_on_close(lambda: note("close"))
        return answer

    return app


@asynccontextmanager
async def serving(kind: str) -> AsyncIterator[str]:
    if kind == "flask":
        with wsgi_serving(flask_app()) as url:
            yield url
    else:
        app = fastapi_app() if kind == "fastapi" else starlette_app()
        async with uvicorn_serving(app) as url:
            yield url


async def raw(url: str, headers: list[tuple[str, str]]) -> tuple[int, bytes]:
    """A GET with exactly these header lines, also twice the same."""

    def ask() -> tuple[int, bytes]:
        host, _, port = url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        try:
            connection.putrequest("GET", "/where")
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(ask)


async def eventually(name: str) -> str:
    """What a background task noted."""
    assert await anyio.to_thread.run_sync(DONE.wait, 20)
    return SEEN[name]


@pytest.fixture(autouse=True)
def forgotten() -> None:
    SEEN.clear()
    DONE.clear()


KINDS = pytest.mark.parametrize("kind", ["fastapi", "starlette", "flask"])


@KINDS
async def test_request_with_a_token_is_served_from_its_fork_and_the_app_never_sees_the_token(
    server: Server, kind: str
) -> None:
    async with fork(server) as one, fork(server, "c002") as two:
        with armed(MINTER, server.facts.host):
            async with serving(kind) as url, httpx.AsyncClient(base_url=url) as client:
                for context in (one, two, one):
                    answer = await client.get("/where", headers={HEADER: MINTER.mint(context)})
                    assert answer.json()["database"] == context.database
                    assert HEADER.lower() not in answer.json()["headers"]
            for context in (one, two):
                await db.close_context(context)


@KINDS
async def test_what_a_client_can_set_elsewhere_has_no_effect(server: Server, kind: str) -> None:
    async with fork(server) as context, production(server) as place:
        token = MINTER.mint(context)
        tricks: list[dict[str, Any]] = [
            {"params": {HEADER: token, "redteam": "1", "redteam_context": token}},
            {"cookies": {HEADER: token, "redteam_context": token}},
            {"json": {HEADER: token, "redteam_context": token, "redteam": True}},
            {"data": {HEADER: token}},
            {
                "headers": {
                    "X-Redteam-Context": token,
                    "Redteam": "true",
                    "X-Redteam": "1",
                    "Authorization": token,
                }
            },
            {"headers": {"X-Forwarded-Redteam-Context": token, "Connection": HEADER, "Trailer": HEADER}},
        ]
        async with serving(kind) as url:
            for trick in tricks:
                async with httpx.AsyncClient(base_url=url, cookies=trick.pop("cookies", None)) as client:
                    answer = await client.request("POST", "/where", **trick)
                assert answer.json()["database"] == place.database, trick
        await db.close()


@KINDS
async def test_refused_request_is_403_without_detail_and_the_log_has_the_reason(
    server: Server, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    context = context_for(host=server.facts.host)
    good = MINTER.mint(context)
    refused: dict[str, tuple[str, str]] = {
        "forged": (Minter().mint(context), "UntrustedContext"),
        "expired": (MINTER.mint(context, nbf=1000, exp=2000), "ExpiredContext"),
        "future": (MINTER.mint(context, nbf=4_000_000_000, exp=4_000_000_060), "ExpiredContext"),
        "audience": (MINTER.mint(context, aud="billing"), "UntrustedContext"),
        "garbled": (good[:-1], "InvalidContext"),
        "empty": ("", "InvalidContext"),
        "host": (MINTER.mint(replace(context, host="production.example")), "ForbiddenHost"),
    }
    with armed(MINTER, server.facts.host), caplog.at_level(logging.WARNING):
        async with serving(kind) as url, httpx.AsyncClient(base_url=url) as client:
            for token, reason in refused.values():
                caplog.clear()
                answer = await client.get("/where", headers={HEADER: token})
                assert (answer.status_code, answer.text) == (403, "Forbidden\n")
                assert [reason in record.getMessage() for record in caplog.records] == [True]
                assert not token or token not in caplog.text
                assert context.password not in caplog.text


@KINDS
async def test_header_that_is_sent_twice_is_refused(server: Server, kind: str) -> None:
    async with fork(server) as context:
        token = MINTER.mint(context)
        with armed(MINTER, server.facts.host):
            async with serving(kind) as url:
                assert (await raw(url, [(HEADER, token)]))[0] == 200
                for headers in (
                    [(HEADER, token), (HEADER, token)],
                    [(HEADER, token), (HEADER.lower(), Minter().mint(context))],
                    [(HEADER.upper(), "x"), (HEADER, token)],
                    [(HEADER, ""), (HEADER, token)],
                ):
                    assert await raw(url, headers) == (403, b"Forbidden\n")
        await db.close_context(context)


@KINDS
async def test_token_in_a_service_that_is_not_armed_is_refused_and_other_requests_are_production(
    server: Server, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with production(server) as place:
        async with serving(kind) as url, httpx.AsyncClient(base_url=url) as client:
            token = MINTER.mint(context_for(host=server.facts.host))
            answer = await client.get("/where", headers={HEADER: token})
            assert (answer.status_code, answer.text) == (403, "Forbidden\n")
            assert "NotConfigured" in caplog.text
            assert (await client.get("/where")).json()["database"] == place.database
        await db.close()


async def test_request_without_a_token_in_an_armed_service_has_no_database(server: Server) -> None:
    with armed(MINTER, server.facts.host):
        async with serving("fastapi") as url, httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/health")).json() == "ok"
            assert (await client.get("/sync")).json() == "NoContext"
            assert (await client.get("/where")).status_code == 500


@pytest.mark.parametrize(
    ("kind", "path"),
    [("fastapi", "/background"), ("starlette", "/background"), ("starlette", "/created")],
)
async def test_background_task_keeps_the_context(server: Server, kind: str, path: str) -> None:
    async with fork(server) as context:
        with armed(MINTER, server.facts.host):
            async with serving(kind) as url, httpx.AsyncClient(base_url=url) as client:
                assert "later" in (await client.get(path, headers={HEADER: MINTER.mint(context)})).text
                assert await eventually(path[1:]) == context.database
            await db.close_context(context)


@pytest.mark.parametrize("kind", ["fastapi", "flask"])
async def test_streamed_response_keeps_the_context_to_its_end(server: Server, kind: str) -> None:
    async with fork(server) as context:
        with armed(MINTER, server.facts.host):
            async with serving(kind) as url, httpx.AsyncClient(base_url=url) as client:
                answer = await client.get("/streamed", headers={HEADER: MINTER.mint(context)})
                assert answer.text == f"{context.database} " * 3
                if kind == "flask":
                    assert await eventually("close") == context.database
                    assert SEEN["end of the body"] == context.database
            await db.close_context(context)


async def test_parallel_requests_of_two_conversations_never_mix(server: Server) -> None:
    async with fork(server) as one, fork(server, "c002") as two:
        seen: dict[str, set[str]] = {one.database: set(), two.database: set()}
        with armed(MINTER, server.facts.host):
            async with serving("fastapi") as url, httpx.AsyncClient(base_url=url, timeout=40) as client:

                async def ask(context: Context) -> None:
                    answer = await client.get("/where", headers={HEADER: MINTER.mint(context)})
                    seen[context.database].add(answer.json()["database"])

                async with anyio.create_task_group() as group:
                    for _ in range(15):
                        group.start_soon(ask, one)
                        group.start_soon(ask, two)
            for context in (one, two):
                await db.close_context(context)
        assert seen == {one.database: {one.database}, two.database: {two.database}}


# No websocket server is installed here: Starlette's own client speaks the protocol's messages with the app.
def test_websocket_keeps_the_context_and_is_refused_without_a_valid_token() -> None:
    context = context_for(host="/run/forks", database="rt_socket")
    with armed(MINTER, "/run/forks"), TestClient(starlette_app()) as client:
        with client.websocket_connect("/talk", headers={HEADER: MINTER.mint(context)}) as talk:
            for _ in range(2):
                talk.send_text("where")
                assert talk.receive_text() == "rt_socket"
            talk.send_text("bye")
        with client.websocket_connect("/talk") as talk:
            talk.send_text("where")
            assert talk.receive_text() == "NoContext"
            talk.send_text("bye")
        forged = {HEADER: Minter().mint(context)}
        with pytest.raises(WebSocketDisconnect) as caught, client.websocket_connect("/talk", headers=forged):
            pytest.fail("it was accepted")
        assert (caught.value.code, caught.value.reason) == (1008, "")


def test_request_in_a_process_of_one_conversation_cannot_bring_another() -> None:
    mine, other = (context_for(host="/run/forks", database=name) for name in ("rt_mine", "rt_other"))
    with armed(MINTER, "/run/forks"), bind(MINTER.mint(mine)), TestClient(starlette_app()) as client:
        assert client.get("/sync").json() == "rt_mine"
        answer = client.get("/sync", headers={HEADER: MINTER.mint(other)})
        assert (answer.status_code, answer.text) == (403, "Forbidden\n")


async def test_other_kinds_of_connection_pass_untouched() -> None:
    seen: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    scope: dict[str, Any] = {"type": "lifespan"}
    receive: Callable[..., Any] = anyio.sleep_forever
    await asgi.RedteamMiddleware(app)(scope, receive, print)  # type: ignore[arg-type]
    assert seen == [(scope, receive, print)]
    assert seen[0][0] is scope  # type: ignore[index]


def test_wsgi_body_leaves_nothing_bound_between_its_steps() -> None:
    context = context_for(host="/run/forks", database="rt_wsgi")
    closed: list[str] = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            for _ in range(2):
                yield where_sync().encode()

        def close(self) -> None:
            closed.append(where_sync())

    middleware = wsgi.RedteamMiddleware(lambda environ, start_response: Body())
    with armed(MINTER, "/run/forks"):
        body: Any = middleware({"HTTP_REDTEAM_CONTEXT": MINTER.mint(context)}, lambda *_: lambda _: None)
        for chunk in body:
            assert chunk == b"rt_wsgi"
            assert redteam.current_or_none() is None
        body.close()
    assert closed == ["rt_wsgi"]
