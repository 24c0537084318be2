"""Real processes in tests: which are alive, and waiting for them to go."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["children", "is_alive", "parent", "until", "working_in"]

_DEADLINE_S = 20.0


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    return _status(pid).get("State", "X")[0] not in "ZX"


def parent(pid: int) -> int:
    """The process that a process would report to."""
    return int(_status(pid)["PPid"])


def children(pid: int) -> list[int]:
    """The living processes whose parent is `pid`."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [child for child in found if _status(child).get("PPid") == str(pid) and is_alive(child)]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; raises TimeoutError when it takes too long."""
    with anyio.fail_after(_DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - other processes set no event
            await anyio.sleep(0.01)


def working_in(folder: Path) -> list[int]:
    """The living processes that work in a folder, or below it: a cluster's do in its data directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            with contextlib.suppress(OSError):
                if Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                    found.append(int(entry.name))
    return found


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
