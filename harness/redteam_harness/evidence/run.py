"""One directory per run: the source of truth, readable without us (docs/evidence.md).

run.json                      what was launched: everything that decides whether two runs may be compared
journal.jsonl                 append-only and hash-chained; says which conversations finished, and how
verdicts.jsonl                append-only; one line per verdict
conversations/<id>/           conversation.json trace.jsonl changes.json outbox.jsonl judge.jsonl
abandoned/<id>-<attempt>/     the same of a conversation that a crash cut off, and that was held again
report.html report.md report.json junit.xml      made at the end, from the above
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.storage import canonical, json_text, writing
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "RunDirectory",
    "StoredConversation",
    "fingerprint",
    "new_run",
    "open_run",
    "read_conversation",
    "read_events",
    "rejudgings",
]

_ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"
_ID_LETTERS = 6
_CONVERSATIONS = "conversations"
_ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """The paths of one run.

    Attributes:
        id: the run's short name, unique among the runs beside it.
        path: the directory.
    """

    id: str
    path: Path

    @property
    def journal(self) -> Path:
        """The journal's path."""
        return self.path / "journal.jsonl"

    @property
    def facts(self) -> Path:
        """The path of `run.json`."""
        return self.path / "run.json"

    def conversation(self, conversation: str) -> Path:
        """The directory of one conversation."""
        return self.path / _CONVERSATIONS / conversation

    def abandon(self, conversation: str, attempt: int) -> None:
        """Set aside what a conversation that never finished left behind, so that it can be held anew.

        Args:
            conversation: its id.
            attempt: of the launch that began it, from 1.

        Raises:
            EvidenceFault: it cannot be moved.
        """
        aside = self.path / _ABANDONED
        with writing(aside):
            aside.mkdir(exist_ok=True)
            self.conversation(conversation).rename(aside / f"{conversation}-{attempt}")

    @property
    def abandoned(self) -> list[Path]:
        """The directories of conversations that were set aside."""
        return sorted((self.path / _ABANDONED).glob("*"))

    def append_verdicts(self, verdicts: Iterable[Mapping[str, Any]]) -> None:
        """Append verdicts and sync them to disk.

        Raises:
            EvidenceFault: they could not be written.
        """
        _append(self.path / "verdicts.jsonl", verdicts)

    def append_judged(self, conversation: str, *records: Mapping[str, Any]) -> None:
        """Append to a conversation's `judge.jsonl` what a judge was asked and answered, and sync it to disk.

        Raises:
            EvidenceFault: it could not be written.
        """
        _append(self.conversation(conversation) / "judge.jsonl", records)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """What the evidence holds of one conversation; a part that was never written is empty.

    Attributes:
        about: `conversation.json`: case, persona, disposition, demand.
        events: the trace.
        changes: the change set in its JSON form, or None where none was taken.
        verdicts: its lines of `verdicts.jsonl`, as they were given when it was held.
        rejudged: its lines of `verdicts.jsonl` that rejudgings added, in their order; `rejudging` of each
            says which.
    """

    about: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    changes: Mapping[str, Any] | None
    verdicts: tuple[Mapping[str, Any], ...]
    rejudged: tuple[Mapping[str, Any], ...] = ()


def new_run(base: Path) -> RunDirectory:
    """Make the directory of a new run under `base`.

    Raises:
        EvidenceFault: it cannot be made there.
    """
    with writing(base):
        base.mkdir(parents=True, exist_ok=True)
    while True:
        name = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LETTERS))
        path = base / name
        with writing(path):
            try:
                path.mkdir()
            except FileExistsError:
                continue
            (path / _CONVERSATIONS).mkdir()
        return RunDirectory(id=name, path=path)


def open_run(reference: str, base: Path) -> RunDirectory:
    """Find a run by its path, its name under `base`, or the word `latest`.

    Raises:
        UsageError: there is no such run; the message lists those that there are.
    """
    if reference == "latest":
        runs = sorted(_runs(base), key=lambda path: (path / "run.json").stat().st_mtime)
        if runs:
            return RunDirectory(id=runs[-1].name, path=runs[-1])
    for path in (Path(reference), base / reference):
        if (path / "run.json").is_file():
            return RunDirectory(id=path.resolve().name, path=path)
    known = ", ".join(sorted(path.name for path in _runs(base))[:10])
    there = f"runs there: {known}" if known else "there are none there yet; `redteam launch` makes one"
    raise UsageError(f"no run {reference!r} under {base}; {there}")


def _runs(base: Path) -> list[Path]:
    return [path.parent for path in base.glob("*/run.json")]


def read_conversation(run: RunDirectory, conversation: str) -> StoredConversation:
    """Read what the evidence holds of one conversation.

    Raises:
        UsageError: the run has no such conversation.
        EnvironmentFault: a file of it is damaged.
    """
    folder = run.conversation(conversation)
    if not (folder / "conversation.json").is_file():
        ids = sorted(path.name for path in (run.path / _CONVERSATIONS).glob("*"))
        span = f"it has {ids[0]} to {ids[-1]}" if ids else "none was started"
        raise UsageError(f"run {run.id} has no conversation {conversation!r}; {span}")
    try:
        changes = folder / "changes.json"
        about = json.loads((folder / "conversation.json").read_text(encoding="utf-8"))
        verdicts = [
            verdict
            for verdict in _lines(run.path / "verdicts.jsonl")
            if verdict["conversation"] == conversation
            # A crash between verdicts and journal leaves verdicts of an attempt that does not count.
            and verdict.get("attempt", 1) == about.get("attempt", 1)
        ]
        return StoredConversation(
            about=about,
            events=read_events(folder / "trace.jsonl"),
            changes=json.loads(changes.read_text(encoding="utf-8")) if changes.is_file() else None,
            verdicts=tuple(verdict for verdict in verdicts if "rejudging" not in verdict),
            rejudged=tuple(verdict for verdict in verdicts if "rejudging" in verdict),
        )
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"the evidence in {folder} cannot be read: {error}") from error


def rejudgings(run: RunDirectory) -> list[int]:
    """The numbers of the run's rejudgings, those among them that were cut off.

    Raises:
        OSError, ValueError: `verdicts.jsonl` cannot be read.
    """
    found = {verdict.get("rejudging") for verdict in _lines(run.path / "verdicts.jsonl")}
    return sorted(number for number in found if number is not None)


def read_events(path: Path) -> tuple[dict[str, Any], ...]:
    """The events of a trace; none where there is no such file.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    return tuple(_lines(path))


def _append(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with writing(path), path.open("a", encoding="utf-8") as file:
        _cut_half_line(path)
        file.write("".join(json_text(record) + "\n" for record in records))
        file.flush()
        os.fsync(file.fileno())


def _cut_half_line(path: Path) -> None:
    """Take off a last line that a crash cut, so that the next does not continue it."""
    with path.open("r+b") as file:
        whole = file.read()
        if not whole.endswith(b"\n"):
            file.truncate(whole.rfind(b"\n") + 1)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    whole = path.read_text(encoding="utf-8").split("\n")[:-1]  # a line cut by a crash is no line
    return [json.loads(line) for line in whole]


def fingerprint(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
