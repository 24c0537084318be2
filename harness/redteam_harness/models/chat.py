"""What the harness needs of a chat model, and what an API behind it must do.

`ChatModel` is what agents, actors and judges hold. `Endpoint` is one API: it makes one try of one call and
tells what went wrong by kind. Between them stands `calls.ModelCalls`, which decides when a call may go out
and whether it is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NOTHING", "ChatModel", "Endpoint", "FaultKind", "ModelFault", "Reply", "Request", "Role", "Usage"]

Shape = TypeVar("Shape", bound=BaseModel)

Role = Literal["agent", "actor", "judge"]
"""Whose call it is; usage is told by role."""

FaultKind = Literal[
    "rate_limited",
    "overloaded",
    "server",
    "unreachable",
    "cut",
    "stalled",
    "malformed",
    "shape",
    "bad_request",
    "too_long",
    "bad_key",
    "not_found",
    "refusal",
    "max_tokens",
    "empty",
    "deadline",
    "budget",
]
"""What went wrong; docs/models.md says of each what is done about it."""

_PASSING = frozenset(
    {"rate_limited", "overloaded", "server", "unreachable", "cut", "stalled", "malformed", "shape"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the API counted them. The four are apart: no token is in two of them.

    Attributes:
        input: of the prompt, neither written to nor read from a cache.
        cache_write: of the prompt, written to the provider's prompt cache.
        cache_read: of the prompt, read from it.
        output: of the answer.
    """

    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    @property
    def prompt(self) -> int:
        """All tokens of the prompt."""
        return self.input + self.cache_write + self.cache_read

    @property
    def total(self) -> int:
        """All tokens."""
        return self.prompt + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            **{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Usage)}
        )


NOTHING = Usage()
"""No tokens."""


class ModelFault(EnvironmentFault):
    """The model API failed, or answered what cannot be used: ours, never the agent's verdict.

    Attributes:
        kind: see `FaultKind`; `retryable` follows from it.
        status: the HTTP status, where there was one.
        request: the API's id of the request, where it gave one.
        retry_after_s: how long the API asked to be left alone, where it did.
        usage: what the API had counted until then, where it had begun to answer.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FaultKind,
        status: int | None = None,
        request: str | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, retryable=kind in _PASSING)
        self.kind = kind
        self.status = status
        self.request = request
        self.retry_after_s = retry_after_s
        self.usage = usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a model is asked.

    Attributes:
        system: the system prompt.
        messages: in the form of the Messages API.
        tools: descriptions of tools, in the same form.
        shape: the answer is JSON of this shape; None leaves it free.
    """

    system: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    shape: type[BaseModel] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a model.

    Attributes:
        content: the content blocks, in the Messages API's JSON form, to be sent back as they are.
        stop: why it stopped, in the Messages API's word.
        usage: what it took.
        request: the API's id of the request.
        model: the id of the model that answered, as the API told it.
    """

    content: Sequence[Mapping[str, Any]]
    stop: str
    usage: Usage
    request: str | None
    model: str

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(str(block["text"]) for block in self.content if block["type"] == "text").strip()


class Endpoint(Protocol):
    """One model behind one API."""

    @property
    def name(self) -> str:
        """The model's id."""
        ...

    async def send(self, request: Request) -> Reply:
        """Try once; silence that lasts too long is a fault.

        Raises:
            ModelFault: what went wrong, by kind.
        """
        ...


class ChatModel(Protocol):
    """A model, as those who talk to it see it: what passes is waited out behind it."""

    @property
    def name(self) -> str:
        """The model's id."""
        ...

    async def reply(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Reply:
        """The next assistant message.

        Raises:
            ModelFault: it could not be had.
        """
        ...

    async def parsed(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], shape: type[Shape]
    ) -> Shape:
        """The next assistant message, in a given shape.

        Raises:
            ModelFault: it could not be had, or not in that shape.
        """
        ...
