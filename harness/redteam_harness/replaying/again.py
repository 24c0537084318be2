"""Levels 2 and 3: a run held once more by the launch, with what is recorded of it in place of the world."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.comparing.parity import MEANINGS, differences
from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.reading import finished_entries, read_facts, read_trace
from redteam_harness.evidence.run import fingerprint
from redteam_harness.launch.agent_specs import PythonAgent
from redteam_harness.launch.conversation import Faulted
from redteam_harness.replaying.derail import CAUSES, derail_of
from redteam_harness.replaying.recording import RecordedActor, recording_of
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import Suite
    from redteam_harness.replaying.recording import Recording
    from redteam_personas import Actor, Script

__all__ = ["Replaying", "replaying"]

_SAME = ("seeds", "role", "plan", "repeat", "cases", "dispositions", "turns")
"""Parts of a comparability key without which the recorded lines are somebody else's."""

_LINES = ("actor", "actor_prompt")
"""Parts that say who made up the lines; where they are recorded, those of the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """A replay of a run, as `launch.recorded.Replay` has it.

    Attributes:
        run: whose evidence is followed; only read.
        recorded: its `run.json`.
        evidence: the hash of its journal's last entry.
        finished: ids of the conversations in it that have an outcome.
        level: 2: recorded lines and answers; 3: only the plan is recorded.
        escalates: whether what derails is held once more, freely.
    """

    run: RunDirectory
    recorded: Mapping[str, Any]
    evidence: str
    finished: frozenset[str]
    level: Literal[2, 3]
    escalates: bool = False

    @property
    def count(self) -> int:
        """How many different conversations the plan has."""
        return sum(one.get("repetition", 1) == 1 for one in self.recorded["plan"])

    @property
    def repeat(self) -> int:
        """How often the plan holds each of them."""
        return max(int(one.get("repetition", 1)) for one in self.recorded["plan"])

    def today(self, anchor: dt.date | None) -> dt.date | None:
        """The day for which the run's dates were moved; level 3 is of today."""
        weeks = {int(template["weeks_moved"]) for template in self.recorded["templates"].values()}
        if self.level == 3 or anchor is None or len(weeks) != 1:
            return None
        return anchor + dt.timedelta(weeks=weeks.pop())

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """`run.json` of the replay, comparable with that of the run where the suite still says the same.

        Raises:
            UsageError: data, plan or personas are not those of the run; or it is to escalate, and others
                would play the personas than did.
        """
        then, now = self.recorded["comparability"], dict(facts["comparability"])
        found = differences(then, now)
        self._check(then, now, found, facts["templates"])
        if self.level == 2:
            if self.escalates and any(name in found for name in _LINES):
                raise UsageError(
                    f"run {self.run.id} cannot be replayed with --escalate, because its personas were played "
                    f"by {then['actor']}, and {now['actor']} would play on: set that model and its key, "
                    "or leave --escalate out"
                )
            now |= {name: then[name] for name in _LINES}
            now["key"] = fingerprint({name: value for name, value in now.items() if name != "key"})
        return {
            **facts,
            "notice": f"replay of {self.run.id}, level {self.level}; {facts['notice']}",
            "comparability": now,
            "replay": {
                "of": self.run.id,
                "at": str(self.run.path.absolute()),
                "level": self.level,
                "escalate": self.escalates,
                "evidence": self.evidence,
            },
        }

    def track(self, planned: Planned, script: Script) -> Following | None:
        """What a conversation follows.

        Raises:
            EnvironmentFault: its trace is damaged.
        """
        if self.level == 3:
            return None
        recording = None
        if planned.id in self.finished:
            recording = recording_of(read_trace(self.run, planned.id))
        return Following(recording, script)

    def check_agent(self, suite: Suite) -> None:
        """Check that recorded answers can be handed to the suite's agent.

        Raises:
            UsageError: they cannot, and there are some.
        """
        agent = suite.spec.agent
        if self.level == 3 or isinstance(agent, PythonAgent):
            return
        for name in sorted(self.finished):
            if any(event["kind"] == "external" for event in read_trace(self.run, name)):
                raise UsageError(
                    f"run {self.run.id} cannot be replayed at level 2: {name} called external tools, whose "
                    f"recorded answers can be handed to python agents only, and agent {agent.name} is "
                    "none; replay it at level 3"
                )

    def _check(
        self,
        then: Mapping[str, Any],
        now: Mapping[str, Any],
        found: Mapping[str, str],
        templates: Mapping[str, Any],
    ) -> None:
        lines = [f"  {name:<14}{MEANINGS[name]}{found[name]}" for name in _SAME if name in found]
        if self.level == 2:
            for case, template in templates.items():
                weeks = self.recorded["templates"].get(case, template)["weeks_moved"]
                if weeks != template["weeks_moved"]:
                    moved = template["weeks_moved"]
                    lines.append(f"  dates of case {case} were moved by {weeks} weeks, and now by {moved}")
        if lines:
            raise UsageError(
                f"run {self.run.id} cannot be replayed, because this is not what it was held with:\n"
                + "\n".join(lines)
                + "\nPut that back, or launch anew"
            )


class Following:
    """One conversation that follows a recording, as `launch.recorded.Track` has it."""

    def __init__(self, recording: Recording | None, script: Script) -> None:
        self._recording = recording
        self._script = script

    @property
    def actor(self) -> Actor:
        """Says the recorded lines."""
        assert self._recording is not None
        return RecordedActor(self._recording)

    @property
    def answers(self) -> Sequence[Mapping[str, Any]]:
        """What external tools answered."""
        return () if self._recording is None else self._recording.answers

    def left(self, events: Sequence[Mapping[str, Any]]) -> Faulted | None:
        """Why the conversation is not the recorded one any more."""
        if self._recording is None:
            return Faulted(whose="replay", cause="not-recorded", message=CAUSES["not-recorded"])
        derail = derail_of(self._recording, self._script, events)
        return None if derail is None else Faulted(whose="replay", cause=derail.cause, message=derail.message)


def replaying(run: RunDirectory, *, level: Literal[2, 3], escalate: bool) -> Replaying:
    """A replay of a run.

    Raises:
        UsageError: nothing of it was held.
        EnvironmentFault: its evidence is damaged.
    """
    facts = read_facts(run)
    if not run.journal.exists():
        raise UsageError(f"run {run.id} never began its first conversation; there is nothing to replay")
    entries = read_journal(run.journal)
    return Replaying(
        run=run,
        recorded=facts,
        evidence=entries[-1]["hash"] if entries else "",
        finished=frozenset(finished_entries(entries)),
        level=level,
        escalates=escalate,
    )
