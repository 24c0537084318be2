"""Message lists of the OpenAI and Anthropic APIs as recordings. Pure.

System and developer messages are the agent's own and are left out, and so is its thinking. Whatever else is
not a text, a tool call or its result cannot be replayed: it is refused by name, and never skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.exchange.recording import Degraded, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redteam_harness.evidence.trace import Event
    from redteam_harness.exchange.recording import Recorded

__all__ = ["Dialect", "dialect_of", "from_anthropic", "from_openai", "unpacked"]

Dialect = Literal["openai", "anthropic"]

_INSTRUCTIONS = frozenset({"system", "developer"})
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})


def dialect_of(messages: Sequence[Mapping[str, Any]]) -> Dialect:
    """Whose message list it is. One of texts only is both, and reads the same as either."""
    for message in messages:
        blocks: Any = message.get("content")
        kinds = [block.get("type") for block in blocks if isinstance(block, dict)] if _is_list(blocks) else []
        if any(kind in ("tool_use", "tool_result", "thinking", "redacted_thinking") for kind in kinds):
            return "anthropic"
    return "openai"


def from_openai(name: str, messages: Sequence[Any]) -> Recorded:
    """A conversation of chat completions.

    Raises:
        Degraded: it is not whole, or holds what cannot be replayed.
    """
    return _recorded(name, _openai, messages)


def from_anthropic(name: str, messages: Sequence[Any]) -> Recorded:
    """A conversation of the Messages API.

    Raises:
        Degraded: it is not whole, or holds what cannot be replayed.
    """
    return _recorded(name, _anthropic, messages)


def unpacked(text: str) -> Any:
    """A tool's result as data, where it is JSON; else the text.

    Raises:
        Degraded: it begins as JSON does, and is none: it was cut.
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    if text.lstrip()[:1] in ("{", "[") or _is_cut(text):
        raise Degraded("a result begins as JSON or a longer text does and has no end: it was cut")
    return text


def _is_cut(text: str) -> bool:
    tail = text.rstrip()[-24:].casefold()
    return tail.endswith(("...", "\u2026")) or "truncated" in tail


class _Said:
    """The messages of one list, turned into events one after the other."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._events: list[Event] = []
        self._asked: list[str] = []
        self._replied: list[str] = []
        self._answers = True  # whether the last message of the turn is a text of the agent's

    def user(self, text: str, number: int) -> None:
        """A line of the user's; several in a row are one turn's."""
        if not self._answers:
            raise Degraded(f"message {number}: the user speaks before the agent has replied")
        if self._replied:
            self._close()
        self._asked.append(text)

    def agent(self, text: str) -> None:
        """A text of the agent's; several in a turn are one reply."""
        self._open()
        if text.strip():
            self._replied.append(text)
            self._answers = True

    def step(self, event: Event) -> None:
        """A call or its answer."""
        self._open()
        self._answers = False
        self._events.append(event)

    def end(self) -> list[Event]:
        """All of it."""
        self._open()
        if self._replied and self._answers:
            self._close()
        return self._events

    def _open(self) -> None:
        if self._asked:
            self._events.append({"kind": "user", "text": "\n\n".join(self._asked)})
            self._asked = []

    def _close(self) -> None:
        # Also what was said between two calls: the user saw it before the next line.
        self._events.append({"kind": "agent", "text": "\n\n".join(self._replied)})
        self._replied = []


def _recorded(name: str, read: Any, messages: Sequence[Any]) -> Recorded:
    said = _Said()
    try:
        _check(messages)
        read(messages, said)
        events = said.end()
    except Degraded as error:
        raise Degraded(error.missing, conversation=name) from None
    return recorded(name, events, left_out=said.left_out)


def _check(messages: Sequence[Any]) -> None:
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Degraded(f"message {number} is no object with a role")


