"""A model behind an OpenAI-compatible endpoint (chat completions), as local servers have one.

Messages and tools go out translated and come back in the form of the Messages API, so that who talks to a
model need not know which kind it is.
"""

from __future__ import annotations

import json
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
    """An `Endpoint`. Answers are not streamed; a silence is noticed all the same."""

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
            stall_s: how long a connection may be silent, in seconds; for most servers, a whole answer.
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
            response = await self._client.post("chat/completions", json=self._body(request))
        except httpx2.TimeoutException as error:
            raise self._fault("stalled", "the API fell silent") from error
        except httpx2.ConnectError as error:
            raise self._fault("unreachable", "the API could not be reached") from error
        except httpx2.TransportError as error:
            raise self._fault("cut", "the connection was cut") from error
        request_id = response.headers.get("x-request-id")
        status = response.status_code
        if status != _OK:
            kind = _BY_STATUS.get(status, "server" if status >= _SERVER else "bad_request")
            if kind == "bad_request" and "context_length_exceeded" in response.text:
                kind = "too_long"
            raise ModelFault(
                f"model {self.name}: the API answered {status}, request {request_id or 'unknown'}",
                kind=kind,
                status=status,
                request=request_id,
                retry_after_s=retry_after_s(response.headers),
            )
        try:
            return self._reply(response.json(), request_id)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._fault("malformed", "the API answered what is not of its protocol") from error

    def _body(self, request: Request) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        for message in request.messages:
            messages += _message(message)
        body: dict[str, Any] = {"model": self._model, "messages": messages, "max_tokens": _MAX_TOKENS}
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
        message, usage = choice["message"], answer.get("usage") or {}
        content: list[dict[str, Any]] = []
        if message.get("content"):
            content.append({"type": "text", "text": str(message["content"])})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = json.loads(function["arguments"] or "{}")
            content.append(
                {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}
            )
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Reply(
            content=content,
            stop=_STOPS.get(choice["finish_reason"], str(choice["finish_reason"])),
            usage=Usage(
                input=(usage.get("prompt_tokens") or 0) - cached,
                cache_read=cached,
                output=usage.get("completion_tokens") or 0,
            ),
            request=request_id or answer.get("id"),
            model=self.name,
        )

    def _fault(self, kind: FaultKind, what: str) -> ModelFault:
        return ModelFault(f"model {self.name}: {what}", kind=kind)


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
