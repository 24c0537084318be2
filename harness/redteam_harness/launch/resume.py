"""Going on with a run that ended before its plan did: killed, interrupted, or out of budget.

What is in the journal is finished and stays as it is, byte for byte. A conversation that was cut off is set
aside and held anew, and where it is asked for one that a fault of ours ended, too; what it used is counted.
The plan must come out as it was, or what is held now would not belong to the run.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.reading import finished_entries, read_conversations, read_facts
from redteam_harness.evidence.run import read_events
from redteam_harness.models.usage import spent_from_json, spent_in
from redteam_harness.report.stored import restored
from redteam_harness.report.summary import FAULTS
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.plan import Planned
    from redteam_harness.models.usage import Ledger
    from redteam_harness.report.summary import Finished

__all__ = ["Resumed", "resuming"]

_SHORT = 40
_FEW = 5
_ELSEWHERE = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A run that is gone on with.

    Attributes:
        run: its directory.
        journal: its journal, locked.
        facts: its `run.json`.
        entries: its `conversation_finished` entries, by conversation; of several of one, the last. Those that
            are to be held again are not among them.
        retried: ids of conversations that a fault of ours ended, and that are held again.
        attempt: which launch of the run this is, from 2.
    """

    run: RunDirectory
    journal: Journal
    facts: Mapping[str, Any]
    entries: Mapping[str, Mapping[str, Any]]
    retried: tuple[str, ...]
    attempt: int

    @property
    def planned(self) -> int:
        """How many conversations its plan has."""
        return len(self.facts["plan"])

    @property
    def count(self) -> int:
        """How many different conversations its plan has."""
        return sum(one.get("repetition", 1) == 1 for one in self.facts["plan"])

    @property
    def repeat(self) -> int:
        """How often its plan holds each of them."""
        return max(int(one.get("repetition", 1)) for one in self.facts["plan"])

    def check(self, facts: Mapping[str, Any]) -> None:
        """Check that what is to be launched is what was launched.

        Args:
            facts: the `run.json` that this launch would write.

        Raises:
            UsageError: it is not; names every difference.
        """
        now = json.loads(json.dumps(facts))
        different = [
            *_differences(self.facts["comparability"], now["comparability"]),
            *_differences(self.facts["agent"], now["agent"], "agent."),
            *_differences({"notice": self.facts["notice"]}, {"notice": now["notice"]}),
            *_differences(self.facts.get("gates", now["gates"]), now["gates"], "gates."),
        ]
        if different:
            raise UsageError(
                f"run {self.run.id} cannot be resumed, because this launch is not the same: "
                f"{'; '.join(different)}. Put that back, or launch anew"
            )

    def restore(self, planned: Sequence[Planned]) -> list[Finished]:
        """The conversations that are finished, from their evidence."""
        plan = {one["id"]: one for one in self.facts["plan"]}
        held = [one.id for one in planned if one.id in self.entries]
        return [
            restored(plan[name], self.entries[name], stored)
            for name, stored in read_conversations(self.run, held)
        ]

    def set_aside(self, planned: Sequence[Planned]) -> list[str]:
        """Set aside what was cut off; returns the ids."""
        cut = [
            one.id for one in planned if one.id not in self.entries and self.run.conversation(one.id).exists()
        ]
        for name in cut:
            self.run.abandon(name, self.attempt - 1)
        return cut

    def book(self, ledger: Ledger) -> None:
        """Count what earlier launches of the run used, those of abandoned conversations too.

        Raises:
            EnvironmentFault: an abandoned trace cannot be read.
        """
        for name, entry in self.entries.items():
            ledger.book(name, [spent_from_json(row) for row in entry.get("usage", ())])
        for folder in self.run.abandoned:
            for trace in ("trace.jsonl", "trace-lost.jsonl"):
                try:
                    ledger.book(_ELSEWHERE, spent_in(read_events(folder / trace)))
                except (OSError, ValueError, KeyError, TypeError) as error:
                    raise EnvironmentFault(f"trace {folder / trace} cannot be read: {error}") from error


@contextmanager
def resuming(run: RunDirectory, *, retry_faults: bool) -> Iterator[Resumed]:
    """Take a run up again; nobody else may write it while this is open.

    Args:
        run: its directory.
        retry_faults: whether conversations that a fault of ours ended are held again.

    Raises:
        UsageError: there is nothing left to hold, it never began, or another launcher writes it.
        EnvironmentFault: its evidence is damaged.
    """
    facts = read_facts(run)
    if not run.journal.exists():
        raise UsageError(f"run {run.id} never began its first conversation; launch anew")
    with Journal(run.journal, resume=True) as journal:
        entries = read_journal(run.journal)
        finished = finished_entries(entries)
        faults = sorted(name for name, entry in finished.items() if entry["outcome"] in FAULTS)
        retried = faults if retry_faults else []
        if len(finished) == len(facts["plan"]) and not retried:
            again = f"; --retry-faults holds {_these(faults)} again, which faults of ours ended"
            raise UsageError(
                f"run {run.id} has nothing left to hold: all {len(finished)} are finished"
                + (again if faults else "")
            )
        finished = {name: entry for name, entry in finished.items() if name not in retried}
        launches = sum(entry["kind"] in ("run_started", "run_resumed") for entry in entries)
        yield Resumed(
            run=run,
            journal=journal,
            facts=facts,
            entries=finished,
            retried=tuple(retried),
            attempt=launches + 1,
        )


def _these(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _FEW else f"{len(names)} of them"


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name in sorted({*then, *now} - {"key"}):
        old, new = then.get(name), now.get(name)
        if old != new:
            shown = f" was {_shown(old)}, is {_shown(new)}" if _is_short(old) and _is_short(new) else ""
            found.append(f"{prefix}{name}{shown}")
    return found


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | None) and len(str(value)) <= _SHORT


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
