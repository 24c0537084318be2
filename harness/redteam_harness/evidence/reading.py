"""Reading a run: its facts, and all its conversations in one pass over the files that they share."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.run import StoredConversation, read_events
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from redteam_harness.evidence.run import RunDirectory

__all__ = ["finished_entries", "read_conversations", "read_facts", "read_trace"]


def read_facts(run: RunDirectory) -> dict[str, Any]:
    """`run.json` of a run.

    Raises:
        EnvironmentFault: it cannot be read.
    """
    try:
        facts = json.loads(run.facts.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"{run.facts} cannot be read: {error}") from error
    assert isinstance(facts, dict)
    return facts


def finished_entries(entries: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The `conversation_finished` entries of a journal that count, by conversation.

    Of several of one conversation it is the last; one that a later launch of the run set aside to hold the
    conversation again does not count any more.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        match entry["kind"]:
            case "conversation_finished":
                found[entry["conversation"]] = entry
            case "run_resumed":
                for name in entry.get("retried", ()):
                    found.pop(name, None)
    return found


def read_trace(run: RunDirectory, conversation: str) -> tuple[dict[str, Any], ...]:
    """The events of one conversation; none where no trace was written.

    Raises:
        EnvironmentFault: it is damaged.
    """
    path = run.conversation(conversation) / "trace.jsonl"
    try:
        return read_events(path)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"{path} cannot be read: {error}") from error


def read_conversations(
    run: RunDirectory, conversations: Iterable[str]
) -> Iterator[tuple[str, StoredConversation]]:
    """What the evidence holds of each conversation, one after the other: only one is in memory at a time.

    Raises:
        EnvironmentFault: a file is not there or damaged.
    """
    path = run.path / "verdicts.jsonl"
    verdicts: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    try:
        # A verdicts file is read as a trace is: a line that a crash cut is no line.
        for verdict in read_events(path):
            verdicts[verdict["conversation"]].append(verdict)
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentFault(f"{path} cannot be read: {error}") from error
    for name in conversations:
        folder = run.conversation(name)
        try:
            about = json.loads((folder / "conversation.json").read_text(encoding="utf-8"))
            changes = folder / "changes.json"
            # A crash between verdicts and journal leaves verdicts of an attempt that does not count.
            said = [one for one in verdicts[name] if one.get("attempt", 1) == about.get("attempt", 1)]
            stored = StoredConversation(
                about=about,
                events=read_events(folder / "trace.jsonl"),
                changes=json.loads(changes.read_text(encoding="utf-8")) if changes.is_file() else None,
                verdicts=tuple(one for one in said if "rejudging" not in one),
                rejudged=tuple(one for one in said if "rejudging" in one),
            )
        except (OSError, ValueError) as error:
            raise EnvironmentFault(f"the evidence in {folder} cannot be read: {error}") from error
        yield name, stored
