"""Who plays in a launch: scripted stand-ins, or models; and the notice that every report begins with."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from redteam_harness.models.claude import Claude
from redteam_personas import Line, ScriptedActor, SpokenActor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import Suite
    from redteam_harness.models.chat import ChatModel
    from redteam_personas import Actor, Script

__all__ = ["OFFLINE_NOTICE", "Players", "choose_players"]

OFFLINE_NOTICE = "offline: scripted models check the harness; nothing here is about a model"


class _SpokenLine(BaseModel):
    text: str = Field(description="What the person says, in their own words.")
    end: bool = Field(description="Whether these are the person's last words.")
    reason: str = Field(description="Why they are the last; empty where they are not.")


class _LineModel:
    """A chat model as the personas room wants it: it answers with a `Line`."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def complete(self, *, system: str, messages: Sequence[Mapping[str, str]]) -> Line:
        spoken = await self._model.parsed(system=system, messages=messages, shape=_SpokenLine)
        return Line(text=spoken.text, end=spoken.end, reason=spoken.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """Who plays.

    Attributes:
        notice: the first line of every report.
        actor: the model that plays personas, or None for the scripted stand-in.
        agent: the model that is the agent, or None for the suite's own callable.
        system: the model agent's system prompt.
    """

    notice: str
    actor: ChatModel | None = None
    agent: ChatModel | None = None
    system: str = ""

    def actor_of(self, suite: Suite) -> Callable[[Planned, Script], Actor]:
        """Makes the actor of a conversation."""
        if self.actor is not None:
            spoken = SpokenActor(_LineModel(self.actor))
            return lambda planned, script: spoken
        return lambda planned, script: ScriptedActor(
            suite.case(planned.case).offline.fill(planned.persona), script.disposition, seed=planned.seed
        )


@asynccontextmanager
async def choose_players(
    suite: Suite, *, key: str | None, base_url: str | None, offline: bool
) -> AsyncIterator[Players]:
    """Models where the suite names them and a key is there, scripted stand-ins elsewhere.

    Args:
        suite: what is launched.
        key: the API key, or None.
        base_url: another server that speaks the Messages API, or None.
        offline: scripted stand-ins even where a key is there.
    """
    models = suite.spec.models
    claude = suite.spec.agent.claude
    named = models.actor or (models.agent and claude)
    if offline or not key or not named:
        yield Players(notice=OFFLINE_NOTICE)
        return
    client = Claude.client(key, base_url)
    try:
        actor = Claude(models.actor, client) if models.actor else None
        agent = Claude(models.agent, client) if models.agent and claude else None
        actor_name = actor.name if actor else "scripted"
        agent_name = agent.name if agent else suite.spec.agent.python
        yield Players(
            notice=f"live: actor {actor_name}, agent {agent_name}",
            actor=actor,
            agent=agent,
            system=(suite.folder / claude.system).read_text(encoding="utf-8") if agent and claude else "",
        )
    finally:
        await client.close()
