"""The collector as services meet it: over HTTP, from the SDK's reporter, and from strangers."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import flask
import httpx2
import pytest
from support.sdk import Minter, armed, context_for
from support.services import uvicorn_serving, wsgi_serving

from redteam_harness.agents.collector import open_collector
from redteam_harness.agents.listening import CollectorAddress
from redteam_sdk import record, tool
from redteam_sdk.context import HEADER, Trust, bind
from redteam_sdk.errors import UsageError
from redteam_sdk.middleware import asgi, wsgi
from redteam_sdk.reporting import REQUEST_HEADER, Reporter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_harness.agents.collector import Collector
    from redteam_sdk.claims import Context

MINTER = Minter()
HOST = "/nowhere"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with open_collector(CollectorAddress()) as opened:
        yield opened


@pytest.fixture
def service() -> Any:
    """This process as a service that trusts the launch's key, and collectors on this machine."""
    with armed(MINTER, HOST):
        from redteam_sdk import context

        trust = {**MINTER.trust(HOST).to_json(), "collectors": ["http://127.0.0.1"]}
        context.arm(Trust.from_json(trust))
        yield


def token_for(collector: Collector) -> str:
    return MINTER.mint(context_for(host=HOST, collector=collector.url))


def bound_context(token: str) -> Context:
    with bind(token) as context:
        return context


@tool
async def lookup(day: str) -> str:
    """A tool that needs no database."""
    return f"free on {day}"


async def post(collector: Collector, path: str, content: bytes, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as client:
        return await client.post(collector.url + path, content=content, headers=headers)


async def test_a_reporters_events_arrive_in_order_and_once(collector: Collector, service: None) -> None:
    token, seen = token_for(collector), list[dict[str, Any]]()
    with collector.receiving("c001", token, seen.append, merge=False) as inbox:
        reporter = Reporter(bound_context(token))
        with record.recording(reporter):
            for number in range(500):
                record.emit("external", name=f"e{number}", arguments={"long": "x" * 4000})
        delivered = await anyio.to_thread.run_sync(reporter.replied().result)
        reporter.close()
        assert inbox.has_replied(reporter.request)
    assert delivered
    assert [event["name"] for event in seen] == [f"e{number}" for number in range(500)]


async def test_the_forks_secret_is_struck_out_of_what_is_reported(
    collector: Collector, service: None
) -> None:
    context = context_for(host=HOST, collector=collector.url, password='sec"ret/of the fork')
    token, seen = MINTER.mint(context), list[dict[str, Any]]()
    with collector.receiving("c001", token, seen.append, merge=False):
        reporter = Reporter(bound_context(token))
        shown = {"plain": context.password, "dsn": context.dsn()}
        reporter.emit({"kind": "external", "at": "t", "name": "n", "arguments": shown})
        assert await anyio.to_thread.run_sync(reporter.replied().result)
        reporter.close()
    assert seen[0]["arguments"]["plain"] == "[secret]"
    assert "[secret]@" in seen[0]["arguments"]["dsn"]


async def test_a_reporter_whose_conversation_is_over_loses_its_events_and_says_so(
    collector: Collector, service: None, caplog: pytest.LogCaptureFixture
) -> None:
    token = token_for(collector)
    reporter = Reporter(bound_context(token))
    reporter.emit({"kind": "external", "at": "t", "name": "n", "arguments": {}})
    assert not await anyio.to_thread.run_sync(reporter.replied().result)
    reporter.close()
    assert "status 401" in caplog.text
    assert token not in caplog.text


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
async def test_the_reply_ends_only_once_its_events_are_there(
    collector: Collector, service: None, kind: str
) -> None:
    token, seen = token_for(collector), list[dict[str, Any]]()
    with collector.receiving("c001", token, seen.append, merge=False) as inbox:
        serving = served_asgi() if kind == "asgi" else served_wsgi()
        async with serving as url, httpx2.AsyncClient() as client:
            for number in range(10):
                response = await client.get(f"{url}/?day={number}", headers={HEADER: token})
                assert response.text == f"free on {number}!"
                # Both were taken before the last byte of the response was sent.
                assert inbox.has_replied(response.headers[REQUEST_HEADER])
                assert [event["kind"] for event in seen[-2:]] == ["tool_call", "tool_result"]
                assert seen[-1]["value"] == f"free on {number}"
            plain = await client.get(f"{url}/?day=1")
    assert REQUEST_HEADER not in plain.headers
    assert len(seen) == 20
    assert len({event["call"] for event in seen}) == 10


def served_asgi() -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
            return
        answer = await lookup(scope["query_string"].decode().partition("=")[2])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"!"})

    return uvicorn_serving(asgi.RedteamMiddleware(app))


