"""Who plays in a launch: scripted stand-ins, or models; and the notice that every report begins with."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from redteam_harness.launch.agent_specs import PythonAgent
from redteam_harness.models.budget import Budget, Limits
from redteam_harness.models.calls import ModelCalls
from redteam_harness.models.claude import Claude
from redteam_harness.models.judge import JudgeEndpoint
from redteam_harness.models.openai import PREFIX, OpenAICompatible
from redteam_harness.models.prices import load_prices
from redteam_harness.models.replay import CallCache
from redteam_personas import Line, ScriptedActor, SpokenActor
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import Suite
    from redteam_harness.models.chat import ChatModel, Endpoint
    from redteam_personas import Actor, Script

__all__ = ["OFFLINE_NOTICE", "Access", "ModelOptions", "Players", "choose_judge", "choose_players"]

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
class Access:
    """How the models' APIs are reached.

    Attributes:
        key: the Messages API's key, or None.
        base_url: another server that speaks the Messages API, or None.
        openai_key: an OpenAI-compatible server's key, or None.
        openai_base_url: where that server is, up to and with `/v1`, or None.
    """

    key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    openai_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How models are called in a launch.

    Attributes:
        offline: scripted stand-ins even where a key is there.
        parallel: how many conversations there are at once.
        limits: the run's, where the command line says more than the suite.
        cache: the folder of the call cache, or None.
    """

    offline: bool
    parallel: int
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    cache: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """Who plays.

    Attributes:
        notice: the first line of every report.
        calls: makes all calls of models, and counts them; also where none plays.
        actor: the model that plays personas, or None for the scripted stand-in.
        agent: the model that is the agent, or None for the suite's own callable.
        system: the model agent's system prompt.
        judge: the model that rules with a `judge` ask, or None: nobody is asked.
    """

    notice: str
    calls: ModelCalls
    actor: ChatModel | None = None
    agent: ChatModel | None = None
    system: str = ""
    judge: JudgeEndpoint | None = None

    @property
    def waits_s(self) -> float:
        """How long a turn may wait for models, in seconds: a call of the actor's, and two of the agent's."""
        waiting = (1 if self.actor is not None else 0) + (2 if self.agent is not None else 0)
        return waiting * self.calls.deadline_s

    def actor_of(self, suite: Suite) -> Callable[[Planned, Script], Actor]:
        """Makes the actor of a conversation."""
        if self.actor is not None:
            spoken = SpokenActor(_LineModel(self.actor))
            return lambda planned, script: spoken
        return lambda planned, script: ScriptedActor(
            suite.case(planned.case).offline.fill(script.speaks_as), script.disposition, seed=planned.seed
        )


@asynccontextmanager
async def choose_players(suite: Suite, access: Access, options: ModelOptions) -> AsyncIterator[Players]:
    """Models where the suite names them and their API can be used, scripted stand-ins elsewhere.

    Raises:
        UsageError: a budget in dollars cannot be kept, because a model's price is not known; there is no
            address for a model of an OpenAI-compatible server; or models play, and nobody would be asked
            what rules ask a judge.
    """
    models = suite.spec.models
    claude = suite.spec.agent.claude if isinstance(suite.spec.agent, PythonAgent) else None
    judged = models.judge if suite.questions else None
    wanted = [name for name in (models.actor, models.agent if claude else None, judged) if name]
    reachable = [name for name in wanted if access.key or name.startswith(PREFIX)]
    calls = _calls(suite, options)
    if options.offline or not wanted or len(reachable) < len(wanted):
        yield Players(notice=OFFLINE_NOTICE, calls=calls)
        return
    if suite.questions and judged is None:
        # `offline` answers would stand in a report about models as if somebody had been asked.
        place = suite.rules_document.where((next(iter(suite.questions)), "judge"))
        raise UsageError(
            f"{place}: this rule asks a judge, and {suite.document.path} names none; "
            "name a model under `models: {judge: ...}`, or launch --offline"
        )
    _check_prices(wanted, calls)
    async with AsyncExitStack() as stack:
        endpoint = _endpoints(stack, access, models.stall_s)
        actor = calls.model(endpoint(models.actor), "actor") if models.actor else None
        agent = calls.model(endpoint(models.agent), "agent") if models.agent and claude else None
        judge = JudgeEndpoint(calls, endpoint(judged)) if judged else None
        actor_name = actor.name if actor else "scripted"
        agent_name = agent.name if agent else suite.spec.agent.name
        yield Players(
            notice=f"live: actor {actor_name}, agent {agent_name}{f', judge {judge.name}' if judge else ''}",
            calls=calls,
            actor=actor,
            agent=agent,
            system=(suite.folder / claude.system).read_text(encoding="utf-8") if agent and claude else "",
            judge=judge,
        )


@asynccontextmanager
async def choose_judge(
    suite: Suite, access: Access, options: ModelOptions
) -> AsyncIterator[tuple[ModelCalls, JudgeEndpoint | None]]:
    """The judge alone, for a run that was held before; None where the suite names none, or it has no key.

    Raises:
        UsageError: as `choose_players`.
    """
    calls, name = _calls(suite, options), suite.spec.models.judge
    if options.offline or name is None or not (access.key or name.startswith(PREFIX)):
        yield calls, None
        return
    _check_prices([name], calls)
    async with AsyncExitStack() as stack:
        yield calls, JudgeEndpoint(calls, _endpoints(stack, access, suite.spec.models.stall_s)(name))


def _calls(suite: Suite, options: ModelOptions) -> ModelCalls:
    models = suite.spec.models
    return ModelCalls(
        prices=load_prices(models.prices),
        parallel=options.parallel,
        deadline_s=models.deadline_s,
        budget=Budget(
            run=_merged(suite.spec.budget.run.limits, options.limits),
            conversation=suite.spec.budget.conversation.limits,
        ),
        cache=CallCache(options.cache) if options.cache else None,
    )


def _check_prices(models: Sequence[str], calls: ModelCalls) -> None:
    unpriced = [name for name in models if name not in calls.prices.known]
    if unpriced and calls.budget.needs_prices:
        raise UsageError(
            f"no price is known for model {', '.join(unpriced)}, so a budget in dollars cannot be kept; "
            "give its price under `models: {prices: ...}` in suite.yaml, or a budget in tokens"
        )


def _merged(suite: Limits, line: Limits) -> Limits:
    """What the command line says, and what the suite says where that says nothing."""
    return Limits(
        usd=suite.usd if line.usd is None else line.usd,
        tokens=suite.tokens if line.tokens is None else line.tokens,
        seconds=suite.seconds if line.seconds is None else line.seconds,
    )


def _endpoints(stack: AsyncExitStack, access: Access, stall_s: float) -> Callable[[str], Endpoint]:
    """Makes an endpoint of a model's id; those of one API share a client, which the stack closes."""
    messages = Claude.client(access.key, access.base_url, stall_s=stall_s) if access.key else None
    if messages is not None:
        stack.push_async_callback(messages.close)
    local = None
    if access.openai_base_url:
        local = OpenAICompatible.client(access.openai_base_url, access.openai_key, stall_s=stall_s)
        stack.push_async_callback(local.aclose)

    def endpoint(name: str) -> Endpoint:
        if not name.startswith(PREFIX):
            assert messages is not None
            return Claude(name, messages)
        if local is None:
            raise UsageError(
                f"model {name} is behind an OpenAI-compatible server; say where it is with OPENAI_BASE_URL, "
                "for example http://127.0.0.1:8000/v1"
            )
        return OpenAICompatible(name, local)

    return endpoint
