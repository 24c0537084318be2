"""Where idle conversations are held: warm forks, stand-ins, and a folder that is removed."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from redteam_harness.agents.host import ProcessAgent
from redteam_harness.agents.isolated import IsolatedAgent
from redteam_harness.checks.idling import IdleAgent, hold_idle, hung_up, without_judges
from redteam_harness.evidence.run import new_run
from redteam_harness.launch.agent_specs import HttpAgent
from redteam_harness.launch.agents import open_agent
from redteam_harness.launch.mint import Mint
from redteam_harness.launch.players import Access, ModelOptions, choose_players
from redteam_harness.launch.prepare import open_pools
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.rehearse import rehearse
from redteam_harness.launch.services import Issuing
from redteam_harness.launch.stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from redteam_forker import Pool, Registry, Server
    from redteam_harness.agents.agent import Agent
    from redteam_harness.agents.code import AgentCode
    from redteam_harness.checks.idling import Held
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.plants import Planted
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.prepare import Built
    from redteam_harness.launch.suite import Suite

__all__ = ["Answered", "Ground", "open_ground"]

_PARALLEL = 4


class Answered(NamedTuple):
    """What the suite's own agent did with people who hang up, and what is marked in its code."""

    held: list[Held]
    code: AgentCode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where idle conversations are held.

    Attributes:
        suite: whose; its judges are not asked.
        server: where forks live.
        registry: where they are registered.
        built: the templates.
        pools: the warm forks of each case, by its id.
        players: scripted stand-ins.
        planted: which plants are there for whom, by conversation.
        folder: takes the evidence.
        undropped: names of forks that could not be dropped; conversations add to it.
    """

    suite: Suite
    server: Server
    registry: Registry
    built: Built
    pools: Mapping[str, Pool]
    players: Players
    progress: Progress
    planted: Mapping[str, Planted]
    folder: Path
    undropped: list[str] = field(default_factory=list)

    async def agent_does_nothing(self, planned: Sequence[Planned]) -> list[Held]:
        """Hold whole conversations with the agent that does nothing.

        Raises:
            EvidenceFault: what happens cannot be written down.
        """
        stage = self._stage(self.suite, IdleAgent(), self._mint)
        return await hold_idle(stage, planned, kind="does-nothing", by="nothing", parallel=_PARALLEL)

    async def person_hangs_up(self, planned: Sequence[Planned]) -> list[Held]:
        """Hold conversations of one line with the agent that does nothing.

        Raises:
            EvidenceFault: what happens cannot be written down.
        """
        stage = self._stage(hung_up(self.suite), IdleAgent(), self._mint)
        return await hold_idle(stage, planned, kind="hangs-up", by="nothing", parallel=_PARALLEL)

    async def person_hangs_up_on_agent(
        self, planned: Sequence[Planned], environment: Mapping[str, str]
    ) -> Answered:
        """Hold conversations of one line with the suite's own agent, started as a launch starts it.

        Args:
            planned: which.
            environment: the launcher's; the agent gets it without what looks like a secret.

        Raises:
            UsageError: it cannot be imported or started, or cannot hold a conversation; possibly in a group.
            EvidenceFault: what happens cannot be written down.
        """
        name = self.suite.spec.agent.name
        issued = Issuing(self._mint, None)
        log = self.folder / "agent.log"
        async with open_agent(self.suite, self.players, issued, environment, log=log) as agent:
            stage = self._stage(hung_up(self.suite), agent, issued.mint)
            await rehearse(stage)
            held = await hold_idle(stage, planned, kind="hangs-up", by=name, parallel=_PARALLEL)
            code = agent.code if isinstance(agent, ProcessAgent | IsolatedAgent) else None
        return Answered(held, code)

    @property
    def _mint(self) -> Mint:
        agent = self.suite.spec.agent
        egress = () if isinstance(agent, HttpAgent) else agent.egress
        return Mint(tenant=self.suite.name, run="check", host=self.server.facts.host, egress=egress)

    def _stage(self, suite: Suite, agent: Agent, mint: Mint) -> Stage:
        return Stage(
            suite=suite,
            server=self.server,
            templates=self.built.templates,
            seeds=self.built.seeds,
            agent=agent,
            mint=mint,
            actor=self.players.actor_of(suite),
            calls=self.players.calls,
            waits_s=self.players.waits_s,
            run=new_run(self.folder),
            progress=Progress(console=self.progress.console, suite=suite.name, live=False, quiet=True),
            registry=self.registry,
            pools=self.pools,
            keep="none",
            attempt=1,
            planted=self.planted,
            undropped=self.undropped,
        )


@asynccontextmanager
async def open_ground(
    suite: Suite,
    server: Server,
    registry: Registry,
    built: Built,
    progress: Progress,
    planted: Mapping[str, Planted],
    *,
    conversations: int,
) -> AsyncIterator[Ground]:
    """Make forks in advance, no more than so many conversations need, and a folder; both are gone at the end.

    Raises:
        UsageError: so many conversations at once do not fit on the server.
    """
    judged = without_judges(suite)
    parallel = min(_PARALLEL, conversations)
    models = ModelOptions(offline=True, parallel=parallel)
    with tempfile.TemporaryDirectory(prefix="redteam-check-") as folder:
        async with (
            choose_players(judged, Access(), models) as players,
            open_pools(server, registry, built, parallel=parallel) as pools,
        ):
            yield Ground(
                suite=judged,
                server=server,
                registry=registry,
                built=built,
                pools=pools,
                players=players,
                progress=progress,
                planted=planted,
                folder=Path(folder),
            )
