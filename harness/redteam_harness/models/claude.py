"""Claude behind the `anthropic` client. The only module that knows that client; it imports it late."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from redteam_harness.models.chat import ModelFault, Reply, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import anthropic

__all__ = ["Claude"]

Shape = TypeVar("Shape", bound=BaseModel)

_MAX_TOKENS = 4096
_TIMEOUT_S = 120.0
_RETRIES = 4


class Claude:
    """A `ChatModel`. The client retries 408, 409, 429 and 5xx itself, honouring `retry-after`."""

    def __init__(self, name: str, client: anthropic.AsyncAnthropic) -> None:
        self.name = name
        self._client = client

    @staticmethod
    def client(key: str, base_url: str | None = None) -> anthropic.AsyncAnthropic:
        """A client that many models share. The caller closes it.

        Args:
            key: the API key; it goes nowhere else.
            base_url: another server that speaks the Messages API.
        """
        import anthropic

        return anthropic.AsyncAnthropic(
            api_key=key, base_url=base_url, timeout=_TIMEOUT_S, max_retries=_RETRIES
        )

    async def reply(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Reply:
        """The next assistant message; see `ChatModel`."""
        with self._faults():
            message = await self._client.messages.create(
                model=self.name,
                max_tokens=_MAX_TOKENS,
                system=system,
                messages=cast("Any", list(messages)),
                tools=cast("Any", list(tools)),
                cache_control={"type": "ephemeral"},
            )
        usage = message.usage
        return Reply(
            content=[block.model_dump(mode="json", exclude_none=True) for block in message.content],
            stop=message.stop_reason or "unknown",
            usage=Usage(
                input=usage.input_tokens,
                output=usage.output_tokens,
                cached=usage.cache_read_input_tokens or 0,
            ),
            request=message._request_id,  # noqa: SLF001 - the client documents it as public in spite of its name
        )

    async def parsed(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], shape: type[Shape]
    ) -> Shape:
        """The next assistant message in a given shape; see `ChatModel`."""
        with self._faults():
            message = await self._client.messages.parse(
                model=self.name,
                max_tokens=_MAX_TOKENS,
                system=system,
                messages=cast("Any", list(messages)),
                output_format=shape,
            )
        if message.parsed_output is None:
            raise ModelFault(
                f"model {self.name} gave no answer of the asked shape (stop: {message.stop_reason})"
            )
        return message.parsed_output

    @contextmanager
    def _faults(self) -> Iterator[None]:
        import anthropic

        try:
            yield
        except anthropic.APIStatusError as error:
            retryable = error.status_code in (408, 409, 429) or error.status_code >= 500
            raise ModelFault(
                f"model {self.name}: the API answered {error.status_code} "
                f"({_reason(error)}), request {error.request_id or 'unknown'}",
                retryable=retryable,
            ) from error
        except anthropic.APIConnectionError as error:
            raise ModelFault(f"model {self.name}: the API could not be reached", retryable=True) from error
        except ValidationError as error:
            raise ModelFault(f"model {self.name} answered in another shape than asked for") from error


def _reason(error: anthropic.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        return str(body["error"].get("type", "no reason given"))
    return "no reason given"
