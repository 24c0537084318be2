"""The verdicts of a run that people are asked about: the latest by each rule, of all rejudgings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.appending import read_lines
from redteam_harness.evidence.run import read_events
from redteam_rubrics import Asked
from redteam_rubrics.judge.votes import ALONE
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory
    from redteam_rubrics import Fault, Source, Status

__all__ = ["LatestVerdict", "agent_length", "latest_verdicts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestVerdict:
    """What was said last of one conversation by one rule, of all rejudgings.

    Attributes:
        conversation: which one.
        rule: the rule.
        severity: its severity.
        source: who said so.
        status: what. A pass that the rule did not count, because a judge alone passes nothing of severity 1,
            is a pass here: how often the judge is wrong about it is worth knowing.
        fault: where it is unclear because something of ours failed.
        asked: the judge, where one was asked.
        why: why the rule is there; may be empty.
    """

    conversation: str
    rule: str
    severity: int
    source: Source
    status: Status
    fault: Fault | None
    asked: Asked | None
    why: str


def latest_verdicts(run: RunDirectory) -> list[LatestVerdict]:
    """The verdicts that count, a rejudging before what it judged again; by conversation, then severity.

    Raises:
        EnvironmentFault: the evidence cannot be read.
    """
    attempts: dict[str, int | None] = {}
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in read_lines(run.path / "verdicts.jsonl"):
        name = line["conversation"]
        if name not in attempts:
            attempts[name] = _attempt(run.conversation(name) / "conversation.json")
        # A crash leaves verdicts of an attempt that does not count.
        if line.get("attempt", 1) != attempts[name]:
            continue
        before = latest.get((name, line["rule"]))
        if before is None or line.get("rejudging", 0) >= before.get("rejudging", 0):
            latest[name, line["rule"]] = line
    found = [
        LatestVerdict(
            conversation=name,
            rule=rule,
            severity=line["severity"],
            source=line["source"],
            status="pass" if str(line["reason"]).startswith(ALONE) else line["status"],
            fault=line.get("fault"),
            asked=Asked.from_json(line["asked"]) if line.get("asked") else None,
            why=line.get("why") or "",
        )
        for (name, rule), line in latest.items()
    ]
    return sorted(found, key=lambda one: (one.conversation, one.severity, one.rule))


def agent_length(run: RunDirectory, conversation: str) -> int:
    """How many characters the agent's lines have.

    Raises:
        EnvironmentFault: the trace cannot be read.
    """
    path = run.conversation(conversation) / "trace.jsonl"
    try:
        events = read_events(path)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"{path} cannot be read: {error}") from error
    return sum(len(str(event["text"])) for event in events if event["kind"] == "agent")


def _attempt(path: Path) -> int | None:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"{path} cannot be read: {error}") from error
    attempt = about.get("attempt", 1)
    assert isinstance(attempt, int)
    return attempt
