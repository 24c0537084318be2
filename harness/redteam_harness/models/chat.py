"""What the harness needs of a chat model: two methods, and one kind of fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import BaseModel

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ChatModel", "ModelFault", "Reply", "Usage"]

Shape = TypeVar("Shape", bound=BaseModel)


class ModelFault(EnvironmentFault):
    """The model API failed, or answered what cannot be used: ours, never the agent's verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, as the API counted them."""

    input: int
    output: int
    cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a model.

    Attributes:
        content: the content blocks, in the API's JSON form, to be sent back as they are.
        stop: why it stopped, in the API's word.
        usage: what it cost.
        request: the API's id of the request.
    """

    content: Sequence[Mapping[str, Any]]
    stop: str
    usage: Usage
    request: str | None

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(str(block["text"]) for block in self.content if block["type"] == "text").strip()


class ChatModel(Protocol):
    """A model behind an API."""

    @property
    def name(self) -> str:
        """The model's id."""
        ...

    async def reply(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Reply:
        """The next assistant message.

        Raises:
            ModelFault: the API failed.
        """
        ...

    async def parsed(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], shape: type[Shape]
    ) -> Shape:
        """The next assistant message, in a given shape.

        Raises:
            ModelFault: the API failed, or the answer does not have the shape.
        """
        ...
