"""Roles: the login of a fork, the group with the application's rights, and the settings that go with them.

A fork's role owns nothing and has nothing of its own but CONNECT and TEMP on its fork. What it may do inside
comes from membership in the template's group, so grants and row-level security hold it as they hold the
application.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_forker.names import quote_ident, quote_literal
from redteam_forker.sql import query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker.servers.server import ServerFacts

__all__ = [
    "CONNECTIONS_PER_FORK",
    "Setting",
    "adoption",
    "application_problems",
    "execute_shared",
    "is_collision",
    "login_statements",
    "new_password",
    "role_statements",
    "scram_verifier",
    "setting_statement",
    "shut_out",
]

CONNECTIONS_PER_FORK = 5
# Iterations stretch guessable passwords; ours have 192 random bits. Each login, and the server when it makes
# the role (it tries the empty password), would pay for them.
_SCRAM_ITERATIONS = 1
_SALT_BYTES = 16
_ATTEMPTS = 20
_SHUT_OUT_S = 20.0
_SHUT_OUT_PAUSE_S = 0.02

# Their values are lists of names, kept as text with their own quotes; as one literal they would become one
# name.
_NAME_LISTS = frozenset(
    {
        "local_preload_libraries",
        "search_path",
        "session_preload_libraries",
        "shared_preload_libraries",
        "temp_tablespaces",
        "unix_socket_directories",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One `ALTER DATABASE ... SET` or `ALTER ROLE ... IN DATABASE ... SET`: what a clone does not copy (P25).

    Attributes:
        role: whom it is for; None is everybody, and an empty string the fork's own role.
        name: the setting's.
        value: as the catalog keeps it.
    """

    role: str | None
    name: str
    value: str


def new_password() -> str:
    """192 random bits, in characters that need no quoting in a URI."""
    return secrets.token_urlsafe(24)


def scram_verifier(password: str, *, salt: bytes | None = None, iterations: int = _SCRAM_ITERATIONS) -> str:
    """What Postgres keeps instead of the password; made here, so that no statement holds the password.

    Args:
        password: ASCII, since SASLprep is not done here.
        salt: random if not given.
        iterations: of PBKDF2.
    """
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    stored, server, salted_text = (
        base64.b64encode(data).decode("ascii")
        for data in (hashlib.sha256(client_key).digest(), server_key, salt)
    )
    return f"SCRAM-SHA-256${iterations}:{salted_text}${stored}:{server}"


def adoption(facts: ServerFacts, name: str) -> tuple[str, ...]:
    """What lets us act for a role that we just made: hand it objects, and end its sessions (P20).

    A superuser may anyway, and from PostgreSQL 16 on `createrole_self_grant` sees to it.
    """
    if facts.superuser or facts.version_num >= 160000:
        return ()
    return (f"GRANT {quote_ident(name)} TO CURRENT_USER",)


def role_statements(name: str, *, group: str, version_num: int) -> tuple[str, ...]:
    """Create a fork's role, with the application's rights and no way in: no login, no password, no CONNECT.

    It inherits the group's rights and, where the server can forbid it, may not become the group or the
    application by SET ROLE: as the application it could change that role's settings, which are every fork's
    (P50).
    """
    role = quote_ident(name)
    options = " WITH INHERIT TRUE, SET FALSE" if version_num >= 160000 else ""
    return (
        f"CREATE ROLE {role} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS INHERIT "
        f"CONNECTION LIMIT {CONNECTIONS_PER_FORK}",
        f"GRANT {quote_ident(group)} TO {role}{options}",
    )


def login_statements(name: str, *, verifier: str, lifetime_s: float) -> tuple[str, ...]:
    """Let a fork's role into its own database, which bears the same name, by the server's clock."""
    role, literal = quote_ident(name), quote_literal(name)
    return (
        # VALID UNTIL takes a constant only, and asking for the time first would be one more round trip.
        f"DO $login$ BEGIN EXECUTE format('ALTER ROLE %I LOGIN PASSWORD %L VALID UNTIL %L', {literal}, "
        f"{quote_literal(verifier)}, now() + make_interval(secs => {float(lifetime_s)!r})); END $login$",
        f"GRANT CONNECT, TEMPORARY ON DATABASE {role} TO {role}",
    )


