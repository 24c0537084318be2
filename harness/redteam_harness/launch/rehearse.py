"""Tries an agent that is started anew for each conversation, on a fork that nobody talks on.

A mistake that every conversation would meet (an import that fails, a program that is not there, an address
that leads elsewhere) then ends the launch with one message, before its first conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import anyio

from redteam_forker import DropFailed
from redteam_harness.agents.agent import AgentFault, AgentLost, Opening
from redteam_harness.agents.claude import ModelAgent
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_forker import Pool
    from redteam_harness.launch.stage import Stage

__all__ = ["Rehearsing", "rehearse"]

_NAME = "rehearsal"
_CHECKOUT_S = 120.0
_LIFETIME_S = 600.0


@runtime_checkable
class Rehearsing(Protocol):
    """An agent that is started for each conversation, and can be tried."""

    async def rehearse(self, opening: Opening) -> None:
        """Start it for a fork, probe it, and end it.

        Raises:
            UsageError, AgentFault, AgentLost: what every conversation would meet.
        """
        ...


async def rehearse(stage: Stage) -> None:
    """Try the stage's agent, if it is one to try; the fork is dropped afterwards.

    Raises:
        UsageError: the agent cannot hold a conversation, and why.
    """
    agent = stage.agent.host if isinstance(stage.agent, ModelAgent) else stage.agent
    if not isinstance(agent, Rehearsing):
        return
    name = stage.suite.spec.agent.name
    pool: Pool = next(iter(stage.pools.values()))
    fork = await pool.checkout(
        lifetime_s=_LIFETIME_S, deadline_s=_CHECKOUT_S, label=f"{stage.run.id}/{_NAME}"
    )

    def ignore(_: Mapping[str, Any]) -> None:
        """Nobody reads the events of a rehearsal."""

    try:
        token = stage.mint.token(_NAME, fork, lifetime_s=_LIFETIME_S)
        await agent.rehearse(Opening(conversation=_NAME, token=token, fork=fork, sink=ignore))
    except (AgentFault, AgentLost) as fault:
        raise UsageError(f"agent {name} cannot hold a conversation: {fault}") from None
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await pool.drop(fork)
            except (DropFailed, EnvironmentFault):
                stage.undropped.append(fork.name)  # told in the report; the next sweep tries again
