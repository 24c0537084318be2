"""Where benchmarks put their clusters, and on what machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator, Sequence

__all__ = ["DISK", "Place", "machine", "places", "quiet"]

MEMORY = Path("/dev/shm")  # noqa: S108 - the forker makes directories of its own there
DISK = Path("/var/tmp")  # noqa: S108 - likewise
XFS_BYTES = 16 << 30
UNMOUNT_S = 20.0
QUIET_PERCENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file system to put clusters on."""

    name: str
    title: str
    root: Path


def places(stack: contextlib.ExitStack, names: Sequence[str]) -> Iterator[Place]:
    """The places of these names that can be had; says why one cannot. The stack takes them away again."""
    for name in names:
        if name == "memory":
            yield Place(name=name, title="memory (tmpfs)", root=MEMORY)
        elif name == "disk":
            yield Place(name=name, title=f"disk ({_kind(DISK)})", root=DISK)
        elif name == "xfs":
            found = _xfs(stack)
            if isinstance(found, Path):
                yield Place(name=name, title="XFS with reflink", root=found)
            else:
                print(f"left out: xfs: {found}\n")
        else:
            raise SystemExit(f"no place is named {name!r}; there are memory, disk and xfs")


def _xfs(stack: contextlib.ExitStack) -> Path | str:
    """A mounted XFS that clones files, in a loop file; or why there is none."""
    if os.geteuid() != 0:
        return "only root may mount it"
    if shutil.which("mkfs.xfs") is None:
        return "mkfs.xfs is not installed (xfsprogs)"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rt-bench-xfs-", dir=DISK)))
    folder.chmod(0o755)
    image, mount = folder / "image", folder / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(XFS_BYTES)
    stack.callback(_unmount, mount)  # first: we may be ended in the middle of mounting
    for command in (
        ["mkfs.xfs", "-q", "-m", "reflink=1", str(image)],
        ["mount", "-o", "loop", str(image), str(mount)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{command[0]} says: {done.stderr.strip()}"
    return mount


def _unmount(mount: Path) -> None:
    """Take it away; a server on it that is being stopped keeps it for a moment."""
    until = time.monotonic() + UNMOUNT_S
    while mount.is_mount():
        done = subprocess.run(["umount", str(mount)], capture_output=True, text=True, check=False)
        if done.returncode and time.monotonic() > until:
            raise SystemExit(f"{mount} stays mounted: {done.stderr.strip()}")
        time.sleep(0.1 if done.returncode else 0)


def _kind(path: Path) -> str:
    command = ["df", "--output=fstype", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]


def machine() -> str:
    """Processor, memory and Python, in a line."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cpu = names[0] if names else platform.machine()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({cpu}), {memory_gib:.0f} GiB, Python {platform.python_version()}"


def quiet(patience_s: float) -> str:
    """Wait until others leave the machine alone, for so long at most; returns how busy it is, in percent."""
    until = time.monotonic() + patience_s
    while True:
        before = _busy_and_all()
        time.sleep(2)
        busy, whole = (now - then for now, then in zip(_busy_and_all(), before, strict=True))
        share = 100 * busy / max(whole, 1)
        if share < QUIET_PERCENT or time.monotonic() > until:
            return f"{share:.0f} %"


def _busy_and_all() -> tuple[int, int]:
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(word) for word in line.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
