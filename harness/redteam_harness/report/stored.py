"""The report of a run from its evidence alone: finished, interrupted, or still going on.

The journal says which conversations count, run.json what was planned and what the run must reach; everything
else is computed anew. A launch makes its own report in the same way, so that the two cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.reading import finished_entries, read_conversations, read_facts
from redteam_harness.models.usage import spent_from_json, sum_spent
from redteam_harness.registers.people import fidelity_of_run, read_calibrations, suite_folder_of
from redteam_harness.report.attacks import attacks_of
from redteam_harness.report.attribution import attribute
from redteam_harness.report.gates import gates_of
from redteam_harness.report.late import late_lines
from redteam_harness.report.mocks import called_externals
from redteam_harness.report.summary import Finished, summarise
from redteam_harness.report.thresholds import GatesSpec
from redteam_rubrics.calibration import Calibration
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redteam_harness.evidence.run import RunDirectory, StoredConversation
    from redteam_harness.models.usage import Spent
    from redteam_harness.report.summary import Summary

__all__ = ["Ended", "read_report", "restored", "stored_finished"]

_GOING_ON = "the run has not ended: it is still going on, or it was killed"
# Which conversation, and which attempt, is said elsewhere.
_PLACE = frozenset({"conversation", "attempt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What only the launch knows, and leaves in the journal's `run_ended`.

    Attributes:
        forks: how many forks were made.
        seconds: how long the launch held conversations.
        interrupted: whether a person stopped it.
        stopped: why no more were started, where something of ours stopped that.
        usage: what models used in all launches of the run, those of abandoned conversations too.
    """

    forks: int
    seconds: float
    interrupted: bool
    stopped: str | None
    usage: tuple[Spent, ...]

    def to_json(self) -> dict[str, Any]:
        """As the journal has it."""
        return {
            "forks": self.forks,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "stopped": self.stopped,
            "usage": [spent.to_json() for spent in self.usage],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ended:
        """The reverse of `to_json`; the journal's entry has more."""
        return cls(
            forks=data["forks"],
            seconds=data["seconds"],
            interrupted=data["interrupted"],
            stopped=data["stopped"],
            usage=tuple(spent_from_json(row) for row in data["usage"]),
        )


def read_report(run: RunDirectory, ended: Ended | None = None) -> Summary:
    """What a run found, from its evidence.

    Args:
        run: its directory; nothing in it is written.
        ended: what the journal's `run_ended` is about to say, where the launch itself asks.

    Raises:
        UsageError: the run never began, so there is nothing to report.
        EnvironmentFault: the journal's chain is broken, or a file is damaged.
    """
    facts = read_facts(run)
    if not run.journal.exists():
        raise UsageError(f"run {run.id} never began its first conversation; there is nothing to report")
    entries = read_journal(run.journal)
    # Through JSON even where the launch asks, so that nothing is rounded here and not there.
    ended = _ended(entries) if ended is None else Ended.from_json(ended.to_json())
    held = finished_entries(entries)
    plan = facts["plan"]
    finished = [restored(one, held[name], stored) for one, name, stored in _finished(run, plan, held)]
    not_held = [one["id"] for one in plan if one["id"] not in held]
    summary = summarise(
        finished,
        notice=facts["notice"],
        suite=facts["suite"],
        run=run.id,
        planned=len(plan),
        forks=ended.forks,
        interrupted=ended.interrupted,
        seconds=ended.seconds,
        not_held=not_held,
        stopped=ended.stopped if not_held else None,
        usage=ended.usage,
        launches=sum(entry["kind"] in _BEGINNINGS for entry in entries),
        repeat=max((_repetition(one["id"]) for one in plan), default=1),
        calibrations=_calibrations(facts),
        mocks=facts.get("mocks"),
        persona_fidelity=fidelity_of_run(facts),
    )
    gates = gates_of(summary, GatesSpec.model_validate(facts.get("gates", {})), summary.judge)
    return replace(summary, gates=gates)


def stored_finished(run: RunDirectory, summary: Summary) -> Iterator[tuple[str, StoredConversation]]:
    """The evidence of every finished conversation, in the report's order.

    Raises:
        EnvironmentFault: a file is not there or damaged.
    """
    return read_conversations(run, [one.id for one in summary.finished])


def restored(planned: Mapping[str, Any], entry: Mapping[str, Any], stored: StoredConversation) -> Finished:
    """A finished conversation, from its evidence.

    Args:
        planned: its item of the plan in run.json.
        entry: its `conversation_finished` in the journal.
        stored: its files.
    """
    verdicts = [
        {name: value for name, value in verdict.items() if name not in _PLACE}
        for verdict in (stored.verdicts if entry["changes"] else ())
    ]
    changes = stored.changes if entry["changes"] else None
    attribution = (
        attribute(verdicts, stored.events, changes, planned["persona"])
        if entry["outcome"] == "fail"
        else None
    )
    return Finished(
        id=planned["id"],
        case=planned["case"],
        persona=planned["persona"],
        disposition=planned["disposition"],
        outcome=entry["outcome"],
        turns=entry["turns"],
        ending=entry["ending"],
        cause=entry["cause"],
        message=entry["message"],
        verdicts=verdicts,
        changes=changes,
        seconds=entry["seconds"],
        kept=entry["kept"],
        late=late_lines(stored.events),
        attacks=attacks_of(stored.about, stored.events, verdicts),
        repetition=_repetition(planned["id"]),
        attribution=None if attribution is None else attribution.to_json(),
        attestation=entry.get("attestation"),
        externals=called_externals(stored.events),
    )


def _finished(
    run: RunDirectory, plan: Sequence[Mapping[str, Any]], held: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], str, StoredConversation]]:
    planned = {one["id"]: one for one in plan if one["id"] in held}
    for name, stored in read_conversations(run, planned):
        yield planned[name], name, stored


def _ended(entries: Sequence[Mapping[str, Any]]) -> Ended:
    """What the journal says of the end, or of how far a run has come that has none."""
    last = entries[-1] if entries else {}
    if last.get("kind") == "run_ended" and "forks" in last:
        return Ended.from_json(last)
    held = [entry for entry in entries if entry["kind"] == "conversation_finished"]
    began = next((entry for entry in reversed(entries) if entry["kind"] in _BEGINNINGS), last)
    return Ended(
        forks=len(held),
        seconds=_between(began.get("at"), last.get("at")),
        interrupted=last.get("exit_code") == 130,
        stopped=last.get("stopped") if last.get("kind") == "run_ended" else _GOING_ON,
        usage=sum_spent(spent_from_json(row) for entry in held for row in entry.get("usage", ())),
    )


_BEGINNINGS = frozenset({"run_started", "run_resumed"})


def _repetition(conversation: str) -> int:
    return int(conversation.partition(".")[2] or 1)


def _calibrations(facts: Mapping[str, Any]) -> list[Calibration]:
    """The suite's register as it is now, since people label after a run; else as it was at the launch."""
    folder = suite_folder_of(facts)
    now = [] if folder is None else read_calibrations(folder)
    return now or [Calibration.from_json(one) for one in facts.get("calibrations", ())]


def _between(first: str | None, last: str | None) -> float:
    if first is None or last is None:
        return 0.0
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
