"""Ctrl-C: the first stops the launch cleanly, the second at once."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio

from redteam_sdk.errors import RedteamError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

__all__ = ["Interrupt", "Interrupted", "interruptible"]

_EXIT_INTERRUPTED = 130


class Interrupted(RedteamError):
    """A person stopped the launch before its first conversation."""


class Interrupt:
    """Whether a person asked to stop, and the work that then stops."""

    def __init__(self) -> None:
        self.requested = False
        self._scopes: list[anyio.CancelScope] = []

    @contextmanager
    def scope(self) -> Iterator[Callable[[], None]]:
        """Work that an interrupt cancels; the caller goes on behind it and looks at `requested`.

        Yields a function that ends this early: what follows in the scope is cancelled no more.
        """
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                if self.requested:
                    scope.cancel()
                yield lambda: self._forget(scope)
            finally:
                self._forget(scope)

    def _forget(self, scope: anyio.CancelScope) -> None:
        if scope in self._scopes:
            self._scopes.remove(scope)

    def request(self) -> None:
        """Stop what runs."""
        self.requested = True
        for scope in self._scopes:
            scope.cancel()


@asynccontextmanager
async def interruptible() -> AsyncIterator[Interrupt]:
    """Listen for SIGINT and SIGTERM while the context is open."""
    interrupt = Interrupt()

    async def listen() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if interrupt.requested:
                    # The embedded server sees our pipe close and removes itself; the agent processes end with
                    # their sockets. On a server that is not ours, forks may remain: say so.
                    sys.stderr.write("\nstopped at once; forks on a server of your own may remain\n")
                    sys.stderr.flush()
                    os._exit(_EXIT_INTERRUPTED)
                sys.stderr.write("\nstopping: dropping forks; press Ctrl-C again to stop at once\n")
                interrupt.request()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        try:
            yield interrupt
        finally:
            tasks.cancel_scope.cancel()
