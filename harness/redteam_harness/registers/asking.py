"""Asks an agent's code which functions it marked: its process is started as a launch starts it, and ended."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from redteam_forker import create_fork, drop_fork, open_registry
from redteam_harness.agents.agent import AgentFault, AgentLost, Opening
from redteam_harness.agents.host import ProcessAgent
from redteam_harness.agents.isolated import IsolatedAgent
from redteam_harness.launch.agent_specs import PythonAgent
from redteam_harness.launch.agents import open_agent
from redteam_harness.launch.mint import Mint
from redteam_harness.launch.players import Access, ModelOptions, choose_players
from redteam_harness.launch.prepare import build_templates
from redteam_harness.launch.services import Issuing
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from redteam_forker import Server
    from redteam_harness.agents.code import AgentCode
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.suite import Suite

__all__ = ["AskOptions", "ask_code", "code_of"]

_LIFETIME_S = 600.0
_NAME = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions:
    """How an agent's code is asked.

    Attributes:
        server: opens a server; only for an agent that cannot be imported without a fork's address.
        environment: the launcher's; the agent gets it without what looks like a secret.
    """

    server: Callable[[], AbstractAsyncContextManager[Server]]
    environment: Mapping[str, str] = field(repr=False)


def code_of(agent: object) -> AgentCode | None:
    """What is marked in an agent's code, as its process said; None where there is none that could say."""
    host = getattr(agent, "host", agent)  # a model's loop has the process of its tools
    return host.code if isinstance(host, ProcessAgent | IsolatedAgent) else None


async def ask_code(suite: Suite, options: AskOptions, progress: Progress) -> AgentCode | None:
    """What is marked in the code of a suite's agent; None: it is no Python code that we start.

    Raises:
        UsageError: the agent cannot be imported or started.
        EnvironmentFault: a server was needed and failed.
    """
    spec = suite.spec.agent
    if not isinstance(spec, PythonAgent):
        return None
    models = ModelOptions(offline=True, parallel=1)
    with tempfile.TemporaryDirectory(prefix="redteam-ask-") as folder:
        log = Path(folder) / "agent.log"
        async with choose_players(suite, Access(), models) as players:
            if spec.isolation == "shared":
                issued = Issuing(Mint(tenant=suite.name, run=_NAME, host="", egress=spec.egress), None)
                async with open_agent(suite, players, issued, options.environment, log=log) as agent:
                    return code_of(agent)
            return await _ask_on_a_fork(suite, spec, options, progress, players, log)


async def _ask_on_a_fork(
    suite: Suite, spec: PythonAgent, options: AskOptions, progress: Progress, players: Players, log: Path
) -> AgentCode | None:
    """The code of an agent that finds its fork's address where it is imported."""
    async with options.server() as server, open_registry(server) as registry:
        today = datetime.now().astimezone().date()
        built = await build_templates(server, registry, suite, progress, today=today)
        template = next(iter(built.templates.values()))
        mint = Mint(tenant=suite.name, run=_NAME, host=server.facts.host, egress=spec.egress)
        async with open_agent(suite, players, Issuing(mint, None), options.environment, log=log) as agent:
            assert isinstance(agent, IsolatedAgent)
            fork = await create_fork(server, template, lifetime_s=_LIFETIME_S, registry=registry, label=_NAME)
            try:
                token = mint.token(_NAME, fork, lifetime_s=_LIFETIME_S)
                await agent.rehearse(
                    Opening(conversation=_NAME, token=token, fork=fork, sink=lambda event: None)
                )
            except (AgentFault, AgentLost) as fault:
                raise UsageError(f"agent {spec.name} cannot be asked for its tools: {fault}") from None
            finally:
                with anyio.CancelScope(shield=True):
                    await drop_fork(server, fork, registry=registry)
            return code_of(agent)
