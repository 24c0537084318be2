"""The directory of one embedded cluster, locked as long as any of its processes lives, and swept after.

    <root>/rtf-<random>/    ours, 0711
        lock                held by the supervisor and by every process of PostgreSQL
        data/  s/           PostgreSQL's, 0700: the cluster, and its socket
        log

A lock that can be had means that every process of the cluster is gone, whatever killed it; process ids, which
are used again, are never looked at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers.placement import DISK_ROOTS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Home", "make", "remove", "sweep"]

_PREFIX = "rtf-"
_SOCKETS_PREFIX = "rts-"
# A socket's path may have 107 bytes, of which its name takes 16.
_MAX_SOCKET_DIRECTORY_BYTES = 84
_PLAIN_PATH = re.compile(r"\A[A-Za-z0-9_./+-]+\Z")
# A home without a lock was left by a process that died in the instant between the two; give a live one time.
_UNLOCKED_GRACE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A cluster's directory and the lock on it, held by us until the supervisor has it.

    Attributes:
        path: the directory.
        sockets: where the socket is to be: in it, or in a short path of its own.
        remove: all directories that go when the cluster goes.
        lock_fd: the open lock; whoever got it closes it once the supervisor runs.
    """

    path: Path
    sockets: Path
    remove: tuple[Path, ...]
    lock_fd: int


def make(root: Path, *, short_root: Path = DISK_ROOTS[-1]) -> Home:
    """Make a home below `root`.

    Raises:
        ServerUnavailable: the file system refuses.
    """
    made: list[Path] = []
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        made.append(path)
        path.chmod(0o711)
        sockets = path / "s"
        if len(os.fsencode(sockets)) > _MAX_SOCKET_DIRECTORY_BYTES or not _PLAIN_PATH.match(str(sockets)):
            short = Path(tempfile.mkdtemp(prefix=_SOCKETS_PREFIX, dir=short_root))
            made.append(short)
            short.chmod(0o711)
            (path / "elsewhere").write_text(str(short), encoding="utf-8")
            sockets = short / "s"
        # Locked before it gets its name, so that a sweep never sees it free.
        descriptor = os.open(path / "lock.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (path / "lock.new").rename(path / "lock")
    except OSError as error:
        remove(made)
        raise ServerUnavailable(
            f"cannot make a directory for a database cluster in {root}: {error.strerror}; "
            "free it, or name another data root"
        ) from error
    return Home(path=path, sockets=sockets, remove=tuple(made), lock_fd=descriptor)


def remove(directories: Iterable[Path]) -> None:
    """Remove a home's directories, as far as they are there."""
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(roots: Iterable[Path]) -> list[Path]:
    """Remove the homes in `roots` whose processes are all gone, and return them. Only ever our own user's.

    Never raises: what cannot be removed now is tried again at the next start.
    """
    swept = []
    for root in dict.fromkeys(roots):
        with contextlib.suppress(OSError):
            for path in sorted(root.glob(f"{_PREFIX}*")):
                if _is_abandoned(path):
                    remove((*_elsewhere(path), path))
                    swept.append(path)
    return swept


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _is_abandoned(path: Path) -> bool:
    if not _is_ours(path):
        return False
    try:
        descriptor = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ENOENT:
            return False
        with contextlib.suppress(OSError):
            return time.time() - path.stat().st_mtime > _UNLOCKED_GRACE_S
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _elsewhere(path: Path) -> list[Path]:
    try:
        other = Path((path / "elsewhere").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
    return [other] if other.name.startswith(_SOCKETS_PREFIX) and _is_ours(other) else []
