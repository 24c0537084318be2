"""The one place that calls a model: pace, retries, deadlines, budgets, and the record of every call.

A model that somebody holds (`ModelCalls.model`) sends nothing by itself. Which conversation calls is known
from a context variable that `ModelCalls.conversation` sets, so an actor, an agent's loop and a judge need
not carry it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from pydantic import BaseModel, ValidationError

from redteam_harness.models.budget import Budget
from redteam_harness.models.chat import NOTHING, ModelFault, Reply, Request, Usage
from redteam_harness.models.lane import Lane
from redteam_harness.models.pace import Pace
from redteam_harness.models.usage import Ledger, Spent
from redteam_harness.models.waits import backoff_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redteam_harness.models.chat import Endpoint, Role
    from redteam_harness.models.prices import Prices
    from redteam_harness.models.replay import CallCache

__all__ = ["CalledModel", "ModelCalls"]

Shape = TypeVar("Shape", bound=BaseModel)
Value = TypeVar("Value")

_NEVER_ANSWERED = 5
_SHAPE_TRIES = 3
_LAST = frozenset({"bad_key", "not_found"})
_ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}


@dataclass(frozen=True, slots=True)
class _Caller:
    """The conversation that calls."""

    id: str
    sink: Callable[[dict[str, Any]], None]
    waiting: Callable[[str, float], None]
    started: float
    asked: dict[str, int] = field(default_factory=dict)


def _nowhere(*_: object) -> None:
    """For calls outside any conversation."""


_CALLER: ContextVar[_Caller | None] = ContextVar("redteam_model_caller", default=None)


class ModelCalls:
    """All model calls of one launch.

    Attributes:
        ledger: what was used.
        budget: what may be.
        deadline_s: how long one call may take with all its tries and waits, in seconds.
    """

    def __init__(
        self,
        *,
        prices: Prices,
        parallel: int,
        deadline_s: float,
        budget: Budget | None = None,
        cache: CallCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is sent before a model is asked.

        Args:
            prices: what calls cost.
            parallel: how many calls of one model may be out at most.
            deadline_s: how long one call may take with all its tries and waits, in seconds.
            budget: what may be used.
            cache: answers calls that were made before, or None.
            clock: seconds; only goes forward.
        """
        self.ledger = Ledger()
        self.budget = budget or Budget()
        self.deadline_s = deadline_s
        self._stopped: str | None = None
        self.prices = prices
        self._parallel = parallel
        self.cache = cache
        self.clock = clock
        self._began = clock()
        self._lanes: dict[str, Lane] = {}
        self.random = Random()  # noqa: S311 - spreads retries, guards nothing

    def model(self, endpoint: Endpoint, role: Role) -> CalledModel:
        """A `ChatModel` behind which this endpoint is called."""
        return CalledModel(self, endpoint, role)

    @contextmanager
    def conversation(
        self,
        name: str,
        *,
        sink: Callable[[dict[str, Any]], None],
        waiting: Callable[[str, float], None],
    ) -> Iterator[None]:
        """Calls inside are this conversation's.

        Args:
            name: the conversation's id.
            sink: takes a `model_call` event for each call.
            waiting: told what a call waits for, and for how many seconds at least; "" when it waits no more.
        """
        token = _CALLER.set(_Caller(name, sink, waiting, self.clock()))
        try:
            yield
        finally:
            _CALLER.reset(token)

    @property
    def stopped(self) -> str | None:
        """Why no more conversations are to be started, or None."""
        if self._stopped is None:
            spent = self.budget.run.spent_by(self.ledger.all, self.clock() - self._began)
            if spent is not None:
                self._stopped = f"the run: {spent}"
        return self._stopped

    async def call(
        self, endpoint: Endpoint, role: Role, request: Request, check: Callable[[Reply], Value]
    ) -> Value:
        """Call a model until it answers what `check` accepts.

        Raises:
            ModelFault: it did not, and what the last try met.
        """
        caller = _CALLER.get() or _Caller("", _nowhere, _nowhere, self._began)
        self._within_budget(caller)
        one = _Call(self, endpoint, role, request, caller)
        try:
            with anyio.fail_after(self.deadline_s):
                return await one.until(check)
        except TimeoutError:
            raise self._too_late(one) from one.last
        finally:
            caller.waiting("", 0)

    def lane(self, model: str) -> Lane:
        """The way to a model; roles that use the same one share it, as they share its rate limit."""
        if model not in self._lanes:
            self._lanes[model] = Lane(Pace(ceiling=self._parallel), self.clock)
        return self._lanes[model]

    def stop(self, reason: str) -> None:
        """Have no more conversations started."""
        self._stopped = self._stopped or reason

    def _within_budget(self, caller: _Caller) -> None:
        if not caller.id:
            return
        seconds = self.clock() - caller.started
        spent = self.budget.conversation.spent_by(self.ledger.of(caller.id), seconds)
        if spent is not None:
            raise ModelFault(f"conversation {caller.id}: {spent}", kind="budget")

    def _too_late(self, one: _Call) -> ModelFault:
        opened = self.lane(one.endpoint.name).breaker.opened_at
        if opened is not None and (failing_s := self.clock() - opened) >= self.deadline_s / 2:
            self.stop(f"model {one.endpoint.name}: its API has been failing for {failing_s:.0f} s")
        last = f"; the last try: {one.last}" if one.last else ""
        fault = ModelFault(
            f"model {one.endpoint.name}: no answer within {self.deadline_s:g} s and "
            f"{len(one.faults)} failed tries{last}",
            kind="deadline",
        )
        one.record(None, fault)
        return fault


