"""A local server that speaks the Messages API: real HTTP for the real client, no model behind it.

A test gives it a function from a request's JSON to an `Answer`. It serves from a thread, so that the client
under test has the event loop to itself.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Answer", "MessagesApi", "messages_api", "text", "tool_use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server answers: content blocks, or an error status."""

    content: Sequence[Mapping[str, Any]] = ()
    stop: str = "end_turn"
    status: int = 200
    error: str = "api_error"
    headers: Mapping[str, str] = field(default_factory=dict)


def text(words: str) -> Answer:
    """An answer of one text block."""
    return Answer(content=[{"type": "text", "text": words}])


def tool_use(name: str, arguments: Mapping[str, Any], *, call: str = "toolu_01") -> Answer:
    """An answer that asks for one tool."""
    block = {"type": "tool_use", "id": call, "name": name, "input": dict(arguments)}
    return Answer(content=[block], stop="tool_use")


@dataclass(slots=True)
class MessagesApi:
    """A running server: where it listens, and every request that it got."""

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def messages_api(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[MessagesApi]:
    """Serve on a free port until the context is left."""
    api = MessagesApi(base_url="")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            api.requests.append(request)
            self._send(answer(request), request)

        def _send(self, given: Answer, request: Mapping[str, Any]) -> None:
            body = _message(given, request) if given.status == 200 else _error(given)
            data = json.dumps(body).encode()
            self.send_response(given.status)
            headers = {"content-type": "application/json", "request-id": "req_local", **given.headers}
            for name, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        api.base_url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield api
        finally:
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
        "usage": {"input_tokens": 11, "output_tokens": 7, "cache_read_input_tokens": 3},
    }


def _error(given: Answer) -> dict[str, Any]:
    return {"type": "error", "error": {"type": given.error, "message": "local"}, "request_id": "req_local"}
