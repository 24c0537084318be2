"""Where a throwaway cluster's data lies, and what that file system can do.

The place decides what a fork costs (docs/forker.md has the figures): a reflink file system clones files
without reading them; tmpfs stays flat over any number of forks; ext4 slows down, because its allocator steps
over inodes that were deleted lately, unless the directory is marked as the top of a hierarchy (`chattr +T`).
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from redteam_forker.errors import ServerUnavailable
from redteam_sdk.errors import UsageError

__all__ = [
    "DISK_ROOTS",
    "MEMORY_ROOT",
    "Placement",
    "available_memory",
    "choose",
    "file_system_of",
    "free_bytes",
    "kept_bytes",
]

MEMORY_ROOT = Path("/dev/shm")  # noqa: S108 - a mode 0700 directory is made inside it
DISK_ROOTS = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - likewise

# An empty cluster has 40 MB; this leaves room for a template, its baseline and some forks.
_NEEDED_BYTES = 256 << 20
# Memory that forks may grow into before tmpfs is a risk for the machine.
_MEMORY_BUDGET_BYTES = 2 << 30
# What a cluster that is kept may take up while nobody uses it: a share of all that there is, and a cap.
_KEPT_SHARE = {"memory": 8, "disk": 10, "reflink": 10}
_KEPT_CAP_BYTES = {"memory": 4 << 30, "disk": 20 << 30, "reflink": 20 << 30}
_FICLONE = 0x40049409
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A directory for clusters.

    Attributes:
        root: an existing directory that we may write to.
        kind: `reflink`, `memory` or `disk`.
        reason: why this one, in words, for the person who wonders about speed.
        file_system: its name as the kernel has it, for example `xfs`; empty where that is not known.
    """

    root: Path
    kind: str
    reason: str
    file_system: str

    @property
    def clones(self) -> bool:
        """Whether `file_copy_method = clone` works there."""
        return self.kind == "reflink"


def choose(
    data_root: Path | None = None,
    *,
    memory_root: Path = MEMORY_ROOT,
    disk_roots: tuple[Path, ...] = DISK_ROOTS,
) -> Placement:
    """Pick where data goes: the directory given, else reflink, else memory within a budget, else disk.

    Blocks for some milliseconds (it tries the file systems), so it is called in a worker thread.

    Raises:
        UsageError: `data_root` is not a directory that we may write to.
        ServerUnavailable: it, or every candidate, is full.
    """
    if data_root is not None:
        root = _usable(data_root)
        kind = _kind(root)
        return _placement(root, kind, f"the data root that was given, {_DESCRIBED[kind]}")
    disks = [
        root
        for root in disk_roots
        if os.access(root, os.W_OK | os.X_OK) and free_bytes(root) >= _NEEDED_BYTES
    ]
    for root in disks:
        if _has_reflink(root):
            return _placement(root, "reflink", "a file system that clones files")
    available = min(free_bytes(memory_root), available_memory())
    if os.access(memory_root, os.W_OK | os.X_OK) and available >= _MEMORY_BUDGET_BYTES:
        reason = f"memory: {available // _MIB} MB are free and no disk here clones files"
        return _placement(memory_root, "memory", reason)
    if disks:
        why = f"{available // _MIB} MB of memory are too few and no disk here clones files"
        return _placement(disks[0], "disk", f"disk: {why}")
    raise ServerUnavailable(
        f"no room for a database cluster: {_NEEDED_BYTES // _MIB} MB are needed in "
        f"{', '.join(map(str, disk_roots))} or {memory_root}; free some, or name another data root"
    )


_DESCRIBED = {
    "reflink": "on a file system that clones files",
    "memory": "in memory",
    "disk": "on disk",
}


def _placement(root: Path, kind: str, reason: str) -> Placement:
    return Placement(root=root, kind=kind, reason=reason, file_system=file_system_of(root))


def kept_bytes(root: Path, kind: str) -> int:
    """How much a cluster in `root` may take up while it is stopped and kept for the next launch, in bytes.

    An eighth of the machine's memory and at most 4 GiB, or a tenth of the disk and at most 20 GiB.
    """
    if kind == "memory":
        total = _memory()
    else:
        stat = os.statvfs(root)
        total = stat.f_blocks * stat.f_frsize
    return min(total // _KEPT_SHARE[kind], _KEPT_CAP_BYTES[kind])


def _usable(data_root: Path) -> Path:
    try:
        root = data_root.resolve(strict=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        free = free_bytes(root)
    except FileNotFoundError:
        raise UsageError(f"the data root {data_root} does not exist; create it, or name another") from None
    except NotADirectoryError:
        raise UsageError(f"the data root {data_root} is a file; name a directory") from None
    except PermissionError:
        raise UsageError(f"the data root {data_root} is not writable for this user; name another") from None
    except OSError as error:
        raise ServerUnavailable(
            f"the data root {data_root} cannot be used: {error.strerror}; free it, or name another"
        ) from error
    if free < _NEEDED_BYTES:
        raise ServerUnavailable(
            f"the data root {data_root} has {free // _MIB} MB free, {_NEEDED_BYTES // _MIB} MB are needed; "
            "free some, or name another"
        )
    return root


def free_bytes(root: Path) -> int:
    """What an ordinary user may still write there, in bytes; 0 where there is no such place."""
    try:
        stat = os.statvfs(root)
    except OSError:
        return 0
    return stat.f_bavail * stat.f_frsize


def _kind(root: Path) -> str:
    if _has_reflink(root):
        return "reflink"
    return "memory" if file_system_of(root) == "tmpfs" else "disk"


def _has_reflink(root: Path) -> bool:
    """Clone a real file: what a file system says of itself depends on how it was made (XFS) or mounted."""
    try:
        with tempfile.TemporaryFile(dir=root) as source, tempfile.TemporaryFile(dir=root) as copy:
            source.write(b"x" * 4096)
            source.flush()
            fcntl.ioctl(copy.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def file_system_of(root: Path) -> str:
    """The kind of the deepest mount above `root`, by the kernel's own table; empty where there is none."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, found = "", ""
    for line in mounts:
        _, point, kind, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        if len(point) >= len(best) and root.is_relative_to(point):
            best, found = point, kind
    return found


def _memory() -> int:
    """The machine's memory, or the container's limit, in bytes."""
    total = _first_number(Path("/proc/meminfo"), r"^MemTotal:\s+(\d+) kB") << 10
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        cap = _first_number(Path("/sys/fs/cgroup") / limit, r"^(\d+)$")
        total = min(total, cap) if cap else total
    return total


def available_memory() -> int:
    """Bytes that may be taken now: the machine's, or what the container's limit leaves."""
    available = _first_number(Path("/proc/meminfo"), r"^MemAvailable:\s+(\d+) kB") << 10
    for group, limit, used in (
        (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        cap = _first_number(group / limit, r"^(\d+)$")
        if cap:
            # The cache of files that nobody reads now counts as used, but is given back when needed.
            cache = _first_number(group / "memory.stat", r"^(?:total_)?inactive_file (\d+)$")
            available = min(available, max(0, cap - _first_number(group / used, r"^(\d+)$") + cache))
    return available


def _first_number(file: Path, pattern: str) -> int:
    try:
        match = re.search(pattern, file.read_text(encoding="ascii", errors="replace"), re.MULTILINE)
    except OSError:
        return 0
    return int(match.group(1)) if match else 0
