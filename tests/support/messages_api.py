"""A local server that speaks the Messages API: real HTTP for the real client, no model behind it.

A test gives it a function from a request's JSON to an `Answer`, which may be any of the ways in which the API
goes wrong. It streams where it is asked to, and serves from threads, so that the client under test has the
event loop to itself. What it told of usage is kept, to be compared with what was booked.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Answer", "MessagesApi", "Trouble", "messages_api", "text", "tool_use", "tool_uses"]

Trouble = Literal["cut", "cut-midway", "hang", "hang-midway", "malformed", "not-json", "error-midway"]
"""What happens instead of an answer, or in the middle of one."""

USAGE = {
    "input_tokens": 11,
    "output_tokens": 7,
    "cache_read_input_tokens": 3,
    "cache_creation_input_tokens": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server answers: content blocks, an error status, or trouble."""

    content: Sequence[Mapping[str, Any]] = ()
    stop: str = "end_turn"
    status: int = 200
    error: str = "api_error"
    message: str = "local"
    headers: Mapping[str, str] = field(default_factory=dict)
    trouble: Trouble | None = None
    usage: Mapping[str, int] = field(default_factory=lambda: USAGE)

    def but(self, trouble: Trouble) -> Answer:
        """The same answer, with trouble."""
        return replace(self, trouble=trouble)


def text(words: str) -> Answer:
    """An answer of one text block."""
    return Answer(content=[{"type": "text", "text": words}])


def tool_use(name: str, arguments: Mapping[str, Any], *, call: str = "toolu_01") -> Answer:
    """An answer that asks for one tool."""
    return tool_uses((call, name, arguments))


def tool_uses(*calls: tuple[str, str, Mapping[str, Any]]) -> Answer:
    """An answer that asks for several tools: id, name and arguments of each."""
    content = [
        {"type": "tool_use", "id": call, "name": name, "input": dict(arguments)}
        for call, name, arguments in calls
    ]
    return Answer(content=content, stop="tool_use")


@dataclass(slots=True)
class MessagesApi:
    """A running server: where it listens, every request that it got, and all usage that it told.

    Attributes:
        requests: the JSON of each request.
        told: usage of each answer that was begun, with the model's id; of a broken one, what had been told.
        out: how many requests were being answered at once, at most.
    """

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[str, Mapping[str, int]]] = field(default_factory=list)
    out: int = 0

    def tokens(self, model: str) -> dict[str, int]:
        """Sums of what was told of a model."""
        mine = [usage for told, usage in self.told if told == model]
        return {name: sum(usage[name] for usage in mine) for name in USAGE}


@contextmanager
def messages_api(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[MessagesApi]:
    """Serve on a free port until the context is left."""
    api = MessagesApi(base_url="")
    lock, closing, running = threading.Lock(), threading.Event(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client that was killed, or hung up
                super().handle()

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            body = self.rfile.read(size)
            if len(body) < size:
                return
            request = json.loads(body)
            with lock:
                running[0] += 1
                api.out = max(api.out, running[0])
                api.requests.append(request)
                given = answer(request)
            with suppress(BrokenPipeError, ConnectionResetError):
                self._send(given, request)
            with lock:
                running[0] -= 1

        def _send(self, given: Answer, request: Mapping[str, Any]) -> None:
            if given.trouble == "cut":
                self._cut()
            elif given.trouble == "hang":
                closing.wait()
                self._cut()
            elif given.trouble == "not-json":
                self._whole(200, b"<html>It works!</html>", {"content-type": "text/html"})
            elif given.status != 200:
                self._whole(given.status, json.dumps(_error(given)).encode(), given.headers)
            elif request.get("stream"):
                self._stream(given, request)
            else:
                with lock:
                    api.told.append((request["model"], given.usage))
                self._whole(200, json.dumps(_message(given, request)).encode(), given.headers)

        def _whole(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            shown = {"content-type": "application/json", "request-id": "req_local", **headers}
            for name, value in {**shown, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, given: Answer, request: Mapping[str, Any]) -> None:
            self.send_response(200)
            for name, value in {
                "content-type": "text/event-stream",
                "request-id": "req_local",
                "transfer-encoding": "chunked",
                **given.headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            events = _events(given, request)
            begun = {**given.usage, "output_tokens": 1}
            with lock:
                api.told.append((request["model"], begun if given.trouble else given.usage))
            if given.trouble is None:
                for event in events:
                    self._chunk(_sse(event))
                self._chunk(b"")
                return
            self._chunk(_sse(events[0]))
            match given.trouble:
                case "hang-midway":
                    closing.wait()
                case "malformed":
                    self._chunk(b'event: content_block_delta\ndata: {"type": "content_bl\n\n')
                    self._chunk(b"")
                    return
                case "error-midway":
                    self._chunk(_sse({**_error(given), "type": "error"}))
                    self._chunk(b"")
                    return
            self._cut()

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def _cut(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        api.base_url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield api
        finally:
            closing.set()
            server.shutdown()
            serving.join()


def _message(given: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_local",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": list(given.content),
        "stop_reason": given.stop,
        "stop_sequence": None,
        "usage": dict(given.usage),
    }


def _events(given: Answer, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    empty = {**_message(given, request), "content": [], "stop_reason": None}
    empty["usage"] = {**given.usage, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}, {"type": "ping"}]
    for index, block in enumerate(given.content):
        if block["type"] == "tool_use":
            start: dict[str, Any] = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        events += [
            {"type": "content_block_start", "index": index, "content_block": start},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": given.stop, "stop_sequence": None}
    usage = {"output_tokens": given.usage["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]


def _sse(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _error(given: Answer) -> dict[str, Any]:
    error = {"type": given.error, "message": given.message}
    return {"type": "error", "error": error, "request_id": "req_local"}
