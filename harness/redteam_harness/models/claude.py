"""Claude behind the `anthropic` client. The only module that knows that client; it imports it late.

Every answer is streamed, so that a silence is noticed: the API sends something at least every few seconds
while a model thinks. The client's own retries are off; `calls.ModelCalls` decides what is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import httpx2

from redteam_harness.models.chat import ModelFault, Reply, Usage
from redteam_harness.models.waits import retry_after_s

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import Message

    from redteam_harness.models.chat import FaultKind, Request

__all__ = ["Claude"]

_MAX_TOKENS = 4096
_CONNECT_S = 10.0
_EPHEMERAL = {"type": "ephemeral"}

# The API's words for what is wrong; they also come in the middle of a stream, where the status was 200.
_BY_TYPE: dict[str, FaultKind] = {
    "rate_limit_error": "rate_limited",
    "overloaded_error": "overloaded",
    "api_error": "server",
    "timeout_error": "server",
    "authentication_error": "bad_key",
    "permission_error": "bad_key",
    "billing_error": "bad_key",
    "not_found_error": "not_found",
    "request_too_large": "too_long",
    "invalid_request_error": "bad_request",
}
_BY_STATUS: dict[int, FaultKind] = {
    401: "bad_key",
    402: "bad_key",
    403: "bad_key",
    404: "not_found",
    408: "server",
    409: "server",
    413: "too_long",
    429: "rate_limited",
    529: "overloaded",
}
# The API has no type of its own for a prompt that does not fit.
_TOO_LONG = ("prompt is too long", "exceed context limit")
# What the client raises where an event of a stream is not what the API's schema says.
_GARBLED = (ValueError, KeyError, IndexError, AttributeError, TypeError, RuntimeError)


class Claude:
    """An `Endpoint`."""

    def __init__(self, name: str, client: anthropic.AsyncAnthropic) -> None:
        self.name = name
        self._client = client

    @staticmethod
    def client(key: str, base_url: str | None = None, *, stall_s: float) -> anthropic.AsyncAnthropic:
        """A client that many models share. The caller closes it.

        Args:
            key: the API key; it goes nowhere else.
            base_url: another server that speaks the Messages API.
            stall_s: how long a connection may be silent, in seconds.
        """
        import anthropic

        timeout = httpx2.Timeout(stall_s, connect=min(_CONNECT_S, stall_s), pool=None)
        return anthropic.AsyncAnthropic(api_key=key, base_url=base_url, timeout=timeout, max_retries=0)

    async def send(self, request: Request) -> Reply:
        """Try once; see `Endpoint`."""
        import anthropic

        message: Message | None = None
        over, request_id = False, None
        try:
            async with self._client.messages.stream(**self._arguments(request)) as stream:
                request_id = stream.request_id
                async for event in stream:
                    if message is not None or event.type == "message_start":
                        message = stream.current_message_snapshot
                    over = event.type == "message_stop"
        except anthropic.APIStatusError as error:
            raise self._refused(error, message) from error
        except (anthropic.APITimeoutError, httpx2.TimeoutException) as error:
            raise self._fault("stalled", "the API fell silent", request_id, message) from error
        except (anthropic.APIConnectionError, httpx2.TransportError) as error:
            if request_id is None and _never_connected(error):
                raise self._fault("unreachable", "the API could not be reached", None, None) from error
            raise self._fault("cut", "the connection was cut", request_id, message) from error
        except (anthropic.APIError, *_GARBLED) as error:
            raise self._fault(
                "malformed", "the API answered what is not of its protocol", request_id, message
            ) from error
        if message is None:
            raise self._fault(
                "malformed", "the API answered what is not of its protocol", request_id, message
            )
        if not over:
            raise self._fault("cut", "the answer ended in the middle", request_id, message)
        return Reply(
            content=[block.model_dump(mode="json", exclude_none=True) for block in message.content],
            stop=message.stop_reason or "unknown",
            usage=_usage(message),
            request=request_id,
            model=message.model,
        )

    def _arguments(self, request: Request) -> dict[str, Any]:
        import anthropic

        arguments: dict[str, Any] = {
            "model": self.name,
            "max_tokens": _MAX_TOKENS,
            "messages": list(request.messages),
            "system": request.system,
        }
        if request.tools:
            # A tool loop sends the same beginning many times, and every conversation the same tools and
            # prompt: one mark behind those, one behind the last message. An actor's line is asked for once.
            arguments["tools"] = list(request.tools)
            arguments["cache_control"] = _EPHEMERAL
            if request.system:
                arguments["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
        if request.shape is not None:
            schema = anthropic.transform_schema(request.shape)
            arguments["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return arguments

    def _refused(self, error: anthropic.APIStatusError, message: Message | None) -> ModelFault:
        status = error.status_code
        kind = _BY_TYPE.get(error.type or "") or _BY_STATUS.get(status)
        if kind is None:
            kind = "server" if status >= 500 else "bad_request"
        said = error.api_message or ""
        if kind == "bad_request" and any(words in said for words in _TOO_LONG):
            kind = "too_long"
        return ModelFault(
            f"model {self.name}: the API answered {status} ({error.type or 'no reason given'}), "
            f"request {error.request_id or 'unknown'}",
            kind=kind,
            status=status,
            request=error.request_id,
            retry_after_s=retry_after_s(error.response.headers),
            usage=_usage(message) if message else None,
        )

    def _fault(self, kind: FaultKind, what: str, request: str | None, message: Message | None) -> ModelFault:
        return ModelFault(
            f"model {self.name}: {what}, request {request or 'unknown'}",
            kind=kind,
            request=request,
            usage=_usage(message) if message else None,
        )


def _never_connected(error: BaseException) -> bool:
    cause = error if isinstance(error, httpx2.TransportError) else error.__cause__
    return isinstance(cause, httpx2.ConnectError)


def _usage(message: Message) -> Usage:
    """What the message says of itself; a garbled one may say nothing."""
    usage = cast("Any", getattr(message, "usage", None))
    return Usage(
        input=getattr(usage, "input_tokens", None) or 0,
        cache_write=getattr(usage, "cache_creation_input_tokens", None) or 0,
        cache_read=getattr(usage, "cache_read_input_tokens", None) or 0,
        output=getattr(usage, "output_tokens", None) or 0,
    )
