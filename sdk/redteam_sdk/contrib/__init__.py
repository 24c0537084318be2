"""`db`'s rule for other drivers: `sqlalchemy`, `psycopg`, `django`. Each needs its package to be installed.

In production each hands out what its own package would, unchanged. On a fork it connects to that fork alone:
of production's settings it takes over only those that cannot say where to connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_sdk.claims import Context

__all__ = ["FORK_POOL_SIZE", "kept", "libpq_arguments"]

# A fork's role admits 5 sessions, of which `db` may take three and the bookkeeping one.
FORK_POOL_SIZE = 2

# What shapes a session and cannot lead it elsewhere, in asyncpg's and in psycopg's names.
_HARMLESS = frozenset(
    {
        "application_name",
        "autocommit",
        "client_encoding",
        "command_timeout",
        "connect_timeout",
        "context",
        "cursor_factory",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "options",
        "prepare_threshold",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "row_factory",
        "server_settings",
        "statement_cache_size",
    }
)


def kept(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of production's connection arguments that a fork's connection is given too."""
    return {name: value for name, value in arguments.items() if name in _HARMLESS}


def libpq_arguments(context: Context) -> dict[str, Any]:
    """What a driver on libpq needs to connect to a fork, with all that PG* variables would else decide."""
    return {
        "host": context.host,
        "hostaddr": "",  # PGHOSTADDR would win over the host
        "port": context.port,
        "dbname": context.database,
        "user": context.user,
        "password": context.password,
        "options": "",
        "target_session_attrs": "any",
        "sslmode": "prefer",
        "gssencmode": "disable",
        "channel_binding": "prefer",
    }
