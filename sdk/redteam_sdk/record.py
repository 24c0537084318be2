"""The seam through which tools report what they do. Without a recorder it costs one contextvar read."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_sdk.frozen import Answers

__all__ = [
    "Recorder",
    "Recording",
    "calling",
    "current",
    "emit",
    "is_recording",
    "next_call",
    "recording",
    "resumed",
]


class Recorder(Protocol):
    """Takes the events of one conversation, in order."""

    def emit(self, event: dict[str, Any]) -> None:
        """Take one event: JSON-like, with at least `kind` and `at` (UTC, ISO 8601, milliseconds)."""
        ...


@dataclass(frozen=True, slots=True)
class Recording:
    """Where events go, how the calls among them are named and numbered, and what external tools answer.

    `answers` is what a replay has recorded; None: the mocks answer.
    """

    recorder: Recorder
    calls: Iterator[int]
    name: str = "call"
    answers: Answers | None = None


_recording: ContextVar[Recording | None] = ContextVar("redteam_recording", default=None)
# Where the events of code go that has lost its contextvars, in a process of one conversation; else None.
_everywhere: Recording | None = None
_given: ContextVar[list[str] | None] = ContextVar("redteam_call", default=None)


@contextmanager
def recording(
    recorder: Recorder,
    *,
    calls: Iterator[int] | None = None,
    name: str = "call",
    everywhere: bool = False,
    answers: Answers | None = None,
) -> Iterator[None]:
    """Send the events of the block, and of the tasks it starts, to a recorder.

    Args:
        recorder: where events go.
        calls: numbers for the block's tool calls; pass one counter to all recordings of a conversation, so
            that no two of its calls share a number.
        name: stands before the number in a call's id; where several processes serve one conversation, each
            recording needs its own.
        everywhere: also, until the next such recording, the events of threads and tasks that were started
            without the block's contextvars: for a process that belongs to one conversation.
        answers: what external tools answer in a replay; None: their mocks answer.
    """
    global _everywhere
    found = Recording(recorder, calls if calls is not None else itertools.count(1), name, answers)
    if everywhere:
        _everywhere = found
    reset = _recording.set(found)
    try:
        yield
    finally:
        _recording.reset(reset)


def current() -> Recording | None:
    """What the events of the running code go to, to be taken up elsewhere by `resumed`; or None."""
    found = _recording.get()
    return _everywhere if found is None else found


@contextmanager
def resumed(found: Recording) -> Iterator[None]:
    """Send the events of the block to where those of another task or thread go."""
    reset = _recording.set(found)
    try:
        yield
    finally:
        _recording.reset(reset)


def is_recording() -> bool:
    """Whether events of the running code go anywhere."""
    return current() is not None


@contextmanager
def calling(call: str) -> Iterator[None]:
    """Give the first tool call of the block an id from outside, such as a model's own."""
    reset = _given.set([call])
    try:
        yield
    finally:
        _given.reset(reset)


def next_call() -> str:
    """An id for a tool call, unique in the conversation that is being recorded."""
    given = _given.get()
    if given:
        return given.pop()
    state = current()
    return f"{state.name}-{next(state.calls)}" if state is not None else "call-0"


def emit(kind: str, **facts: Any) -> None:
    """Record one event. The facts are JSON-like and hold no secret. Without a recorder nothing happens."""
    state = current()
    if state is not None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        state.recorder.emit({"kind": kind, "at": at, **facts})
