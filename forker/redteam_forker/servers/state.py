"""The folder of a shared cluster: who may decide about it, and what is written down of it.

    <folder>/               the user's own
        lock                held by the one process that joins, starts or discards the cluster right now
        state.json          0600: where the cluster is, what made it, how to get in

docs/decisions/0004-shared-embedded-server.md has the whole of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from redteam_forker.errors import ServerUnavailable
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["State", "boot_id", "door", "named", "prepare", "read", "write"]

_FILE = "state.json"
_POLL_S = 0.01
_DOOR_TIMEOUT_S = 120.0  # somebody else's whole start, on a slow machine


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the folder says of its cluster.

    Attributes:
        settings: fingerprint of the settings that its data was made with.
        version: of PostgreSQL, as its own program says it.
        boot: of the machine when it was last started.
        run: a random name for that start; the supervisor leaves it behind when all data is on the disk.
        user: the operating system user that it runs as.
        home: its directory.
        password: the superuser's.
        kind: of the place (`servers/placement.py`).
        reason: why it lies there.
        file_system: of the place.
    """

    settings: str
    version: str
    boot: str
    run: str
    user: str
    home: str
    password: str = field(repr=False)
    kind: str
    reason: str
    file_system: str


def boot_id() -> str:
    """A name for the time since the machine was started; empty if it has none, which equals no other."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
        return done.stdout.strip()
    return ""


def prepare(folder: Path) -> Path:
    """Make the folder if need be, and make sure that nobody else can have put anything into it.

    Raises:
        UsageError: it cannot be made or written to, or others can write to it.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve(strict=True)
        status = folder.stat()
        if status.st_uid != os.geteuid():
            raise UsageError(
                f"the folder {folder} of the shared server belongs to another user; name one of your own"
            )
        if status.st_mode & 0o022:
            raise UsageError(
                f"others may write to the folder {folder} of the shared server, and put one of theirs there; "
                f"run chmod go-w {folder}, or name another"
            )
        os.close(_open_lock(folder))
    except (FileExistsError, NotADirectoryError):
        raise UsageError(
            f"{folder} is not a folder, and cannot be the shared server's; name another"
        ) from None
    except OSError as error:
        raise UsageError(
            f"the folder {folder} of the shared server cannot be used: {error.strerror}; name another"
        ) from error
    return folder


def _open_lock(folder: Path) -> int:
    return os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextlib.asynccontextmanager
async def door(folder: Path, *, timeout_s: float = _DOOR_TIMEOUT_S) -> AsyncIterator[None]:
    """Be the one who decides what happens to the cluster. The kernel lets go of it for whoever is killed.

    Raises:
        ServerUnavailable: somebody else has been at it for too long.
    """
    descriptor = await anyio.to_thread.run_sync(_open_lock, folder)
    try:
        with anyio.move_on_after(timeout_s) as scope:
            while not _try(descriptor):  # noqa: ASYNC110 - other processes set no event
                await anyio.sleep(_POLL_S)
        if scope.cancelled_caught:
            raise ServerUnavailable(
                f"another launch has been starting the shared server of {folder} for {timeout_s:.0f} s; "
                "wait for it, end it, or use another folder",
                retryable=True,
            )
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read(folder: Path) -> State | None:
    """What is written down; None if nothing is, or nothing that makes sense."""
    try:
        data = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        state = State(**data)
    except (OSError, ValueError, TypeError):
        return None
    return state if all(isinstance(value, str) for value in data.values()) else None


def named(folder: Path) -> Path | None:
    """The home that a folder names."""
    state = read(folder)
    return Path(state.home) if state else None


def write(folder: Path, state: State | None) -> None:
    """Write it down, whole and for certain: also after the machine crashes in the next moment.

    Raises:
        ServerUnavailable: the file system refuses.
    """
    try:
        if state is None:
            (folder / _FILE).unlink(missing_ok=True)
        else:
            draft = folder / f"{_FILE}.new"
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, json.dumps(asdict(state)).encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            draft.rename(folder / _FILE)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ServerUnavailable(
            f"the shared server cannot be noted down in {folder}: {error.strerror}; free it, or name another"
        ) from error
