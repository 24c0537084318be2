"""A model behind an OpenAI-compatible endpoint (chat completions), as local servers have one.

Messages and tools go out translated and come back in the form of the Messages API, so that who talks to a
model need not know which kind it is. An answer is asked for as a stream, so that a local model may take
minutes for it as long as it goes on; a server that does not stream is read all the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from redteam_harness.models.chat import ModelFault, Reply, Usage
from redteam_harness.models.waits import retry_after_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redteam_harness.models.chat import FaultKind, Request

__all__ = ["PREFIX", "OpenAICompatible"]

PREFIX = "openai:"
"""What a model's id begins with in a suite to be called here."""

_MAX_TOKENS = 4096
_CONNECT_S = 10.0
_OK, _SERVER = 200, 500
_BY_STATUS: dict[int, FaultKind] = {
    401: "bad_key",
    403: "bad_key",
    404: "not_found",
    408: "server",
    413: "too_long",
    429: "rate_limited",
    503: "overloaded",
}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class OpenAICompatible:
    """An `Endpoint`."""

    def __init__(self, name: str, client: httpx2.AsyncClient) -> None:
        """A model, as a suite names it.

        Args:
            name: with `PREFIX`.
            client: see `client`.
        """
        self.name = name
        self._model = name.removeprefix(PREFIX)
        self._client = client

    @staticmethod
    def client(base_url: str, key: str | None, *, stall_s: float) -> httpx2.AsyncClient:
        """A client that many models share. The caller closes it.

        Args:
            base_url: up to and with `/v1`.
            key: the API key, or None.
            stall_s: how long a connection may be silent, in seconds; a server that does not stream is silent
                until its answer is whole.
        """
        return httpx2.AsyncClient(
            base_url=base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(stall_s, connect=min(_CONNECT_S, stall_s), pool=None),
            trust_env=False,
        )

    async def send(self, request: Request) -> Reply:
        """Try once; see `Endpoint`."""
        try:
            async with self._client.stream("POST", "chat/completions", json=self._body(request)) as response:
                return await self._read(response)
        except httpx2.TimeoutException as error:
            raise self._fault("stalled", "the API fell silent") from error
        except httpx2.ConnectError as error:
            raise self._fault("unreachable", "the API could not be reached") from error
        except httpx2.TransportError as error:
            raise self._fault("cut", "the connection was cut") from error

    async def _read(self, response: httpx2.Response) -> Reply:
        request_id = response.headers.get("x-request-id")
        if response.status_code != _OK:
            await response.aread()
            raise self._refused(response, request_id)
        try:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                return self._reply(json.loads(await response.aread()), request_id)
            return self._reply(await self._streamed(response), request_id)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._fault("malformed", "the API answered what is not of its protocol") from error

    async def _streamed(self, response: httpx2.Response) -> Mapping[str, Any]:
        """The whole answer that a stream's pieces add up to."""
        answer = _Pieces()
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data == "[DONE]":
                break
            if not data:
                continue
            piece = json.loads(data)
            if piece.get("error"):
                raise ModelFault(
                    f"model {self.name}: the API broke off its answer with an error",
                    kind="server",
                    usage=_usage(answer.usage) if answer.usage else None,
                )
            answer.add(piece)
        if answer.finish is None:
            raise self._fault("cut", "the answer ended before it was whole")
        return answer.whole()

    def _refused(self, response: httpx2.Response, request_id: str | None) -> ModelFault:
        status = response.status_code
        kind = _BY_STATUS.get(status, "server" if status >= _SERVER else "bad_request")
        if kind == "bad_request" and "context_length_exceeded" in response.text:
            kind = "too_long"
        return ModelFault(
            f"model {self.name}: the API answered {status}, request {request_id or 'unknown'}",
            kind=kind,
            status=status,
            request=request_id,
            retry_after_s=retry_after_s(response.headers),
        )

    def _body(self, request: Request) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        for message in request.messages:
            messages += _message(message)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": _MAX_TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool["name"],
                        "description": tool.get("description", ""),
                        "parameters": tool["input_schema"],
                    },
                }
                for tool in request.tools
            ]
        if request.shape is not None:
            schema = {"name": request.shape.__name__.strip("_"), "schema": request.shape.model_json_schema()}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _reply(self, answer: Mapping[str, Any], request_id: str | None) -> Reply:
        choice = answer["choices"][0]
        message = choice["message"]
        content: list[dict[str, Any]] = []
        if message.get("content"):
            content.append({"type": "text", "text": str(message["content"])})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = json.loads(function["arguments"] or "{}")
            content.append(
                {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
            )
        return Reply(
            content=content,
            stop=_STOPS.get(choice["finish_reason"], str(choice["finish_reason"])),
            usage=_usage(answer.get("usage") or {}),
            request=request_id or answer.get("id"),
            model=self.name,
        )

    def _fault(self, kind: FaultKind, what: str) -> ModelFault:
        return ModelFault(f"model {self.name}: {what}", kind=kind)


@dataclass(slots=True)
class _Pieces:
    """What a stream has told so far."""

    id: str | None = None
    text: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish: str | None = None
    usage: Mapping[str, Any] | None = None

    def add(self, piece: Mapping[str, Any]) -> None:
        """Take up one more. The last, which tells the usage, has no choice in it."""
        self.id = piece.get("id") or self.id
        self.usage = piece.get("usage") or self.usage
        for choice in piece.get("choices") or ():
            delta = choice.get("delta") or {}
            self.text += delta.get("content") or ""
            for part in delta.get("tool_calls") or ():
                call = self.calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                function = part.get("function") or {}
                call["id"] = part.get("id") or call["id"]
                call["name"] = function.get("name") or call["name"]
                call["arguments"] += function.get("arguments") or ""
            self.finish = choice.get("finish_reason") or self.finish

    def whole(self) -> Mapping[str, Any]:
        """The answer as a server that does not stream gives it."""
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": call["arguments"]}}
            for _, call in sorted(self.calls.items())
        ]
        message = {"content": self.text, "tool_calls": calls}
        choice = {"message": message, "finish_reason": self.finish}
        return {"id": self.id, "choices": [choice], "usage": self.usage}


def _usage(told: Mapping[str, Any]) -> Usage:
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(
        input=(told.get("prompt_tokens") or 0) - cached,
        cache_read=cached,
        output=told.get("completion_tokens") or 0,
    )


def _message(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One message of the Messages API as one or, with results of tools, several of theirs."""
    content, role = message["content"], message["role"]
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    text = "".join(block["text"] for block in content if block["type"] == "text")
    for block in content:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in content
        if block["type"] == "tool_use"
    ]
    if text or calls:
        yield {"role": role, "content": text or None, **({"tool_calls": calls} if calls else {})}