def setting_statement(setting: Setting, database: str) -> str:
    """The statement that gives `database` a setting which its template had."""
    if setting.name in _NAME_LISTS:
        names = _split_names(setting.value)
        value = ", ".join(quote_literal(name) for name in names) if names else "''"
    else:
        value = quote_literal(setting.value)
    # Extensions' settings have two parts, each a name.
    name = ".".join(quote_ident(part) for part in setting.name.split("."))
    if setting.role is None:
        return f"ALTER DATABASE {quote_ident(database)} SET {name} TO {value}"
    role = quote_ident(setting.role or database)
    return f"ALTER ROLE {role} IN DATABASE {quote_ident(database)} SET {name} TO {value}"


def _split_names(text: str) -> list[str]:
    """Split `"$user", public` as Postgres does: quotes may hold commas, and a doubled quote is one."""
    names: list[str] = []
    rest = text.strip()
    while rest:
        if rest.startswith('"'):
            end = 1
            while True:
                end = rest.index('"', end)
                if rest[end : end + 2] != '""':
                    break
                end += 2
            names.append(rest[1:end].replace('""', '"'))
            rest = rest[end + 1 :]
        else:
            name, comma, rest = rest.partition(",")
            names.append(name.strip())
            rest = comma + rest
        rest = rest.strip().removeprefix(",").strip()
    return names


async def execute_shared(connection: asyncpg.Connection, statements: Sequence[str]) -> None:
    """Run statements on shared catalogs in one transaction, again when another session was in the way.

    Roles and databases are the cluster's, and Postgres answers two writers of one row with an error, not a
    wait.

    Raises:
        asyncpg.PostgresError: as it comes; another error, or the same once too often.
    """
    script = ";\n".join(statements)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            await connection.execute(script)
        except asyncpg.PostgresError as error:
            if attempt == _ATTEMPTS or not is_collision(error):
                raise
            await anyio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - spreads writers, no secret
        else:
            return


async def shut_out(connection: asyncpg.Connection, name: str, *, patience_s: float = 0.0) -> int:
    """Take a role's login away. A session of its own that stands in the way is ended, the others stay.

    It stands in the way while it changes its own role, or holds all the locks that the server has.

    Args:
        connection: an administration session.
        name: the role's.
        patience_s: how long such a session is waited for, in seconds.

    Returns:
        How many sessions were ended.

    Raises:
        asyncpg.PostgresError: as it comes.
    """
    statements = ["SET LOCAL lock_timeout = '100ms'", f"ALTER ROLE {quote_ident(name)} NOLOGIN"]
    began, ended = anyio.current_time(), 0
    while True:
        try:
            await execute_shared(connection, statements)
        except (asyncpg.LockNotAvailableError, asyncpg.OutOfMemoryError):
            waited_s = anyio.current_time() - began
            if waited_s > patience_s + _SHUT_OUT_S:
                raise
            if waited_s >= patience_s:
                ended += len(await connection.fetch(query("end_sessions"), name))
            await anyio.sleep(_SHUT_OUT_PAUSE_S)
        else:
            return ended


def is_collision(error: asyncpg.PostgresError) -> bool:
    """Whether another writer of the same row of a shared catalog was in the way."""
    if isinstance(error, asyncpg.DeadlockDetectedError | asyncpg.SerializationError):
        return True
    return isinstance(error, asyncpg.InternalServerError) and "concurrently" in str(error.args[0])


async def application_problems(connection: asyncpg.Connection, role: str) -> list[str]:
    """Why `role` cannot stand for the application: sentences; empty if it can. In the seeded database."""
    row = await connection.fetchrow(query("application_role"), role)
    if row is None:
        return ["it does not exist after the seed was loaded"]
    problems = [f"it is {attribute}" for attribute in row["attributes"]]
    problems += [f"it is a member of {other}" for other in row["memberships"]]
    if row["owned"]:
        listed = ", ".join(row["owned"][:5]) + (", ..." if len(row["owned"]) > 5 else "")
        problems.append(f"it owns {listed}, so row-level security would not hold it")
    return problems
