"""How a user's line becomes a JSON request, and a JSON response the agent's reply. Pure.

A preset is a shape that many services have already; pointers change it where a service's differs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.pointers import NoSuchPlace, lookup, replaced
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Exchange", "Line", "PresetName", "Said", "expand_headers"]

PresetName = Literal["chat", "openai", "anthropic"]
Said = tuple[Literal["user", "agent"], str]

# A model's name is mandatory in both APIs; a service that is an agent has no use for it.
_MODEL = "agent"
_MAX_TOKENS = 4096
_PLACEHOLDER = re.compile(r"\{(text|conversation|turn)\}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_REPLIES: Mapping[PresetName, str] = {
    "chat": "/reply",
    "openai": "/choices/0/message/content",
    "anthropic": "/content",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a request tells the service.

    Attributes:
        text: the user's line.
        conversation: the conversation's id.
        turn: from 1 on.
        history: the lines before this one.
    """

    text: str
    conversation: str
    turn: int
    history: Sequence[Said] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One service's shape of requests and responses.

    Attributes:
        preset: the shape to begin with.
        request: what is set in the preset's request, by JSON pointer, in this order. `{text}`,
            `{conversation}` and `{turn}` are filled in within texts; the text `{history}` alone becomes the
            list of messages before this one.
        reply: JSON pointer to the reply, or None for the preset's.
    """

    preset: PresetName = "chat"
    request: Mapping[str, Any] = field(default_factory=dict)
    reply: str | None = None

    def check(self) -> None:
        """Find out before a launch whether the pointers fit the preset.

        Raises:
            UsageError: one of them cannot be set.
        """
        self.body(Line(text="-", conversation="-", turn=1))

    def body(self, line: Line) -> Any:
        """The request for a line.

        Raises:
            UsageError: a pointer cannot be set.
        """
        body = _begin(self.preset, line)
        for pointer, value in self.request.items():
            try:
                body = replaced(body, pointer, _filled(value, line))
            except NoSuchPlace as reason:
                raise UsageError(f"agent.request {pointer!r} cannot be set: {reason}") from None
        return body

    def read(self, content: bytes) -> str:
        """The reply in a response.

        A list of content blocks is their texts, joined.

        Raises:
            AgentFault: it is no JSON, or has no text where the reply should be. Nothing of it is quoted.
        """
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise AgentFault("reply", f"the response is no JSON ({len(content)} bytes)") from None
        pointer = self.reply if self.reply is not None else _REPLIES[self.preset]
        try:
            text = _text(lookup(document, pointer))
        except NoSuchPlace as reason:
            raise AgentFault("reply", f"the response has no {pointer!r}: {reason}") from None
        if text is None:
            raise AgentFault("reply", f"{pointer!r} of the response is no text and holds no text blocks")
        if not text.strip():
            raise AgentFault("reply", f"the reply at {pointer!r} of the response is empty")
        return text


def expand_headers(headers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Headers with `${NAME}` replaced by the launcher's variable of that name.

    Raises:
        UsageError: a variable is not set, or the header would say what is ours to say.
    """
    expanded = {}
    for name, value in headers.items():
        if name.lower() in _OURS:
            raise UsageError(f"agent.headers: {name} is set by the harness; leave it out")
        for variable in _VARIABLE.findall(value):
            if variable not in environment:
                raise UsageError(
                    f"agent.headers: {name} needs the variable {variable}, which is not set; export it"
                )
        expanded[name] = _VARIABLE.sub(lambda found: environment[found[1]], value)
        if not expanded[name].isascii() or not expanded[name].isprintable():
            raise UsageError(f"agent.headers: the value of {name} is not one line of printable ASCII")
    return expanded


_OURS = {"redteam-context", "traceparent", "content-type", "content-length", "host", "transfer-encoding"}


def _begin(preset: PresetName, line: Line) -> dict[str, Any]:
    match preset:
        case "chat":
            return {"message": line.text, "conversation": line.conversation}
        case "openai":
            messages = [*_messages(line), {"role": "user", "content": line.text}]
            return {"model": _MODEL, "user": line.conversation, "messages": messages}
        case "anthropic":
            messages = [*_messages(line), {"role": "user", "content": line.text}]
            metadata = {"user_id": line.conversation}
            return {"model": _MODEL, "max_tokens": _MAX_TOKENS, "metadata": metadata, "messages": messages}


def _messages(line: Line) -> list[dict[str, str]]:
    """The lines before, as both APIs write them."""
    return [{"role": "user" if who == "user" else "assistant", "content": text} for who, text in line.history]


def _filled(value: Any, line: Line) -> Any:
    match value:
        case "{history}":
            return _messages(line)
        case str():
            facts = {"text": line.text, "conversation": line.conversation, "turn": str(line.turn)}
            return _PLACEHOLDER.sub(lambda found: facts[found[1]], value)
        case dict():
            return {name: _filled(item, line) for name, item in value.items()}
        case list():
            return [_filled(item, line) for item in value]
        case _:
            return value


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [
            block["text"]
            for block in value
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        ]
        return "".join(texts) if texts else None
    return None
