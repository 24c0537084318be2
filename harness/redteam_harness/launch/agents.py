"""From `agent:` of a suite to the agent that conversations open sessions with."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redteam_harness.agents.claude import ModelAgent
from redteam_harness.agents.command import ProgramCommand, program_agent
from redteam_harness.agents.environment import agent_environment
from redteam_harness.agents.host import host_agent
from redteam_harness.agents.isolated import Isolation, isolated_agent
from redteam_harness.agents.process import AgentCommand
from redteam_harness.agents.serving import Serving
from redteam_harness.agents.shapes import Exchange, expand_headers
from redteam_harness.launch.agent_specs import CommandAgent, HttpAgent, PythonAgent
from redteam_harness.launch.externals import faults_of
from redteam_harness.launch.services import service_agent
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from redteam_harness.agents.agent import Agent
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.services import Issuing
    from redteam_harness.launch.suite import Suite

__all__ = ["open_agent"]


@asynccontextmanager
async def open_agent(
    suite: Suite, players: Players, issued: Issuing, environment: Mapping[str, str], *, log: Path
) -> AsyncIterator[Agent]:
    """Run the suite's agent for the length of a launch; what is wrong with it without a fork is found here.

    Args:
        suite: names the agent.
        players: whether a model is in its place.
        issued: whose tokens it is to trust, and the collector that a deployed service reports to.
        environment: the launcher's.
        log: the file that takes what agent processes write to their standard output and error.

    Raises:
        UsageError: the agent cannot be imported or started.
    """
    spec = suite.spec.agent
    match spec:
        case PythonAgent():
            claude = spec.claude if players.agent is not None else None
            command = AgentCommand(
                interpreter=spec.interpreter or sys.executable,
                folder=suite.folder.absolute(),
                agent=None if claude else spec.python,
                tools=claude.tools if claude else None,
                env={**agent_environment(environment, spec.pass_env), "PYTHONUNBUFFERED": "1"},
                log=log,
                stdout=spec.stdout,
                turn_s=spec.timeout_s,
                faults=[fault for case in suite.spec.cases for fault in faults_of(case.externals)],
            )
            host = (
                host_agent(command, issued.mint.trust)
                if spec.isolation == "shared"
                else isolated_agent(command, issued.mint.trust, Isolation(env=spec.env, probe=spec.probe))
            )
            async with host as agent:
                if claude is None or players.agent is None:
                    yield agent
                else:
                    yield ModelAgent(agent, players.agent, players.system, steps=claude.steps)
        case CommandAgent():
            _refuse_externals(suite)
            program = ProgramCommand(
                argv=spec.command,
                probe=spec.probe,
                folder=suite.folder.absolute(),
                env=agent_environment(environment, spec.pass_env),
                addresses=spec.env,
                log=log,
                turn_s=spec.timeout_s,
                serving=_serving(spec, environment),
            )
            async with program_agent(program) as programs:
                yield programs
        case HttpAgent():
            assert issued.collector is not None
            yield service_agent(suite, spec, issued.collector, environment)


def _refuse_externals(suite: Suite) -> None:
    """A program's external tools are its own: nobody could make them fail as a case wants."""
    for number, case in enumerate(suite.spec.cases):
        if case.externals:
            place = suite.document.where(("cases", number, "externals"))
            raise UsageError(
                f"{place}: externals script the faults of @external functions, which a command's program has "
                "none of that we could reach; leave them out, or use a python or url agent"
            )


def _serving(spec: CommandAgent, environment: Mapping[str, str]) -> Serving | None:
    if spec.serves is None:
        return None
    exchange = Exchange(preset=spec.preset, request=spec.request, reply=spec.reply)
    exchange.check()
    return Serving(url=spec.serves, exchange=exchange, headers=expand_headers(spec.headers, environment))
