"""Append-only files of JSON lines that several people may write at once.

A line is on disk before the writer is told. A writer that is killed leaves at most a last line without its
end, which is no line: readers leave it out, and the next writer takes it off. Writers lock the file, so that
a line that looks cut is never one that somebody is just writing.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.storage import json_text
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["append_line", "read_lines"]


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one line and sync it to disk; the file is made if it is not there.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    line = (json_text(value) + "\n").encode()
    try:
        fresh = not path.exists()
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _cut_half_line(file.fileno())
            while line:  # a full disk may take a part of it; the rest then raises
                line = line[os.write(file.fileno(), line) :]
            os.fsync(file.fileno())
        if fresh:
            _sync_folder(path.parent)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror or error}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines; none where there is no such file.

    Raises:
        EnvironmentFault: it cannot be read, or a line of it is no JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise EnvironmentFault(f"{path} cannot be read: {reason}") from error
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise EnvironmentFault(
                f"{path}:{number}: this is no JSON object; take the line out or restore it"
            )
        found.append(value)
    return found


def _cut_half_line(file: int) -> None:
    """Take off a last line that has no end; whoever wrote it is gone, for the file is locked."""
    size = end = os.fstat(file).st_size
    while end and os.pread(file, 1, end - 1) != b"\n":
        end -= 1
    if end < size:
        os.ftruncate(file, end)


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
