"""Every error of the platform, by who can do something about it.

    RedteamError
    ├── UsageError            the caller can fix it; the CLI exits with 2
    ├── EnvironmentFault      Postgres, a process, the network or a model failed us; the CLI exits with 3
    │   └── UnmockedExternalCall  AnswerNotRecorded  EgressRefused
    ├── ContextError          a redteam context was refused; never a reason to use production instead
    │   ├── InvalidContext  ExpiredContext  UntrustedContext  ForbiddenHost  NotConfigured
    │   └── NoContext
    └── InternalError         a bug of ours

A message says what happened, to which object, and what to do. It never holds a password, a DSN or a row.
"""

from __future__ import annotations

__all__ = [
    "AnswerNotRecorded",
    "ContextError",
    "EgressRefused",
    "EnvironmentFault",
    "ExpiredContext",
    "ForbiddenHost",
    "InternalError",
    "InvalidContext",
    "NoContext",
    "NotConfigured",
    "RedteamError",
    "UnmockedExternalCall",
    "UntrustedContext",
    "UsageError",
]


class RedteamError(Exception):
    """The root of all errors that the platform raises on purpose."""


class UsageError(RedteamError):
    """The caller gave something that cannot work, and can give something else."""


class EnvironmentFault(RedteamError):
    """Something around us failed: Postgres, a process, a file system, the network, a model.

    Attributes:
        retryable: whether the same call may succeed later without anyone changing anything.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class UnmockedExternalCall(EnvironmentFault):
    """An external tool without a mock was called in redteam; the call was not made."""


class AnswerNotRecorded(EnvironmentFault):
    """In a replay, an external tool was called as the recording does not know it; nothing was answered."""


class EgressRefused(EnvironmentFault):
    """Code of an armed process tried to reach past its fork; nothing was sent, and no name was asked for.

    It is no OSError: clients take those for trouble of the network, try again, or go on without.

    Attributes:
        host: the name, the address or the path of the Unix socket that was to be reached.
        port: its port, where there is one.
    """

    def __init__(self, host: str, port: int | None, *, look_up: bool = False) -> None:
        shown = f"[{host}]" if ":" in host else host
        self.host = host
        self.port = port
        where = shown if port is None else f"{shown}:{port}"
        what = f"a look-up of {where}" if look_up else f"a connection to {where}"
        super().__init__(
            f"{what} was refused: in redteam, code reaches its fork and what is allowed, nothing else. Mark"
            f" what makes the call with @external(mock=...), or allow {where!r}: in suite.yaml by `egress`"
            " under `agent`, in a deployed service by `egress` of its trust"
        )


class ContextError(RedteamError):
    """A redteam context was presented, or was needed, and cannot be used. The request must be refused."""


class InvalidContext(ContextError):
    """The token is not a redteam context: garbled, cut, of another algorithm, or lacking a claim."""


class ExpiredContext(ContextError):
    """The token is a redteam context whose time is over, or has not begun."""


class UntrustedContext(ContextError):
    """The token was signed by an unknown key, or was issued by or meant for somebody else."""


class ForbiddenHost(ContextError):
    """The token names a fork host that is not on this process's allow-list."""


class NotConfigured(ContextError):
    """A token was presented to a process that trusts no redteam keys."""


class NoContext(ContextError):
    """The process is armed for redteam, but no context is bound where a database was asked for."""


class InternalError(RedteamError):
    """A bug of ours; please report it with the trace."""