class served_wsgi:  # noqa: N801 - used as the function above is
    def __init__(self) -> None:
        app = flask.Flask("service")

        @tool
        def lookup(day: str) -> str:
            return f"free on {day}"

        @app.get("/")
        def answer() -> Any:
            day = flask.request.args["day"]

            def parts() -> Any:
                yield lookup(day)
                yield "!"

            return flask.Response(flask.stream_with_context(parts()))

        app.wsgi_app = wsgi.RedteamMiddleware(app.wsgi_app)  # type: ignore[method-assign]
        self._serving = wsgi_serving(app)

    async def __aenter__(self) -> str:
        return self._serving.__enter__()

    async def __aexit__(self, *rest: object) -> None:
        await anyio.to_thread.run_sync(self._serving.__exit__, None, None, None)


REPORT = {"version": 1, "request": "r", "first": 0, "replied": True, "events": []}


async def test_only_the_tokens_of_open_conversations_may_report(collector: Collector) -> None:
    mine, other = token_for(collector), Minter().mint(context_for(host=HOST, collector=collector.url))
    content = json.dumps(REPORT).encode()

    async def status(authorization: str) -> int:
        return (await post(collector, "/v1/events", content, Authorization=authorization)).status_code

    assert await status(f"Bearer {mine}") == 401  # not open yet
    with collector.receiving("c001", mine, lambda event: None, merge=False) as inbox:
        for wrong in (f"Bearer {other}", f"Bearer {mine[:-1]}", f"Basic {mine}", mine):
            assert await status(wrong) == 401
        assert not inbox.has_replied("r")
        assert await status(f"Bearer {mine}") == 204
        assert inbox.has_replied("r")
    assert await status(f"Bearer {mine}") == 401  # closed


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"no JSON", 400),
        (b"[]", 400),
        (json.dumps({**REPORT, "version": 2}).encode(), 400),
        (json.dumps({**REPORT, "first": -1}).encode(), 400),
        (json.dumps({**REPORT, "first": True}).encode(), 400),
        (json.dumps({**REPORT, "first": 1}).encode(), 409),
        (b" " * (20 * 2**20 + 1), 413),
    ],
    ids=["no-json", "list", "version", "negative", "bool", "gap", "too-long"],
)
async def test_reports_that_cannot_be_taken_are_refused(
    collector: Collector, content: bytes, status: int
) -> None:
    token = token_for(collector)
    with collector.receiving("c001", token, lambda event: None, merge=False):
        answer = await post(collector, "/v1/events", content, Authorization=f"Bearer {token}")
    assert (answer.status_code, answer.content) == (status, b"")


def exported(trace: str) -> bytes:
    span = {"traceId": trace, "spanId": "b7ad6b7169203331", "name": "x"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


async def test_spans_of_strangers_are_counted_and_not_taken(collector: Collector) -> None:
    with collector.receiving("c001", token_for(collector), lambda event: None, merge=False) as inbox:
        ours, _ = inbox.begin(1)
        kind = {"Content-Type": "application/json"}
        for trace, said in ((ours, {}), ("ab" * 16, {"partialSuccess": {"rejectedSpans": 1}})):
            answer = await post(collector, "/v1/traces", exported(trace), **kind)
            assert (answer.status_code, answer.json()) == (200, said)


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (exported("ab" * 16), {"Content-Type": "text/plain"}, 415),
        (b"{", {"Content-Type": "application/json"}, 400),
        (b"\xff", {"Content-Type": "application/x-protobuf"}, 400),
        (b"x", {"Content-Type": "application/json", "Content-Encoding": "br"}, 415),
        (b"x", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 400),
        # A small body that unpacks to far more than is taken.
        (gzip.compress(b" " * 2**26), {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 413),
        (
            gzip.compress(exported("ab" * 16)),
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            200,
        ),
        (
            zlib.compress(exported("ab" * 16)),
            {"Content-Type": "application/json; charset=utf-8", "Content-Encoding": "deflate"},
            200,
        ),
    ],
    ids=["type", "json", "protobuf", "encoding", "no-gzip", "bomb", "gzip", "deflate"],
)
async def test_spans_come_as_otlp_says_or_are_refused(
    collector: Collector, content: bytes, headers: dict[str, str], status: int
) -> None:
    assert (await post(collector, "/v1/traces", content, **headers)).status_code == status


async def test_an_address_that_is_taken_is_told(collector: Collector) -> None:
    port = int(collector.url.rpartition(":")[2])
    with pytest.raises(BaseException) as found:  # noqa: PT011 - looked at below
        async with open_collector(CollectorAddress(port=port)):
            pass
    assert isinstance(found.value, UsageError)
    assert f"127.0.0.1:{port}" in str(found.value)
