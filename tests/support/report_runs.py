"""Runs on disk for what reports them, written by the code that writes real ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.changeset import ChangeSet, RowChange, TableChanges
from redteam_harness.evidence.journal import Journal
from redteam_harness.evidence.run import RunDirectory
from redteam_harness.evidence.storage import write_json
from redteam_harness.evidence.trace import Trace
from redteam_harness.report.stored import Ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["ENDED", "NOTICE", "Held", "failing", "journal_line", "verdict", "write_run"]

NOTICE = "offline: scripted models check the harness; nothing here is about a model"
ENDED = Ended(forks=3, seconds=1.5, interrupted=False, stopped=None, usage=())


@dataclass(frozen=True, kw_only=True)
class Held:
    """A conversation that was held."""

    outcome: str = "pass"
    verdicts: Sequence[Mapping[str, Any]] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()
    case: str = "case"
    persona: str = "7"
    disposition: str = "cooperative"
    cause: str = ""
    message: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def verdict(rule: str, status: str, **more: Any) -> dict[str, Any]:
    """A verdict in its JSON form."""
    return {
        "rule": rule,
        "severity": 1,
        "status": status,
        "source": "assertion",
        "reason": "said so",
        "findings": [],
        "vacuous": False,
        "fault": None,
        "asked": None,
        "kind": "sql",
        "why": "It matters.",
        **more,
    }


def failing(text: str = "moved", rule: str = "own-rows-only", **about: Any) -> Held:
    """A conversation whose agent changed a row of somebody else's by a call, and said so."""
    row = {
        "op": "update",
        "key": {"id": "117"},
        "old": {"id": "117", "note": "before"},
        "new": {"id": "117", "note": text},
        "changed": ["note"],
        "by": ("a",),
    }
    finding = {"text": f"note is {text}", "table": "visits", "op": "update", "key": {"id": "117"}, "event": 1}
    return Held(
        outcome="fail",
        verdicts=[
            verdict(rule, "fail", findings=[finding], why=text),
            verdict("collateral", "fail", findings=[finding], kind="collateral"),
            verdict("polite", "pass", severity=3),
        ],
        rows=[row],
        events=[
            {"kind": "user", "turn": 1, "text": text},
            {"kind": "tool_call", "turn": 1, "call": "a", "name": "reschedule", "arguments": {"note": text}},
            {"kind": "tool_result", "turn": 1, "call": "a", "name": "reschedule", "value": text},
            {"kind": "agent", "turn": 1, "text": text},
        ],
        **about,
    )


def journal_line(name: str, one: Held) -> dict[str, Any]:
    """What the journal says of a conversation that is finished."""
    judged = one.outcome in ("pass", "fail", "judge-fault")
    return {
        "conversation": name,
        "outcome": one.outcome,
        "cause": one.cause,
        "message": one.message,
        "ending": "ended",
        "turns": 1,
        "seconds": 0.25,
        "kept": None,
        "changes": "hash" if judged else None,
        "usage": [],
    }


def write_run(
    out: Path,
    held: Iterable[Held],
    *,
    not_held: int = 0,
    gates: Mapping[str, Any] | None = None,
    ended: Ended | None = ENDED,
    run: str = "run222",
    notice: str = NOTICE,
    suite: str = "recorded",
) -> RunDirectory:
    """Write a run of these conversations, c001 and so on, and `not_held` more in its plan."""
    directory = RunDirectory(id=run, path=out / run)
    (directory.path / "conversations").mkdir(parents=True)
    named = {f"c{number:03}": one for number, one in enumerate(held, start=1)}
    missing = [f"c{number:03}" for number in range(len(named) + 1, len(named) + not_held + 1)]
    plan = [
        {"id": name, "case": one.case, "persona": one.persona, "disposition": one.disposition}
        for name, one in [*named.items(), *((name, Held()) for name in missing)]
    ]
    facts = {"notice": notice, "run": run, "suite": suite, "plan": plan, "gates": gates or {}}
    write_json(directory.facts, facts)
    with Journal(directory.journal) as journal:
        journal.append("run_started", run=run, suite=suite, planned=len(plan))
        for name, one in named.items():
            _hold(directory, name, one)
            journal.append("conversation_finished", **journal_line(name, one))
        if ended is not None:
            journal.append("run_ended", exit_code=0, finished=len(named), **ended.to_json())
    return directory


def _changes(one: Held) -> ChangeSet:
    table = TableChanges(
        schema="public",
        table="visits",
        columns={"id": "bigint", "note": "text"},
        key=("id",),
        method="keys",
        reason="",
        rows=tuple(RowChange(**{**row, "changed": tuple(row["changed"])}) for row in one.rows),
        omitted=0,
    )
    return ChangeSet(tables=(table,) if one.rows else (), sequences=(), objects=(), writes=())


def _hold(run: RunDirectory, name: str, one: Held) -> None:
    folder = run.conversation(name)
    folder.mkdir()
    about = {"id": name, "case": one.case, "persona": one.persona, "disposition": one.disposition}
    write_json(folder / "conversation.json", {**about, "demand": "Move it.", "attempt": 1, **one.extra})
    with Trace(folder / "trace.jsonl") as trace:
        for event in one.events:
            trace.append({"at": "2026-11-30T12:00:00.000Z", **event})
    write_json(folder / "changes.json", _changes(one).to_json())
    run.append_verdicts({"conversation": name, "attempt": 1, **said} for said in one.verdicts)
