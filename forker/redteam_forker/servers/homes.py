"""The directory of one embedded cluster, locked as long as any of its processes lives, and swept after.

    <root>/rtf-<random>/    ours, 0711; rtk-<random> where the cluster is kept between launches
        lock                held by the supervisor and by every process of PostgreSQL
        data/  s/           PostgreSQL's, 0700: the cluster, and its socket
        c/                  ours, 0700: the socket of a kept cluster's supervisor
        keeper              the folder whose state file names a kept cluster
        log

A lock that can be had means that every process of the cluster is gone, whatever killed it; process ids, which
are used again, are never looked at. A kept cluster's directory stays all the same, as long as its folder is
there and names it.
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
    from collections.abc import Callable, Iterable

__all__ = ["Home", "make", "remove", "sockets_of", "sweep", "take"]

_PREFIX = "rtf-"
_KEPT_PREFIX = "rtk-"
_SOCKETS_PREFIX = "rts-"
# A socket's path may have 107 bytes, of which its name takes 16.
_MAX_SOCKET_DIRECTORY_BYTES = 84
_PLAIN_PATH = re.compile(r"\A[A-Za-z0-9_./+-]+\Z")
# A home without a lock was left by a process that died in the instant between the two; give a live one time.
_UNLOCKED_GRACE_S = 600.0
# A folder that is not there may be one that is not mounted here.
_LOST_KEEPER_GRACE_S = 3600.0


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

    @property
    def control(self) -> Path:
        """The socket of a kept cluster's supervisor."""
        return self.sockets.with_name("c") / "s"


def make(root: Path, *, short_root: Path = DISK_ROOTS[-1], keeper: Path | None = None) -> Home:
    """Make a home below `root`.

    Args:
        root: an existing directory.
        short_root: where the socket goes when `root` is too long a path for one.
        keeper: the folder that keeps the cluster, or None for one that goes with its processes.

    Raises:
        ServerUnavailable: the file system refuses.
    """
    made: list[Path] = []
    try:
        path = Path(tempfile.mkdtemp(prefix=_KEPT_PREFIX if keeper else _PREFIX, dir=root))
        made.append(path)
        path.chmod(0o711)
        sockets = path / "s"
        if len(os.fsencode(sockets)) > _MAX_SOCKET_DIRECTORY_BYTES or not _PLAIN_PATH.match(str(sockets)):
            short = Path(tempfile.mkdtemp(prefix=_SOCKETS_PREFIX, dir=short_root))
            made.append(short)
            short.chmod(0o711)
            (path / "elsewhere").write_text(str(short), encoding="utf-8")
            sockets = short / "s"
        if keeper is not None:
            (path / "keeper").write_bytes(os.fsencode(keeper))
            sockets.with_name("c").mkdir(mode=0o700)
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


def take(path: Path) -> Home | None:
    """The home of a kept cluster, locked; None while any of its processes lives.

    Raises:
        OSError: there is none, or it is not ours.
    """
    if not _is_ours(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    descriptor = _locked(path)
    if descriptor is None:
        return None
    return Home(path=path, sockets=sockets_of(path), remove=(path, *_elsewhere(path)), lock_fd=descriptor)


def sockets_of(path: Path) -> Path:
    """The directory of a home's socket."""
    elsewhere = _elsewhere(path)
    return (elsewhere[0] if elsewhere else path) / "s"


def remove(directories: Iterable[Path]) -> None:
    """Remove a home's directories, as far as they are there."""
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(roots: Iterable[Path], *, named: Callable[[Path], Path | None] | None = None) -> list[Path]:
    """Remove the homes in `roots` whose processes are all gone, and return them. Only ever our own user's.

    Never raises: what cannot be removed now is tried again at the next start.

    Args:
        roots: directories that hold homes.
        named: the home that a folder keeps, if any; without it, every kept home is left alone.
    """
    swept = []
    for root in dict.fromkeys(roots):
        with contextlib.suppress(OSError):
            for path in sorted(root.glob(f"{_PREFIX}*")):
                if _is_abandoned(path):
                    swept.append(path)
                    remove((*_elsewhere(path), path))
        with contextlib.suppress(OSError):
            for path in sorted(root.glob(f"{_KEPT_PREFIX}*")) if named else ():
                if named and not _is_kept(path, named) and _is_abandoned(path):
                    swept.append(path)
                    remove((*_elsewhere(path), path))
    return swept


def _is_kept(path: Path, named: Callable[[Path], Path | None]) -> bool:
    """Whether a folder still names this home, or may do so where we cannot see it."""
    try:
        keeper = Path(os.fsdecode((path / "keeper").read_bytes()))
        if keeper.is_dir():
            return named(keeper) == path
        return time.time() - path.stat().st_mtime < _LOST_KEEPER_GRACE_S
    except OSError:
        return False


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
        descriptor = _locked(path)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return time.time() - path.stat().st_mtime > _UNLOCKED_GRACE_S
        return False
    except OSError:
        return False
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def _locked(path: Path) -> int | None:
    """The open lock of a home, or None while somebody else holds it."""
    descriptor = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _elsewhere(path: Path) -> list[Path]:
    try:
        other = Path((path / "elsewhere").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
    return [other] if other.name.startswith(_SOCKETS_PREFIX) and _is_ours(other) else []
