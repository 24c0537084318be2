"""Tasks that run beside a scope."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

__all__ = ["beside"]


@contextlib.asynccontextmanager
async def beside(*functions: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run functions until the scope ends, and cancel them then. One that raises cancels the scope.

    What the scope itself raises leaves as it is, not in a group: callers catch it by its class.
    """
    raised: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        for function in functions:
            tasks.start_soon(function)
        try:
            yield
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised again below, outside the group
            raised = error
        finally:
            tasks.cancel_scope.cancel()
    if raised is not None:
        raise raised
