"""A run's labels: what people said of its conversations, in `labels.jsonl` beside its verdicts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.appending import append_line, read_lines
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from redteam_rubrics import Status

__all__ = ["LABELS", "StoredLabel", "append_label", "evidence_hash", "last_said", "read_labels"]

LABELS = "labels.jsonl"

_EVIDENCE = ("conversation.json", "trace.jsonl", "changes.json", "outbox.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLabel:
    """One line of `labels.jsonl`. A later line of the same person about the same thing replaces it.

    Attributes:
        at: when, UTC in ISO 8601.
        run: the run's id.
        conversation: which conversation.
        rule: by which rule.
        status: pass, fail or unclear.
        reason: in the person's words; may be empty.
        who: the person.
        evidence: `evidence_hash` of what was looked at.
        question: what the person was asked, where the rule is a question; None where it is none, or the suite
            was not there to read it.
        prompt: the hash of what a judge was asked by that question at the time; None where there is none.
        blind: whether the verdicts were hidden meanwhile.
    """

    at: str
    run: str
    conversation: str
    rule: str
    status: Status
    reason: str
    who: str
    evidence: str
    question: str | None
    prompt: str | None
    blind: bool

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "at": self.at,
            "run": self.run,
            "conversation": self.conversation,
            "rule": self.rule,
            "status": self.status,
            "reason": self.reason,
            "who": self.who,
            "evidence": self.evidence,
            "question": self.question,
            "prompt": self.prompt,
            "blind": self.blind,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StoredLabel:
        """The reverse of `to_json`.

        Raises:
            KeyError, ValueError: it is no label.
        """
        if data["status"] not in ("pass", "fail", "unclear"):
            raise ValueError(f"status is {data['status']!r}, not pass, fail or unclear")
        return cls(
            at=data["at"],
            run=data["run"],
            conversation=data["conversation"],
            rule=data["rule"],
            status=data["status"],
            reason=data["reason"],
            who=data["who"],
            evidence=data["evidence"],
            question=data["question"],
            prompt=data["prompt"],
            blind=data["blind"],
        )


def append_label(path: Path, label: StoredLabel) -> None:
    """Append a label; it is on disk on return.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    append_line(path, label.to_json())


def read_labels(path: Path) -> list[StoredLabel]:
    """All labels in the order in which they were given; none where there is no such file.

    Raises:
        EnvironmentFault: it cannot be read, or a line of it is no label.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            found.append(StoredLabel.from_json(line))
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise EnvironmentFault(f"{path}:{number}: this is no label ({what}); restore the line") from None
    return found


def last_said(labels: Iterable[StoredLabel]) -> dict[tuple[str, str, str, str], StoredLabel]:
    """The label that counts, by person, run, conversation and rule: the last one."""
    return {(label.who, label.run, label.conversation, label.rule): label for label in labels}


def evidence_hash(folder: Path) -> str:
    """SHA-256, in hexadecimal, of what a conversation's folder holds to be judged.

    A label speaks of exactly this: of a conversation that was held again, it says nothing.

    Raises:
        EnvironmentFault: a file cannot be read.
    """
    digest = hashlib.sha256()
    for name in _EVIDENCE:
        path = folder / name
        try:
            content = path.read_bytes() if path.is_file() else b""
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
