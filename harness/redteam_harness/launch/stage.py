"""What every conversation of a launch shares: the server, the agent, the suite, the evidence, the limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redteam_forker import Pool, Registry, Server, Template
    from redteam_harness.agents.agent import Agent
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.mint import Mint
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.plants import Planted
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.recorded import Replay
    from redteam_harness.launch.suite import Suite
    from redteam_harness.models.calls import ModelCalls
    from redteam_harness.models.judge import JudgeEndpoint
    from redteam_harness.registers.degraded import IsolationLevel
    from redteam_harness.registers.mocks import Fidelity
    from redteam_personas import Actor, Script

__all__ = ["Keep", "Stage"]

Keep = Literal["failed", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Built once by `launch`, read by every conversation.

    Attributes:
        suite: what is launched.
        server: where forks live.
        templates: the template of each case, by its id (cases with setup SQL have one of their own).
        seeds: the hash of every seed that a template was built from, in order.
        agent: opens agent sessions.
        mint: signs contexts.
        actor: makes the actor of a conversation from its plan and script.
        calls: makes every call of a model.
        judge: the model that rules with a `judge` ask, or None where nobody is asked.
        waits_s: how long a turn may wait for models, beside what the agent may take for it.
        run: the evidence directory.
        progress: what a person sees.
        registry: where the forks are registered as this launch's.
        pools: the warm pool of each case, by its id.
        keep: which forks stay after their conversation.
        attempt: which launch of the run this is, from 1.
        replay: what is replayed, or None: nothing is.
        planted: which plants are there for whom, by conversation; those of cases without plants are absent.
        isolation: what a conversation's isolation must have before its first turn; None: nothing is demanded.
        walls: what became of attempts to enter other databases by a fork's role, by database; None: nobody
            tried.
        fidelity: the suite's register of what its mocks do not do; None: it has none.
        undropped: names of forks that could not be dropped; conversations add to it.
        reached: other databases that a fork's role may connect to, as measured; conversations add to it.
    """

    suite: Suite
    server: Server
    templates: Mapping[str, Template]
    seeds: tuple[str, ...]
    agent: Agent
    mint: Mint
    actor: Callable[[Planned, Script], Actor]
    calls: ModelCalls
    judge: JudgeEndpoint | None = None
    waits_s: float
    run: RunDirectory
    progress: Progress
    registry: Registry
    pools: Mapping[str, Pool]
    keep: Keep
    attempt: int
    replay: Replay | None = None
    planted: Mapping[str, Planted] = field(default_factory=dict)
    isolation: IsolationLevel | None = None
    walls: Mapping[str, str] | None = None
    fidelity: Fidelity | None = None
    undropped: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
