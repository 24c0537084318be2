"""Servers as others have them: roles that are no superuser, grants as the only wall, other settings."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries, open_server, placement
from support.databases import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

__all__ = ["open_to_all", "own_cluster", "stranger"]

_QUICK = {
    "listen_addresses": "",
    "fsync": "off",
    "autovacuum": "off",
    "shared_buffers": "32MB",
    "max_connections": 60,
}


@contextlib.asynccontextmanager
async def open_to_all() -> AsyncIterator[Server]:
    """A server of its own on which grants are the only wall."""
    async with open_server() as server:
        _let_all_in(server)
        async with connected(server) as admin:
            await admin.execute("SELECT pg_reload_conf()")
        yield server


def _let_all_in(server: Server) -> None:
    Path(server.facts.host, "../data/pg_hba.conf").write_text("local all all scram-sha-256\n")


@contextlib.asynccontextmanager
async def stranger(server: Server, rights: str) -> AsyncIterator[str]:
    """The DSN of a role with some rights and a database of its own name."""
    name, password = f"stranger_{secrets.token_hex(4)}", secrets.token_hex(8)
    host = urllib.parse.quote(server.facts.host, safe="")
    async with connected(server) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN {rights} PASSWORD '{password}'")
        await admin.execute(f"CREATE DATABASE {name} OWNER {name} STRATEGY FILE_COPY")
        await admin.execute(f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")
        try:
            yield f"postgresql://{name}:{password}@{host}:{server.facts.port}/{name}"
        finally:
            owned = await admin.fetch(
                "SELECT datname FROM pg_database WHERE pg_get_userbyid(datdba) = $1", name
            )  # its registry too, if it made one
            for row in owned:
                await admin.execute(f"DROP DATABASE {row['datname']} WITH (FORCE)")
            await admin.execute(f"DROP ROLE {name}")


@contextlib.asynccontextmanager
async def own_cluster(**settings: object) -> AsyncIterator[str]:
    """The DSN of a superuser on a throwaway cluster with settings that an embedded server would not have."""
    user = binaries.runner(None)
    programs = binaries.reachable(binaries.installed(), user)
    who = {"user": user.uid, "group": user.gid, "extra_groups": []} if user else {}
    home = Path(tempfile.mkdtemp(prefix="rtf-own-", dir=placement.choose().root))
    if user:
        os.chown(home, user.uid, user.gid)
    initdb = [
        "--username=rt_admin",
        "--auth=trust",
        "--no-sync",
        "--no-instructions",
        "--locale=C",
        "-E",
        "UTF8",
    ]
    options = [
        part
        for name, value in {**_QUICK, "unix_socket_directories": home, **settings}.items()
        for part in ("-c", f"{name}={value}")
    ]
    run: dict[str, Any] = {"cwd": home, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **who}
    try:
        await anyio.to_thread.run_sync(
            lambda: subprocess.run([programs / "initdb", *initdb, "-D", home / "data"], check=True, **run)
        )
        process = subprocess.Popen([programs / "postgres", "-D", home / "data", *options], **run)  # noqa: ASYNC220
        try:
            dsn = f"postgresql://rt_admin@/postgres?host={urllib.parse.quote(str(home), safe='')}"
            with anyio.fail_after(20):
                await _answering(dsn)
            yield dsn
        finally:
            process.send_signal(signal.SIGQUIT)
            await anyio.to_thread.run_sync(process.wait)
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _answering(dsn: str) -> None:
    while True:
        try:
            async with open_server(dsn):
                return
        except ServerUnavailable:
            await anyio.sleep(0.02)
