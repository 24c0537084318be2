"""The collector: where services that the harness did not start report what they do, while a launch runs.

`POST /v1/events` takes the SDK's reports, known by the conversation's own token. `POST /v1/traces` takes
OpenTelemetry spans over HTTP, as protobuf or JSON, known by the trace ids that our requests began.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import structlog
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from redteam_harness.agents.inbox import Inbox, Refused
from redteam_harness.agents.listening import CollectorAddress, listening
from redteam_harness.agents.spans import Unreadable, parse_json, parse_protobuf
from redteam_sdk.reporting import EVENTS_PATH, REPORT_VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from redteam_harness.agents.agent import EventSink

__all__ = ["TRACES_PATH", "Collector", "open_collector"]

TRACES_PATH = "/v1/traces"
_MAX_BODY_BYTES = 20 * 2**20
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_STOP_S = 2

_log = structlog.get_logger()


class Collector:
    """The inboxes of the conversations that are open now.

    Args:
        url: the origin under which services reach it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        # By the digest of the token: what is compared with a stranger's bytes is not the secret itself.
        self._inboxes: dict[bytes, Inbox] = {}
        self.app = Starlette(
            routes=[
                Route(EVENTS_PATH, self._events, methods=["POST"]),
                Route(TRACES_PATH, self._traces, methods=["POST"]),
            ]
        )

    @contextlib.contextmanager
    def receiving(self, conversation: str, token: str, sink: EventSink, *, merge: bool) -> Iterator[Inbox]:
        """Take a conversation's reports for the length of the block; see `Inbox`."""
        inbox = Inbox(conversation, sink, merge=merge)
        self._inboxes[_digest(token)] = inbox
        try:
            yield inbox
        finally:
            del self._inboxes[_digest(token)]

    async def _events(self, request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        inbox = self._inboxes.get(_digest(token)) if scheme.lower() == "bearer" else None
        try:
            if inbox is None:
                raise Refused(401, "the token is that of no open conversation")
            report = _report(await _body(request))
            inbox.report(report)
        except Refused as refused:
            name = inbox.conversation if inbox is not None else None
            _log.warning("report_refused", conversation=name, status=refused.status, reason=str(refused))
            return Response(status_code=refused.status)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(status_code=204)

    async def _traces(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if kind not in (_PROTOBUF, _JSON):
                raise Refused(415, f"spans come as {_PROTOBUF} or {_JSON}")
            body = await _body(request)
            spans = parse_protobuf(body) if kind == _PROTOBUF else parse_json(body)
        except (Refused, Unreadable) as refused:
            status = refused.status if isinstance(refused, Refused) else 400
            _log.warning("spans_refused", status=status, reason=str(refused))
            return Response(status_code=status)
        except ClientDisconnect:
            return Response(status_code=400)
        inboxes = {trace: inbox for inbox in self._inboxes.values() for trace in inbox.traces}
        strange = 0
        for span in spans:
            if span.trace in inboxes:
                inboxes[span.trace].add(span)
            else:
                strange += 1
        if strange:
            _log.info("spans_of_no_open_conversation", count=strange)
        return _exported(kind, strange)


@asynccontextmanager
async def open_collector(address: CollectorAddress) -> AsyncIterator[Collector]:
    """Run the collector for the length of the block.

    Raises:
        UsageError: the address cannot be listened on.
    """
    with listening(address) as listener:
        port = listener.getsockname()[1]
        host = f"[{address.host}]" if ":" in address.host else address.host
        collector = Collector(address.url or f"http://{host}:{port}")
        config = uvicorn.Config(
            collector.app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_STOP_S,
        )
        server = _Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await anyio.sleep(0.005)
            try:
                yield collector
            finally:
                server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn without hands on the signals: Ctrl-C is the launch's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _body(request: Request) -> bytes:
    """A request's body, unpacked; what is too long is refused before it is held."""
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip", "deflate"):
        raise Refused(415, "the body is packed in another way than gzip or deflate")
    unpack = zlib.decompressobj(wbits=47) if packed != "identity" else None  # 47: either, by its head
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        try:
            plain = unpack.decompress(part, _MAX_BODY_BYTES + 1 - size) if unpack else part
        except zlib.error:
            raise Refused(400, "the body cannot be unpacked") from None
        size += len(plain)
        if size > _MAX_BODY_BYTES or (unpack is not None and unpack.unconsumed_tail):
            raise Refused(413, f"the body is longer than {_MAX_BODY_BYTES} bytes")
        parts.append(plain)
    return b"".join(parts)


def _report(body: bytes) -> dict[str, Any]:
    try:
        report = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the report is no JSON") from None
    if not isinstance(report, dict) or report.get("version") != REPORT_VERSION:
        raise Refused(400, f"the report is not of version {REPORT_VERSION}; update redteam-sdk")
    return report


def _exported(kind: str, strange: int) -> Response:
    """What an exporter is told: that all is well, and how many spans nobody wanted."""
    if kind == _JSON:
        partial = {"partialSuccess": {"rejectedSpans": strange}} if strange else {}
        return Response(json.dumps(partial), media_type=_JSON)
    message = ExportTraceServiceResponse()
    if strange:
        message.partial_success.CopyFrom(ExportTracePartialSuccess(rejected_spans=strange))
    return Response(message.SerializeToString(), media_type=_PROTOBUF)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
