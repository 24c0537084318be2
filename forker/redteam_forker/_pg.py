"""The edge to Postgres: administration sessions, and the one place where asyncpg's errors become ours."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CONNECT_TIMEOUT_S", "NOT_YET", "Target", "admin_settings", "close", "connect", "translated"]

CONNECT_TIMEOUT_S = 20.0
# What connecting raises while a server is on its way up: no socket yet, nobody listening, or "starting up".
NOT_YET = (
    FileNotFoundError,
    ConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.ConnectionDoesNotExistError,
)
_CLOSE_TIMEOUT_S = 5.0

# Every value that a session prints must look the same on every server and in every time zone (P62).
_PINNED = {
    "application_name": "",  # everybody can read it, and a model that reads of a test behaves as in one (P49)
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "extra_float_digits": "1",
    "IntervalStyle": "postgres",
    "lc_monetary": "C",
    "TimeZone": "UTC",
    "xmlbinary": "base64",
    # A default of the role or the database must not cancel a clone or a drop; deadlines are the client's
    # (P08).
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
}

_ADVICE: dict[type[BaseException], tuple[str, bool]] = {
    asyncpg.TooManyConnectionsError: ("the server has no free connection: lower --parallel", True),
    asyncpg.DiskFullError: ("the server's disk is full: free space, or name another data directory", False),
    asyncpg.ObjectInUseError: ("somebody is connected to it", True),
    asyncpg.InsufficientPrivilegeError: ("our role lacks the right to do this", False),
    asyncpg.CannotConnectNowError: ("the server is starting or shutting down", True),
    asyncpg.AdminShutdownError: ("the server was shut down", True),
    asyncpg.CrashShutdownError: ("a server process crashed", True),
    asyncpg.InvalidPasswordError: ("the password was not accepted", False),
    asyncpg.InvalidAuthorizationSpecificationError: ("the server does not let this role in", False),
    asyncpg.InvalidCatalogNameError: ("that database does not exist", False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a server listens and who we are on it. Never printed whole: the password is not in its repr.

    Attributes:
        host: a socket's directory, or a host name or address.
        port: the port.
        user: our own role.
        password: its password; None lets the client library look for one in the user's password file.
        maintenance: the database to be in when no other is meant. Never template1 (P02).
        sslmode: as libpq names it.
    """

    host: str
    port: int
    user: str
    password: str | None
    maintenance: str
    sslmode: str = "prefer"

    def __repr__(self) -> str:
        return f"Target({self.user}@{self.host}:{self.port}/{self.maintenance})"


def admin_settings(version_num: int, *, superuser: bool) -> dict[str, str]:
    """The settings that each administration session starts with; an unknown one would be refused (P15)."""
    settings = dict(_PINNED)
    if version_num >= 170000:
        settings["transaction_timeout"] = "0"
        if superuser:
            # A login event trigger in somebody's seed would lock us out of every fork (P28).
            settings["event_triggers"] = "off"
    if version_num >= 160000 and not superuser:
        # Roles that we create must be ours to hand objects to and to end the sessions of (P20).
        settings["createrole_self_grant"] = "set, inherit"
    return settings


async def connect(
    target: Target, database: str | None = None, *, version_num: int = 0, superuser: bool = False
) -> asyncpg.Connection:
    """Open one session. The caller closes it, by `close` where the scope may be cancelled.

    Raises:
        asyncpg.PostgresError, OSError, TimeoutError: as they come; callers wrap this in `translated`.
    """
    local = target.host.startswith("/")
    return await asyncpg.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        database=database or target.maintenance,
        ssl=None if local else target.sslmode,
        timeout=CONNECT_TIMEOUT_S,
        server_settings=admin_settings(version_num, superuser=superuser),
    )


async def close(connection: asyncpg.Connection) -> None:
    """Close a session, also in a cancelled scope, and within a bound: at the worst the socket is just cut."""
    with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True) as scope:
        # A session that died under us has nothing to say that its last statement did not say.
        with contextlib.suppress(
            asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError
        ):
            await connection.close()
    if scope.cancelled_caught:
        connection.terminate()


@contextlib.contextmanager
def translated(doing: str, fault: type[EnvironmentFault] = EnvironmentFault) -> Iterator[None]:
    """Turn what asyncpg raises into `fault`, with what was being done and what can be done about it.

    Only the server's primary message is kept: its DETAIL may hold a row.

    Args:
        doing: what the statements are for and on which object, for example `cannot create fork 'rt_x'`.
        fault: the error to raise.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        advice, retryable = _advice(error)
        raise fault(f"{doing}: {error.args[0]}{advice}", retryable=retryable) from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        # The second is what a session that is cut in the middle of a statement's preparation raises.
        raise fault(f"{doing}: the session was lost ({error})", retryable=True) from error
    except TimeoutError as error:
        raise fault(f"{doing}: the server did not answer in time", retryable=True) from error
    except OSError as error:
        reason = error.strerror or error
        raise fault(
            f"{doing}: {reason}; check that the server runs and can be reached", retryable=True
        ) from error


def _advice(error: asyncpg.PostgresError) -> tuple[str, bool]:
    for kind, (advice, retryable) in _ADVICE.items():
        if isinstance(error, kind):
            return f" ({advice})", retryable
    if "collation version mismatch" in str(error.args[0]):
        return " (run ALTER DATABASE ... REFRESH COLLATION VERSION on the template that it names)", False
    return "", False
