"""The backend, in the module where Django looks for it."""

from __future__ import annotations

import time
from typing import Any

from django.db.backends.postgresql import base as postgresql

from redteam_sdk.context import Context, is_armed, resolve
from redteam_sdk.contrib import kept, libpq_arguments
from redteam_sdk.errors import InvalidContext
from redteam_sdk.lifetimes import Fork, enter

__all__ = ["DatabaseWrapper"]


class DatabaseWrapper(postgresql.DatabaseWrapper):  # type: ignore[misc]  # Django ships no types
    """Django's PostgreSQL connection of one thread, to production or to the fork of here and now."""

    _leads_to: Fork | None = None

    @property
    def pool(self) -> Any:
        """Production's pool. A process that is armed has none: its connections belong to different forks."""
        return None if is_armed() else super().pool

    def ensure_connection(self) -> None:
        """Connect, if what is connected is not what the running code may use.

        Raises:
            NoContext: the process is armed, and no conversation is bound here or it is over.
            InvalidContext: a transaction of another context is open on this thread's connection.
        """
        context = resolve()
        wanted = None if context is None else enter(context)
        if self.connection is not None and wanted != self._leads_to:
            if self.in_atomic_block:
                raise InvalidContext("a transaction of another context is open here; end it first")
            self.close()
        super().ensure_connection()

    def get_connection_params(self) -> dict[str, Any]:
        """As Django's; on a fork, those that do not say where to connect, and the fork's own."""
        given: dict[str, Any] = super().get_connection_params()
        context = resolve()
        return given if context is None else {**libpq_arguments(context), **kept(given)}

    def connect(self) -> None:
        """Connect to production, or to the fork of here and now."""
        context: Context | None = resolve()
        self._leads_to = None if context is None else enter(context)
        super().connect()
        if context is not None:
            self.close_at = time.monotonic()  # at the end of the request, whatever CONN_MAX_AGE says
