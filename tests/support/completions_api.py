"""A local server that speaks the OpenAI-compatible chat completions API over real HTTP; no model behind it.

It takes the same answers as `messages_api`, so what plays behind the one plays behind the other.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from support.messages_api import Answer

__all__ = ["CompletionsApi", "completions_api"]

_STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


@dataclass(slots=True)
class CompletionsApi:
    """A running server.

    Attributes:
        base_url: up to and with `/v1`.
        requests: the JSON of each request.
        answers: how many were given whole.
    """

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    answers: int = 0


@contextmanager
def completions_api(
    answer: Callable[[dict[str, Any]], Answer],
    *,
    streams: bool = True,
    between: Callable[[], None] | None = None,
) -> Iterator[CompletionsApi]:
    """Serve on a free port until the context is left.

    Args:
        answer: from a request to what is answered; `trouble` may be `cut-midway` or `error-midway`.
        streams: whether the server streams where it is asked to.
        between: is called before each piece of a stream.
    """
    api = CompletionsApi(base_url="")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                api.requests.append(request)
                given = answer(request)
            with suppress(BrokenPipeError, ConnectionResetError):
                if self.path != "/v1/chat/completions":
                    self._whole(404, {"error": {"message": "no such path"}})
                elif given.status != 200:
                    self._whole(given.status, {"error": {"message": given.message}})
                elif request.get("stream") and streams:
                    self._stream(given)
                else:
                    self._whole(200, _answer(given))
                    api.answers += 1

        def _whole(self, status: int, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, given: Answer) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            pieces = [f"data: {json.dumps(piece)}\n\n" for piece in _pieces(given)]
            if given.trouble == "error-midway":
                pieces[1:] = ['data: {"error": {"message": "overloaded"}}\n\n']
            elif given.trouble == "cut-midway":
                del pieces[1:]
            else:
                pieces.append("data: [DONE]\n\n")
            for piece in pieces:
                if between is not None:
                    between()
                data = piece.encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            if given.trouble is None:
                api.answers += 1

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        api.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield api
        finally:
            server.shutdown()
            serving.join()


def _told(given: Answer) -> dict[str, Any]:
    read = given.usage["cache_read_input_tokens"]
    return {
        "prompt_tokens": given.usage["input_tokens"] + read,
        "completion_tokens": given.usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": read},
    }


def _calls(given: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in given.content
        if block["type"] == "tool_use"
    ]


def _text(given: Answer) -> str:
    return "".join(block["text"] for block in given.content if block["type"] == "text")


def _answer(given: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": _text(given) or None, "tool_calls": _calls(given)}
    choice = {"index": 0, "message": message, "finish_reason": _STOPS[given.stop]}
    return {"id": "chat-local", "choices": [choice], "usage": _told(given)}


def _pieces(given: Answer) -> Iterator[dict[str, Any]]:
    """The answer in small pieces, as a model makes it: words, then calls whose arguments come bit by bit."""

    def piece(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "chat-local", "choices": [choice], "usage": None}

    yield piece({"role": "assistant", "content": ""})
    words = _text(given)
    for start in range(0, len(words), 5):
        yield piece({"content": words[start : start + 5]})
    for index, call in enumerate(_calls(given)):
        arguments = call["function"]["arguments"]
        head = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        yield piece({"tool_calls": [head]})
        for start in range(0, len(arguments), 4):
            part = {"index": index, "function": {"arguments": arguments[start : start + 4]}}
            yield piece({"tool_calls": [part]})
    yield piece({}, _STOPS[given.stop])
    yield {"id": "chat-local", "choices": [], "usage": _told(given)}