def _openai(messages: Sequence[Mapping[str, Any]], said: _Said) -> None:
    open_: list[str] = []
    for number, message in enumerate(messages, start=1):
        role = message["role"]
        if open_ and role != "tool":
            raise Degraded(f"message {number}: {_many(open_)} before it has no result")
        match role:
            case "system" | "developer":
                said.left_out[role] += 1
            case "user":
                said.user(_texts(message.get("content"), number, said), number)
            case "assistant":
                for name in ("function_call", "audio", "refusal"):
                    if message.get(name):
                        raise Degraded(f"message {number}: {name!r} cannot be replayed")
                content = message.get("content")
                if content is not None:
                    said.agent(_texts(content, number, said))
                for call in message.get("tool_calls") or ():
                    event = _openai_call(call, number)
                    open_.append(event["call"])
                    said.step(event)
                if content is None and not open_:
                    raise Degraded(f"message {number}: it has neither content nor tool calls")
            case "tool":
                call = message.get("tool_call_id")
                if call not in open_:
                    raise Degraded(
                        f"message {number}: a result of {call!r}, which was not called just before"
                    )
                open_.remove(call)
                value = unpacked(_texts(message.get("content"), number, said))
                said.step({"kind": "tool_result", "call": call, "value": value})
            case _:
                raise Degraded(f"message {number}: role {role!r} is not known")
    if open_:
        raise Degraded(f"the list ends, and {_many(open_)} has no result")


def _openai_call(call: Any, number: int) -> Event:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise Degraded(f"message {number}: a tool call that is no function's cannot be replayed")
    try:
        arguments = json.loads(function.get("arguments") or "")
    except (ValueError, TypeError):
        arguments = None
    if not isinstance(arguments, dict):
        raise Degraded(f"message {number}: the arguments of {function.get('name')} are no JSON object: cut?")
    return _call(call.get("id"), function.get("name"), arguments, number)


def _call(call: Any, name: Any, arguments: Any, number: int) -> Event:
    if not isinstance(call, str) or not isinstance(name, str) or not call or not name:
        raise Degraded(f"message {number}: a tool call without its id or name")
    return {"kind": "tool_call", "call": call, "name": name, "arguments": arguments}


def _anthropic(messages: Sequence[Mapping[str, Any]], said: _Said) -> None:
    open_: list[str] = []
    for number, message in enumerate(messages, start=1):
        role = message["role"]
        if role in _INSTRUCTIONS:
            said.left_out[role] += 1
            continue
        if role not in ("user", "assistant"):
            raise Degraded(f"message {number}: role {role!r} is not known")
        if role == "assistant" and open_:
            raise Degraded(f"message {number}: {_many(open_)} before it has no result")
        for block in _blocks(message.get("content"), number):
            match (role, block["type"]):
                case (_, "text") if role == "user" and open_:
                    raise Degraded(f"message {number}: {_many(open_)} before it has no result")
                case ("user", "text"):
                    said.user(_text(block, number), number)
                case ("assistant", "text"):
                    said.agent(_text(block, number))
                case ("assistant", kind) if kind in _THINKING:
                    said.left_out[kind] += 1
                case ("assistant", "tool_use"):
                    arguments = block.get("input")
                    if not isinstance(arguments, dict):
                        raise Degraded(f"message {number}: the input of {block.get('name')} is no object")
                    event = _call(block.get("id"), block.get("name"), arguments, number)
                    open_.append(event["call"])
                    said.step(event)
                case ("user", "tool_result"):
                    call = block.get("tool_use_id")
                    if call not in open_:
                        raise Degraded(
                            f"message {number}: a result of {call!r}, which was not called just before"
                        )
                    open_.remove(call)
                    said.step(_anthropic_result(block, number, said))
                case (_, kind):
                    raise Degraded(f"message {number}: {kind!r} of the {role} cannot be replayed")
    if open_:
        raise Degraded(f"the list ends, and {_many(open_)} has no result")


def _anthropic_result(block: Mapping[str, Any], number: int, said: _Said) -> Event:
    content = block.get("content")
    text = "" if content is None else _texts(content, number, said)
    if block.get("is_error"):
        return {"kind": "tool_error", "call": block["tool_use_id"], "message": text}
    return {"kind": "tool_result", "call": block["tool_use_id"], "value": unpacked(text)}


def _blocks(content: Any, number: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
        return
    if not _is_list(content):
        raise Degraded(f"message {number} has no content")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise Degraded(f"message {number}: a part without a type")
        yield block


def _texts(content: Any, number: int, said: _Said) -> str:
    """A content that may be texts only."""
    texts = []
    for block in _blocks(content, number):
        if block["type"] in _THINKING:
            said.left_out[block["type"]] += 1
        elif block["type"] == "text":
            texts.append(_text(block, number))
        else:
            raise Degraded(f"message {number}: a part of type {block['type']!r} cannot be replayed")
    return "\n\n".join(texts)


def _text(block: Mapping[str, Any], number: int) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise Degraded(f"message {number}: a text that is none")
    return text


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _many(calls: Sequence[str]) -> str:
    return f"tool call {calls[0]}" if len(calls) == 1 else f"one of {len(calls)} tool calls"
