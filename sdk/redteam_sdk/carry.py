"""Takes the redteam context to code that starts without it: threads, executors, callbacks, workers.

In production nothing is bound, and what is handed over is the function itself.
"""

from __future__ import annotations

import functools
import inspect
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from redteam_sdk import context, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ContextExecutor", "carry"]

P = ParamSpec("P")
R = TypeVar("R")


def carry(fn: Callable[P, R]) -> Callable[P, R]:
    """The function with the context that is bound where `carry` is called, wherever and whenever it runs.

    What it records goes to the same conversation. It may be called often, and from several threads at once.
    Once the conversation is over, it has no database. Where nothing is bound the function itself is returned.

    Raises:
        TypeError: the function is a generator, whose steps run wherever it is iterated; carry what iterates.
    """
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{fn.__name__!r} is a generator; carry the function that iterates over it")
    held, recording = context.current_or_none(), record.current()
    if held is None and recording is None:
        return fn

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as stack:
            if held is not None:
                stack.enter_context(context.bound(held))
            if recording is not None:
                stack.enter_context(record.resumed(recording))
            yield

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def carried(*args: P.args, **kwargs: P.kwargs) -> Any:
            with entered():
                return await fn(*args, **kwargs)

        return cast("Callable[P, R]", carried)

    # functools.wraps copes with partials and other callables, which have no __name__.
    @functools.wraps(fn)
    def carried_sync(*args: P.args, **kwargs: P.kwargs) -> R:
        with entered():
            return fn(*args, **kwargs)

    return carried_sync


class ContextExecutor(ThreadPoolExecutor):
    """A thread pool whose every job runs with the context of whoever submitted it.

    Also for `loop.run_in_executor` and `loop.set_default_executor`. In production it is a ThreadPoolExecutor.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a job. Raises as ThreadPoolExecutor does."""
        return super().submit(carry(fn), *args, **kwargs)