class _Call:
    """One call with all its tries."""

    def __init__(
        self, calls: ModelCalls, endpoint: Endpoint, role: Role, request: Request, caller: _Caller
    ) -> None:
        self.endpoint = endpoint
        self.faults: list[dict[str, Any]] = []
        self.last: ModelFault | None = None
        self._calls = calls
        self._role = role
        self._request = request
        self._caller = caller
        self._began = self._sent = calls.clock()
        self._spent = Spent(role=role, model=endpoint.name)

    async def until(self, check: Callable[[Reply], Value]) -> Value:
        """Try until an answer is accepted, or a fault is not to pass."""
        cache, key = self._calls.cache if self._caller.id else None, ""
        if cache is not None:
            key = cache.key(self.endpoint.name, self._request, self._caller.id, self._caller.asked)
            kept = cache.get(key)
            if kept is not None:
                self._book(replayed=1)
                self.record(kept, None)
                return check(kept)
        while True:
            try:
                reply, value = await self._try(check)
            except ModelFault as fault:
                self._note(fault)
                if self._is_last(fault):
                    self.record(None, fault)
                    raise
                await self._wait(fault)
            else:
                if cache is not None:
                    cache.put(key, reply)
                self.record(reply, None)
                return value

    def record(self, reply: Reply | None, fault: ModelFault | None) -> None:
        """The call's event, once it is over. Its usage is that of all tries."""
        now = self._calls.clock()
        event: dict[str, Any] = {
            "kind": "model_call",
            "model": self.endpoint.name,
            "role": self._role,
            "request": reply.request if reply else None,
            "stop": reply.stop if reply else None,
            "usage": asdict(self._spent.usage),
            "usd": None if self._spent.unpriced else round(self._spent.usd, 6),
            "answers": self._spent.calls,
            "latency_s": round(now - self._sent, 3) if reply else None,
            "waited_s": round(self._sent - self._began, 3),
        }
        if reply is not None and reply.model != self.endpoint.name:
            event["answered_by"] = reply.model
        if self._spent.replayed:
            event["replayed"] = True
        if self.faults:
            event["faults"] = self.faults
        if fault is not None:
            event["fault"] = fault.kind
        self._caller.sink(event)

    async def _try(self, check: Callable[[Reply], Value]) -> tuple[Reply, Value]:
        lane = self._calls.lane(self.endpoint.name)
        probe = await lane.enter(self._caller.waiting)
        self._caller.waiting("", 0)
        self._sent = self._calls.clock()
        with lane.out(probe=probe):
            reply = await self.endpoint.send(self._request)
        self._book(calls=1, usage=reply.usage)
        return reply, check(reply)

    def _note(self, fault: ModelFault) -> None:
        self.last = fault
        self._book(faults=1, usage=fault.usage or NOTHING)
        noted: dict[str, Any] = {"kind": fault.kind, "status": fault.status, "request": fault.request}
        if fault.retry_after_s is not None:
            noted["retry_after_s"] = fault.retry_after_s
        self.faults.append(noted)

    def _is_last(self, fault: ModelFault) -> bool:
        name, tries = self.endpoint.name, len(self.faults)
        if fault.kind in _LAST:
            self._calls.stop(str(fault))
        if fault.kind == "unreachable" and tries >= _NEVER_ANSWERED and not self._calls.lane(name).answered:
            self._calls.stop(f"{fault}; it never answered in this launch")
            return True
        return not fault.retryable or (fault.kind == "shape" and tries >= _SHAPE_TRIES)

    async def _wait(self, fault: ModelFault) -> None:
        tries = len(self.faults)
        seconds = backoff_s(fault, tries, self._calls.random)
        nth = _ORDINALS.get(tries + 1, f"{tries + 1}th")
        self._caller.waiting(f"{fault.status or fault.kind.replace('_', ' ')}, {nth} try", seconds)
        await anyio.sleep(seconds)

    def _book(self, *, usage: Usage = NOTHING, **counts: int) -> None:
        cost = self._calls.prices.cost_usd(self.endpoint.name, usage) if usage.total else 0.0
        one = Spent(
            role=self._role,
            model=self.endpoint.name,
            usage=usage,
            usd=cost or 0.0,
            unpriced=int(cost is None),
            **counts,
        )
        self._spent += one
        self._calls.ledger.book(self._caller.id, [one])


class CalledModel:
    """A `ChatModel` whose calls go through `ModelCalls`."""

    def __init__(self, calls: ModelCalls, endpoint: Endpoint, role: Role) -> None:
        self.name = endpoint.name
        self._calls = calls
        self._endpoint = endpoint
        self._role: Role = role

    async def reply(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Reply:
        """The next assistant message; see `ChatModel`."""
        request = Request(system=system, messages=messages, tools=tools)
        return await self._calls.call(self._endpoint, self._role, request, _as_it_is)

    async def parsed(
        self, *, system: str, messages: Sequence[Mapping[str, Any]], shape: type[Shape]
    ) -> Shape:
        """The next assistant message in a given shape; see `ChatModel`."""
        request = Request(system=system, messages=messages, shape=shape)

        def check(reply: Reply) -> Shape:
            return _shaped(reply, shape, self.name)

        return await self._calls.call(self._endpoint, self._role, request, check)


def _as_it_is(reply: Reply) -> Reply:
    return reply


def _shaped(reply: Reply, shape: type[Shape], name: str) -> Shape:
    if reply.stop == "refusal":
        raise ModelFault(f"model {name} refused to answer", kind="refusal", request=reply.request)
    if reply.stop == "max_tokens":
        raise ModelFault(
            f"model {name} was cut off by its limit of output tokens",
            kind="max_tokens",
            request=reply.request,
        )
    try:
        return shape.model_validate_json(reply.text)
    except ValidationError:
        raise ModelFault(
            f"model {name} answered in another shape than asked for", kind="shape", request=reply.request
        ) from None
