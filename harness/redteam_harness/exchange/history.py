"""A file of real conversations: which format it has, and what is in it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.exchange.dialects import dialect_of, from_anthropic, from_openai
from redteam_harness.exchange.recording import STEPS, Degraded, Recorded, parse_lines
from redteam_harness.exchange.spans_in import OTHER_SIGNALS, from_spans
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Format", "History", "case_names", "read_history"]

Format = Literal["otlp", "jsonl", "openai", "anthropic"]

_MAX_BYTES = 256 * 2**20
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a file holds.

    Attributes:
        format: what it was read as.
        whole: the conversations that are whole.
        degraded: those that are not, with what is missing.
        other: what in the file is no conversation at all, by name: metrics, log records.
    """

    format: Format
    whole: tuple[Recorded, ...]
    degraded: tuple[Degraded, ...]
    other: Mapping[str, int] = field(default_factory=dict)


def read_history(path: Path, *, format: Format | None = None) -> History:  # noqa: A002 - as the option
    """Read a file.

    Args:
        path: the file.
        format: what it is; None: found out by what is in it.

    Raises:
        UsageError: it cannot be read, or is of no format that we know.
    """
    text = _text(path)
    values = _values(text)
    known = format or _format(path, values)
    if known == "jsonl":
        return _history("jsonl", [_caught(lambda: parse_lines(_name(path.stem), text))], {})
    if values is None:
        raise UsageError(
            f"{path} is neither one JSON document nor JSON in each line; a file that was cut is not imported"
        )
    if known == "otlp":
        other = Counter(name for value in values for name in OTHER_SIGNALS if _has(value, name))
        requests = [value for value in values if _has(value, "resourceSpans")]
        if not requests:
            raise UsageError(f"{path} has no `resourceSpans`, so there is no span in it")
        return _history("otlp", list(from_spans(requests)), other)
    read = from_openai if known == "openai" else from_anthropic
    lists = list(_lists(path, values))
    names = case_names(path.stem, lists)
    found = [
        _caught(lambda name=name, one=one: read(name, one)) for name, one in zip(names, lists, strict=True)
    ]
    return _history(known, found, {})


def _history(format: Format, found: Sequence[Recorded | Degraded], other: Mapping[str, int]) -> History:  # noqa: A002 - as above
    return History(
        format=format,
        whole=tuple(one for one in found if isinstance(one, Recorded)),
        degraded=tuple(one for one in found if isinstance(one, Degraded)),
        other=dict(other),
    )


def _caught(read: Any) -> Recorded | Degraded:
    try:
        found: Recorded = read()
    except Degraded as error:
        return error
    return found


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} has over {_MAX_BYTES // 2**20} MB; import it in parts")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no UTF-8 text") from None


def _values(text: str) -> list[Any] | None:
    """The document, as one item, or that of each line; None where it is neither."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None


def _format(path: Path, values: Sequence[Any] | None) -> Format:
    first = _first(path)
    if first in (*STEPS, "about"):
        return "jsonl"
    if not values:
        raise UsageError(
            f"{path} is neither one JSON document nor JSON in each line; a file that was cut is not imported"
        )
    if any(_has(value, "kind") for value in values):
        return "jsonl"
    if any(_has(value, name) for value in values for name in ("resourceSpans", *OTHER_SIGNALS)):
        return "otlp"
    lists = list(_lists(path, values))
    kinds = {dialect_of([one for one in messages if isinstance(one, dict)]) for messages in lists}
    return "anthropic" if "anthropic" in kinds else "openai"


def _first(path: Path) -> str | None:
    """The kind of the first line, also of a file whose last line was cut."""
    with path.open(encoding="utf-8-sig") as file:
        line = file.readline()
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def _lists(path: Path, values: Sequence[Any]) -> Iterator[list[Any]]:
    """The message lists: bare, under `messages`, or several of either."""
    for value in values:
        messages = value.get("messages") if isinstance(value, dict) else value
        if isinstance(messages, list) and messages and all(_has(one, "role") for one in messages):
            yield messages
        elif isinstance(messages, list) and messages and value is messages:
            yield from _lists(path, messages)
        else:
            raise UsageError(
                f"{path} holds something that is no conversation; there are OTLP JSON (`resourceSpans`), our "
                "JSON lines (`kind`), and message lists of OpenAI and Anthropic (`role`)"
            )


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


def case_names(base: str, whole: Sequence[object]) -> list[str]:
    """A name for the case of each conversation of an import."""
    name, width = _name(base), len(str(len(whole)))
    return [name] if len(whole) == 1 else [f"{name}-{n:0{width}}" for n in range(1, len(whole) + 1)]


def _name(text: str) -> str:
    """A file's name as a conversation's."""
    return _NOT_A_NAME.sub("-", text).strip("-._")[:40].rstrip("-._") or "conversation"
