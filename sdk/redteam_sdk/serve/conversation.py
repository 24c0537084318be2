"""One conversation in the agent process: its session, its events, and what still runs for it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import os
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg

from redteam_sdk.context import bound
from redteam_sdk.faults import cause_of, describe
from redteam_sdk.record import recording
from redteam_sdk.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redteam_sdk.claims import Context
    from redteam_sdk.frozen import Answers
    from redteam_sdk.serve.channel import Channel

__all__ = ["Conversation", "Refused", "fault_of", "is_async", "is_drivers", "task_name"]

_HERE = os.path.dirname(__file__)
_DRIVER = os.path.dirname(asyncpg.__file__)
_MAX_TRACEBACK = 20_000


class Refused(Exception):
    """A request gets a fault as its answer, for a reason of ours that needs no traceback."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Conversation:
    """What the process knows of one conversation.

    Attributes:
        context: its right to its fork.
        session: what its agent is given at every turn.
        turning: whether a turn is being answered.
        closed: set once the harness was told so; nothing of it is sent any more.
        threads: the names of threads that run its plain functions.
        answers: what external tools answer in a replay; None: their mocks answer.
    """

    def __init__(
        self,
        context: Context,
        channel: Channel,
        *,
        whole_process: bool = False,
        answers: Answers | None = None,
    ) -> None:
        self.context = context
        self.answers = answers
        self.session = Session(id=context.conversation)
        self.turning = False
        self.closed = False
        self.threads: dict[threading.Thread, str] = {}
        self._calls = itertools.count(1)
        self._channel = channel
        self._whole_process = whole_process

    @contextmanager
    def at_turn(self, turn: int) -> Iterator[None]:
        """Run the block, and the tasks it starts, on this conversation's fork, recorded under a turn."""
        recorder = _TurnRecorder(self, turn, self._channel)
        with (
            bound(self.context),
            recording(recorder, calls=self._calls, everywhere=self._whole_process, answers=self.answers),
        ):
            yield

    async def in_thread(self, run: Callable[[], Any], name: str) -> Any:
        """Run a plain function in a thread of its own, with this task's contextvars.

        A thread for each, not a pool: one that hangs must not take a place that another conversation needs.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            value, failure = None, None
            try:
                value = context.run(run)
            except BaseException as error:  # noqa: BLE001 - carried to the task that waits for it
                failure = error
            loop.call_soon_threadsafe(settle, value, failure)

        def settle(value: Any, failure: BaseException | None) -> None:
            self.threads.pop(thread, None)
            if not done.done():
                done.set_result((value, failure))

        thread = threading.Thread(target=work, name=f"{self.context.conversation} {name}", daemon=True)
        self.threads[thread] = name
        thread.start()
        value, failure = await done
        if failure is not None:
            raise failure
        return value


class _TurnRecorder:
    def __init__(self, conversation: Conversation, turn: int, channel: Channel) -> None:
        self._conversation = conversation
        self._turn = turn
        self._channel = channel

    def emit(self, event: dict[str, Any]) -> None:
        if not self._conversation.closed:
            name = self._conversation.context.conversation
            self._channel.send({"op": "event", "conversation": name, "event": {**event, "turn": self._turn}})


def fault_of(error: BaseException) -> dict[str, Any]:
    """The answer to a request that ended with an error."""
    if isinstance(error, Refused):
        return {"op": "fault", "cause": error.cause, "message": str(error), "traceback": ""}
    text = traceback.TracebackException.from_exception(error, capture_locals=False)
    while text.stack and text.stack[0].filename.startswith(_HERE):
        text.stack.pop(0)  # ours, and the same every time
    return {
        "op": "fault",
        "cause": cause_of(error) or "exception",
        "message": describe(error),
        "traceback": "".join(text.format())[-_MAX_TRACEBACK:],
    }


def is_drivers(task: asyncio.Task[Any]) -> bool:
    """Whether the task is asyncpg's own, such as one that cleans a connection that was given back."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(_DRIVER)


def task_name(task: asyncio.Task[Any]) -> str:
    """What a task runs, in words for a report."""
    name = task.get_name()
    if name != "None" and not name.startswith("Task-"):
        return name
    # Nobody named it. Python 3.13 up to 3.13.2 calls a task "None" that a task factory made.
    return str(getattr(task.get_coro(), "__qualname__", "a coroutine"))


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine: an `async def`, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
