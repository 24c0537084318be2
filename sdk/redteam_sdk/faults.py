"""Which errors are our fault and not the agent's, wherever in a chain of errors they hide."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import asyncpg

from redteam_sdk import record
from redteam_sdk.errors import (
    AnswerNotRecorded,
    ContextError,
    EgressRefused,
    EnvironmentFault,
    UnmockedExternalCall,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cause", "cause_of", "describe", "message_of", "record_fault"]

Cause = Literal["unmocked", "mock-miss", "egress", "context", "environment"]

_RECORDED = "__redteam_recorded__"
# The server went away or has no room. No statement of an agent can cause these on its own fork's session,
# except by asking for its own end (pg_terminate_backend), and that is no ordinary service either.
_ENVIRONMENT = (
    EnvironmentFault,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DiskFullError,
    asyncpg.OutOfMemoryError,
    asyncpg.PostgresIOError,
    asyncpg.InternalServerError,
)
# The same by SQLSTATE, for the errors of other drivers.
_ENVIRONMENT_CLASSES = ("08", "53", "57P", "58", "XX")


def cause_of(error: BaseException) -> Cause | None:
    """Why the error is a fault of ours: the first reason in its chain of causes and its groups; else None."""
    for link in _chain(error):
        if isinstance(link, UnmockedExternalCall):
            return "unmocked"
        if isinstance(link, AnswerNotRecorded):
            return "mock-miss"
        if isinstance(link, EgressRefused):
            return "egress"
        if isinstance(link, ContextError):
            return "context"
        # A statement's timeout or cancellation is asked for by the one who runs it.
        if isinstance(link, _ENVIRONMENT) and not isinstance(link, asyncpg.QueryCanceledError):
            return "environment"
        if _sqlstate(link).startswith(_ENVIRONMENT_CLASSES):
            return "environment"
    return None


def _sqlstate(error: BaseException) -> str:
    code = getattr(error, "sqlstate", None)  # asyncpg, psycopg, and SQLAlchemy's adapters of them
    return code if isinstance(code, str) else ""


def describe(error: BaseException) -> str:
    """`ValueError: its message`, also when the message itself cannot be made."""
    name, text = type(error).__name__, message_of(error)
    return f"{name}: {text}" if text else name


def message_of(error: BaseException) -> str:
    """The error's own text. Making it is somebody else's code, which may fail."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - somebody else's __str__ may raise anything
        return f"(its message cannot be shown: {type(broken).__name__})"


def record_fault(error: BaseException) -> None:
    """Record a fault of ours once for each error, so that an agent that catches it cannot make it vanish."""
    cause = cause_of(error)
    if cause is None or getattr(error, _RECORDED, False):
        return
    record.emit("fault", cause=cause, message=describe(error), whose="infra")
    with suppress(AttributeError):  # an error with slots is recorded wherever it passes
        setattr(error, _RECORDED, True)


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting, seen = [error], set[int]()
    while waiting:
        link = waiting.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
        if link.__cause__ is not None:
            waiting.append(link.__cause__)
        elif link.__context__ is not None and not link.__suppress_context__:
            waiting.append(link.__context__)
