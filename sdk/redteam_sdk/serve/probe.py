"""Asks the addresses in the environment which database they lead to.

Run as a program, `python -m redteam_sdk.serve.probe NAME...`, it prints `{"name": "database"}` as one line of
JSON, or says on standard error what could not be asked and ends with 1. No address is ever printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["LIBPQ_VARIABLES", "ask_addresses", "read_address"]

LIBPQ_VARIABLES = "the PG* variables"
"""How the answer of the variables that libpq and asyncpg read by themselves is named."""

_URL = re.compile(r"postgres(ql)?(\+\w+)?://")
_QUESTION = "SELECT pg_catalog.current_database()::text"
_CONNECT_S = 10.0
_WHERE = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}


def read_address(value: str) -> dict[str, Any] | None:
    """What an address says of where to connect, as asyncpg's arguments; None where it is no address.

    Addresses are URLs, also with a driver as SQLAlchemy writes them (`postgresql+psycopg://`), and libpq's
    `dbname=... host=...`. Options that do not say where are left out.
    """
    if _URL.match(value):
        parts = urlsplit(value)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        given = {
            "host": parts.hostname and unquote(parts.hostname),
            "port": parts.port,
            "user": parts.username and unquote(parts.username),
            "password": parts.password and unquote(parts.password),
            "database": unquote(parts.path[1:]),
        }
    elif re.search(r"(^|\s)dbname\s*=", value):
        pairs = (word.partition("=") for word in shlex.split(value))
        options, given = {name.strip(): text.strip() for name, _, text in pairs}, {}
    else:
        return None
    given |= {_WHERE[name]: text for name, text in options.items() if name in _WHERE}
    found = {name: text for name, text in given.items() if text}
    return {**found, "port": int(found["port"])} if "port" in found else found


async def ask_addresses(names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The database that each address in the environment leads to, by the variable's name.

    Args:
        names: the variables. Those that start with PG are asked together, under `LIBPQ_VARIABLES`. One that
            holds no address of a form that `read_address` knows is left out.
        environment: the process's own; the PG variables in it must be in `os.environ`.

    Raises:
        EnvironmentFault: an address gave no connection; says which variable's.
    """
    found: dict[str, str] = {}
    for name in names:
        if not name.startswith("PG"):
            where = read_address(environment[name])
            if where is not None:
                found[name] = await _ask(f"the address in {name}", where)
        elif LIBPQ_VARIABLES not in found:
            found[LIBPQ_VARIABLES] = await _ask(LIBPQ_VARIABLES, {})
    return found


async def _ask(what: str, where: dict[str, Any]) -> str:
    try:
        connection = await asyncpg.connect(**where, timeout=_CONNECT_S)
        try:
            return str(await connection.fetchval(_QUESTION, timeout=_CONNECT_S))
        finally:
            await connection.close(timeout=_CONNECT_S)
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = f"{type(error).__name__}: {error}"
    # Outside of the handler: asyncpg's frames hold the secret in their variables.
    raise EnvironmentFault(f"{what} gave no connection: {reason}")


def main() -> None:
    """Ask the addresses in the variables that are named as arguments."""
    try:
        found = asyncio.run(ask_addresses(sys.argv[1:], os.environ))
    except EnvironmentFault as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
