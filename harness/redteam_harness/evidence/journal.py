"""The journal of a run: append-only, hash-chained, on disk before anyone is told.

Each line is one JSON object whose `prev` is the hash of the line before it and whose `hash` is the SHA-256 of
its own canonical JSON without `hash`. A line that was changed, taken out or put in breaks the chain; a last
line that was cut by a crash is no line at all. Who writes a journal holds a lock on it, which ends with the
process.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.storage import canonical, json_text, writing
from redteam_harness.evidence.trace import now
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["Journal", "read_journal"]

_GENESIS = "0" * 64


class Journal:
    """Writes `journal.jsonl`. One launcher writes a journal; readers may read it at any time."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        """Begin a journal, or go on with one: its last line, if a crash cut it, is taken off.

        Args:
            path: where.
            resume: whether it is there already.

        Raises:
            EvidenceFault: it cannot be written, or is there although it should not be.
            EnvironmentFault: its chain is broken.
            UsageError: another launcher is writing it.
        """
        self._path = path
        self._last = _GENESIS
        with writing(path):
            self._file = path.open("r+" if resume else "x", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise UsageError(
                f"run {path.parent} is still being written by another launcher; wait for it, or stop it"
            ) from None
        if resume:
            try:
                self._go_on()
            except BaseException:
                self._file.close()
                raise

    def _go_on(self) -> None:
        entries = read_journal(self._path)
        self._last = entries[-1]["hash"] if entries else _GENESIS
        with writing(self._path):
            whole = self._path.read_bytes()
            os.ftruncate(self._file.fileno(), whole.rfind(b"\n") + 1)
            self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, kind: str, **facts: Any) -> str:
        """Append one entry and sync it to disk before returning its hash.

        Raises:
            EvidenceFault: it could not be written.
        """
        entry = {"kind": kind, "at": now(), "prev": self._last, **facts}
        entry["hash"] = _hash(entry)
        with writing(self._path):
            self._file.write(json_text(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._last = entry["hash"]
        return str(entry["hash"])


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Read a journal and check its chain.

    Raises:
        EnvironmentFault: it cannot be read, or an entry is not what was written.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise EnvironmentFault(f"journal {path} cannot be read: {error.strerror}") from None
    entries: list[dict[str, Any]] = []
    last = _GENESIS
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline was cut by a crash
        try:
            entry = json.loads(line)
            intact = entry["prev"] == last and entry["hash"] == _hash(entry)
        except (ValueError, KeyError, TypeError):
            intact = False
        if not intact:
            raise EnvironmentFault(
                f"{path}:{number}: the journal's chain is broken: an entry was changed, taken out or put in"
            )
        entries.append(entry)
        last = entry["hash"]
    return entries


def _hash(entry: dict[str, Any]) -> str:
    body = {key: value for key, value in entry.items() if key != "hash"}
    return hashlib.sha256(canonical(body).encode()).hexdigest()
