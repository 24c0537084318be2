"""What the middlewares say for a service at /.well-known/redteam, and how a conversation ends there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import flask
import httpx2
import pytest
from support.processes import until
from support.sdk import Minter, armed, fork
from support.services import uvicorn_serving, wsgi_serving

from redteam_sdk import db
from redteam_sdk.context import HEADER
from redteam_sdk.middleware import asgi, requests, wsgi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

PATH = "/.well-known/redteam"
MINTER = Minter()


class Service:
    """An application behind either middleware. `late` lets go of what it does after its response."""

    def __init__(self) -> None:
        self.late = anyio.Event()
        self.late_saw: list[str] = []

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the application"})
        if scope["path"] == "/late":
            await self.late.wait()
            self.late_saw.append(await db.fetchval("SELECT current_database()"))


@contextlib.asynccontextmanager
async def serving(kind: str, service: Service) -> AsyncIterator[str]:
    if kind == "asgi":
        async with uvicorn_serving(asgi.RedteamMiddleware(service.app)) as url:
            yield url
        return
    app = flask.Flask("service")
    app.add_url_rule(PATH, view_func=lambda: "the application", methods=["GET", "DELETE", "POST"])
    app.wsgi_app = wsgi.RedteamMiddleware(app.wsgi_app)  # type: ignore[method-assign]
    served = wsgi_serving(app)
    url = await anyio.to_thread.run_sync(served.__enter__)
    try:
        yield url
    finally:
        await anyio.to_thread.run_sync(served.__exit__, None, None, None)


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
async def test_it_tells_bearers_of_a_token_what_the_tools_see_and_is_the_applications_without_one(
    server: Server, kind: str
) -> None:
    async with fork(server) as place, serving(kind, Service()) as url, httpx2.AsyncClient() as client:
        with armed(MINTER, place.host):
            token = {HEADER: MINTER.mint(place)}
            told = await client.get(url + PATH, headers=token)
            assert told.headers["cache-control"] == "no-store"
            facts = told.json()
            assert (facts["database"], facts["user"]) == (place.database, place.user)
            assert place.password not in told.text
            assert (await client.post(url + PATH, headers=token)).status_code == 405
            assert (await client.get(url + PATH)).text == "the application"
            forged = {HEADER: Minter().mint(place)}
            assert (await client.get(url + PATH, headers=forged)).status_code == 403
            await db.close_context(place)
        # Not armed: a token is refused there too, and nothing of ours answers.
        assert (await client.get(url + PATH, headers=token)).status_code == 403


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
async def test_after_the_end_the_forks_address_grants_nothing_any_more(server: Server, kind: str) -> None:
    async with fork(server) as place, serving(kind, Service()) as url, httpx2.AsyncClient() as client:
        with armed(MINTER, place.host):
            token = {HEADER: MINTER.mint(place)}
            assert (await client.get(url + PATH, headers=token)).status_code == 200
            assert (await client.delete(url + PATH, headers=token)).json() == {"running": 0}
            over = await client.get(url + PATH, headers=token)
            assert (over.status_code, over.json()) == (503, {"error": "NoContext"})


async def test_the_end_waits_for_what_a_request_left_behind(server: Server) -> None:
    service = Service()
    async with (
        fork(server) as place,
        serving("asgi", service) as url,
        httpx2.AsyncClient(timeout=30) as client,
    ):
        with armed(MINTER, place.host):
            token = {HEADER: MINTER.mint(place)}
            assert (await client.get(url + "/late", headers=token)).text == "the application"
            async with anyio.create_task_group() as tasks:
                ended: list[Any] = []

                async def end() -> None:
                    ended.append((await client.delete(url + PATH, headers=token)).json())

                tasks.start_soon(end)
                await until(lambda: bool(requests._flights._waiting))  # the end has come, and waits
                service.late.set()
    assert ended == [{"running": 0}]
    assert service.late_saw == [place.database]


async def test_a_fork_that_is_gone_is_told_without_its_address(server: Server) -> None:
    async with fork(server) as place:
        pass
    async with serving("asgi", Service()) as url, httpx2.AsyncClient() as client:
        with armed(MINTER, place.host):
            told = await client.get(url + PATH, headers={HEADER: MINTER.mint(place)})
    assert (told.status_code, told.json()) == (503, {"error": "EnvironmentFault"})
