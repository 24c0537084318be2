"""Holds conversations in which next to nothing happens, on real forks: what passes there, passes for nothing.

Two kinds. The agent that does nothing answers every line with one polite sentence and calls no tool; the
scripted person plays to the end. And the person who stops at once says the opening and hangs up; the suite's
own agent answers it, where it can be started.

They are held and judged as a launch holds and judges them (`launch.drive`), by the conversations that a
launch would begin with; their evidence goes into a folder that is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import anyio

from redteam_harness.evidence.run import read_events
from redteam_harness.evidence.storage import writing
from redteam_harness.launch.drive import hold
from redteam_harness.launch.plan import plan_suite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker import Fork
    from redteam_harness.agents.agent import Opening
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.stage import Stage
    from redteam_harness.launch.suite import Suite
    from redteam_harness.report.summary import Finished
    from redteam_personas import Cast

__all__ = ["POLITE", "Held", "IdleAgent", "Kind", "first_planned", "hold_idle", "hung_up", "without_judges"]

Kind = Literal["does-nothing", "hangs-up"]
"""The agent does nothing, whatever it hears; the person hangs up after the first line."""

POLITE = "Thank you for telling me."
"""All that the agent that does nothing says. No question and no promise: nothing that a rule could want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One such conversation.

    Attributes:
        kind: which of the two.
        by: `nothing` where the agent was the one that does nothing, else the name of the suite's own.
        finished: its outcome and verdicts.
        acted: whether a tool was called, something left the house, or anything changed.
    """

    kind: Kind
    by: str
    finished: Finished
    acted: bool


class IdleAgent:
    """An agent that does nothing: no code of anybody's is run."""

    async def open(self, opening: Opening) -> IdleSession:
        """Start a session."""
        return IdleSession(opening.fork)


class IdleSession:
    """One conversation's."""

    def __init__(self, fork: Fork) -> None:
        self.database = fork.name

    async def turn(self, number: int, text: str) -> str:
        """Answer whatever it is with the same polite sentence."""
        return POLITE

    async def close(self) -> tuple[str, ...]:
        """Nothing is left running."""
        return ()


def first_planned(suite: Suite, cast: Cast, per_case: int) -> tuple[Planned, ...]:
    """The first conversations of the suite's launch: up to so many of each case, no two alike.

    Raises:
        UsageError: see `plan_suite`.
    """
    planned = plan_suite(suite, cast, count=per_case * len(suite.spec.cases), repeat=1)
    seen: set[tuple[str, str, str]] = set()
    first: list[Planned] = []
    for one in planned:
        who = (one.case, one.persona.key, one.disposition)
        if who not in seen:
            seen.add(who)
            first.append(one)
    return tuple(first)


def without_judges(suite: Suite) -> Suite:
    """The suite without what only a model decides: none is asked here."""
    cases = [
        case.model_copy(
            update={"rubric": [name for name in case.rubric if suite.rules[name].kind != "judge"]}
        )
        for case in suite.spec.cases
    ]
    rules = {name: rule.model_copy(update={"judge": None}) for name, rule in suite.rules.items()}
    return replace(suite, spec=suite.spec.model_copy(update={"cases": cases}), rules=rules)


def hung_up(suite: Suite) -> Suite:
    """The suite as it is for people who hang up once the agent has answered their first line."""
    return replace(suite, spec=suite.spec.model_copy(update={"turns": 1}))


async def hold_idle(
    stage: Stage, planned: Sequence[Planned], *, kind: Kind, by: str, parallel: int
) -> list[Held]:
    """Hold them, so many at once; each has a fork of its own, which is dropped. In the plan's order.

    Raises:
        EvidenceFault: what happens cannot be written down.
    """
    held: dict[str, Held] = {}
    limit = anyio.CapacityLimiter(parallel)

    async def one(plan: Planned) -> None:
        async with limit:
            folder = stage.run.conversation(plan.id)
            with writing(folder):
                folder.mkdir()
            finished = await hold(plan, stage)
            events = read_events(folder / "trace.jsonl")
            changes = finished.changes or {}
            acted = any(changes.get(part) for part in ("tables", "objects")) or any(
                event["kind"] in ("tool_call", "external") for event in events
            )
            held[plan.id] = Held(kind=kind, by=by, finished=finished, acted=acted)

    async with anyio.create_task_group() as conversations:
        for plan in planned:
            conversations.start_soon(one, plan)
    return [held[plan.id] for plan in planned]
