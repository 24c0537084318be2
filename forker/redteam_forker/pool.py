"""The warm pool: forks of one template that are made in advance, and handed out in milliseconds.

    builders ─► warm ─► checkout ─► (a conversation) ─► drop          a fork is used once, never recycled

Warm forks have no login; checkout gives one, in the same transaction in which the fork becomes its caller's.
When fewer than `low` wait, builders fill up to `high`; when there is nothing to build and nobody came lately,
one of them visits what waits (see `shelf`). Who finds none waits in line, with a deadline of its own, and is
told what keeps the builders from building.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from redteam_forker import _pg, database, fork
from redteam_forker._tasks import beside
from redteam_forker.counts import Statistics
from redteam_forker.errors import DropFailed, ForkUnavailable
from redteam_forker.shelf import Shelf, is_visit_worthwhile, visit
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork, Warm
    from redteam_forker.registry import Registry
    from redteam_forker.servers.server import Server
    from redteam_forker.template import Template

__all__ = ["Pool", "Statistics", "open_pool"]

_DROPPERS = 2
# A build may fail once because of somebody else; so often in a row, waiting does not help.
_PATIENCE = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# Copying is bounded by the size; no disk that is worth using is slower.
_BUILD_TIMEOUT_S, _SLOWEST_BYTES_PER_S = 60.0, 20 << 20
_QUIET_S = 0.25  # a visit takes half as much work as a fork: where forks go fast, it is spent on them
_VISIT_TIMEOUT_S = 5.0  # the fork is as good without
_BUILDERS = 16  # tasks, where a limiter that is shared would allow more
_ATTEMPTS = 3  # a warm fork that somebody tampered with is passed over
_VACUUM_EVERY = 250  # drops


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    low: int
    high: int
    creators: anyio.CapacityLimiter
    droppers: anyio.CapacityLimiter


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody in line since a time. `warm` or `fault` is set before `told`."""

    since: float
    told: anyio.Event = field(default_factory=anyio.Event)
    warm: Warm | None = None
    fault: ForkUnavailable | None = None


class Pool:
    """A pool that is open, from `open_pool`."""

    def __init__(
        self, server: Server, template: Template, registry: Registry | None, limits: _Limits
    ) -> None:
        self._server = server
        self._template = template
        self._registry = registry
        self._limits = limits
        self._shelf = Shelf(visits=is_visit_worthwhile(server.facts))
        self._asked_at = float("-inf")
        self._waiters: deque[_Waiter] = deque()
        self._building = 0
        self._visiting: Warm | None = None
        self._filling = False
        self._failures = 0  # in a row
        self._cause: EnvironmentFault | None = None
        self._closed = False
        self._counts = Statistics()
        # Each is set and made anew: a builder may be wanted; somebody has come who has a deadline.
        self._changed = anyio.Event()
        self._arrived = anyio.Event()

    def __repr__(self) -> str:
        return f"Pool({self._template.name!r}, {self._stock()} warm)"

    @property
    def template(self) -> Template:
        """What its forks are clones of."""
        return self._template

    def statistics(self) -> Statistics:
        """What it has done so far."""
        return replace(self._counts, warm=self._stock(), building=self._building, waiting=len(self._waiters))

    async def checkout(self, *, lifetime_s: float, deadline_s: float, label: str = "") -> Fork:
        """Hand out a fork that nobody else has had or will have. The caller drops it, or keeps it.

        Args:
            lifetime_s: seconds after which its password is not accepted any more.
            deadline_s: how long to wait for one, in seconds.
            label: what to call it in the registry, for example a run and a conversation.

        Raises:
            UsageError: a number is not positive.
            ForkUnavailable: there was none in time, or there can be none, with what keeps the builders from
            building; or the registry is out of reach.
        """
        if deadline_s <= 0 or lifetime_s <= 0:
            raise UsageError("a checkout needs a lifetime and a deadline of more than 0 seconds")
        began = anyio.current_time()
        if self._registry is not None:
            await self._registry.ensure_held()
        for attempt in range(1, _ATTEMPTS + 1):
            warm = await self._next(began + deadline_s, deadline_s)
            try:
                handed = await self._attach(warm, lifetime_s, label)
            except ForkUnavailable as error:
                if attempt == _ATTEMPTS or not error.retryable:
                    raise
            else:
                break
        took_s = anyio.current_time() - began
        counts = self._counts
        self._counts = replace(
            counts,
            checked_out=counts.checked_out + 1,
            checkout_s=took_s,
            longest_checkout_s=max(took_s, counts.longest_checkout_s),
        )
        return handed

    async def drop(self, used: Fork) -> bool:
        """Drop a fork, no more at once than there are droppers; like `drop_fork`. Cancellation waits for it.

        Raises:
            DropFailed: the catalog still shows it. The next sweep tries again.
        """
        return await self._dropped(used.name)

    async def build(self) -> None:
        """Make forks while some are wanted, until cancelled. `open_pool` runs one for each creator."""
        while True:
            while not self._is_wanted():
                if not self._shelf.wants_visit or self._visiting is not None or self._closed:
                    await self._changed.wait()
                elif (pause_s := self._asked_at + _QUIET_S - anyio.current_time()) > 0:
                    with anyio.move_on_after(pause_s):
                        await self._changed.wait()
                else:
                    await self._visit()
            self._building += 1
            began = anyio.current_time()
            try:
                warm = await self._made()
            except EnvironmentFault as error:
                self._failed(error, began)
            else:
                self._counts = replace(self._counts, created=self._counts.created + 1)
                self._failures, self._cause = 0, None
                self._give(warm)
                continue
            finally:
                self._building -= 1
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10))
            # Whoever comes now wants to know whether it works now.
            with anyio.move_on_after(pause_s):
                await self._arrived.wait()

    def close(self) -> None:
        """Hand out nothing more; whoever is in line is told."""
        self._closed = True
        while self._waiters:
            self._refuse_first("the pool is closed", retryable=False)

    async def clear(self) -> list[DropFailed]:
        """Drop what is warm; what could not be dropped is left to the next sweep. Cancellation waits."""
        failures: list[DropFailed] = []

        async def clear_one(warm: Warm) -> None:
            try:
                await self._dropped(warm.name)
            except DropFailed as error:
                failures.append(error)

        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                while self._shelf:
                    tasks.start_soon(clear_one, self._shelf.take())
        return failures

    def _stock(self) -> int:
        return len(self._shelf) + (self._visiting is not None)

    def _is_wanted(self) -> bool:
        stock = self._stock() + self._building - len(self._waiters)
        if stock < self._limits.low:
            self._filling = True
        elif stock >= self._limits.high:
            self._filling = False
        return not self._closed and (stock < 0 or (self._filling and stock < self._limits.high))

    async def _made(self) -> Warm:
        limit_s = _BUILD_TIMEOUT_S + self._template.size_bytes / _SLOWEST_BYTES_PER_S
        async with self._limits.creators:
            try:
                with anyio.fail_after(limit_s):
                    return await fork.create_warm(self._server, self._template, registry=self._registry)
            except TimeoutError:
                raise ForkUnavailable(
                    f"a fork of template {self._template.name!r} was not made within {limit_s:.0f} s; "
                    "the server is stuck, or much slower than a server should be"
                ) from None

    async def _visit(self) -> None:
        """Look into one that waits, out of everybody's reach meanwhile; whole it is also if that fails."""
        self._visiting = warm = self._shelf.take_new()
        seen = False
        try:
            with contextlib.suppress(EnvironmentFault), anyio.move_on_after(_VISIT_TIMEOUT_S):
                await visit(self._server, warm)
                seen = True
        finally:
            self._visiting = None
            self._counts = replace(self._counts, visited=self._counts.visited + seen)
            self._give(warm, visited=True)

    def _failed(self, error: EnvironmentFault, began: float) -> None:
        self._cause = error
        self._failures += 1
        self._counts = replace(self._counts, failed=self._counts.failed + 1)
        if not error.retryable or self._failures >= _PATIENCE:
            # Who came later is told by a build that began later: it may work by now.
            while self._waiters and self._waiters[0].since <= began:
                self._refuse_first(f"none can be made: {error}", retryable=error.retryable, cause=error)

    def _give(self, warm: Warm, *, visited: bool = False) -> None:
        """To the first in line, else to the shelf."""
        if self._waiters:
            waiter = self._waiters.popleft()
            waiter.warm = warm
            waiter.told.set()
        else:
            self._shelf.put(warm, visited=visited)

    def _refuse_first(self, why: str, *, retryable: bool, cause: EnvironmentFault | None = None) -> None:
        waiter = self._waiters.popleft()
        waiter.fault = self._unavailable(why, retryable=retryable, cause=cause)
        waiter.told.set()

    def _unavailable(
        self, why: str, *, retryable: bool, cause: EnvironmentFault | None = None
    ) -> ForkUnavailable:
        error = ForkUnavailable(f"no fork of template {self._template.name!r}: {why}", retryable=retryable)
        error.__cause__ = cause
        return error

    async def _next(self, deadline: float, deadline_s: float) -> Warm:
        """The warm fork that is the caller's turn to have."""
        if self._closed:
            raise self._unavailable("the pool is closed", retryable=False)
        self._asked_at = anyio.current_time()
        if self._shelf and not self._waiters:
            warm = self._shelf.take()
            self._tell_builders()
            return warm
        waiter = _Waiter(since=anyio.current_time())
        self._waiters.append(waiter)
        self._tell_builders()
        self._arrived.set()
        self._arrived = anyio.Event()
        try:
            with anyio.CancelScope(deadline=deadline):
                await waiter.told.wait()
        except BaseException:
            if waiter.warm is not None:
                self._give(waiter.warm)
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)
        if waiter.warm is not None:
            return waiter.warm
        if waiter.fault is not None:
            raise waiter.fault
        if self._cause is not None:
            why = f"none could be made within {deadline_s:g} s: {self._cause}"
        else:
            why = f"none became free within {deadline_s:g} s ({len(self._waiters)} others wait)"
        raise self._unavailable(why, retryable=True, cause=self._cause)

    def _tell_builders(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _attach(self, warm: Warm, lifetime_s: float, label: str) -> Fork:
        try:
            return await fork.check_out(
                self._server, warm, lifetime_s=lifetime_s, registry=self._registry, label=label
            )
        except BaseException:
            # What it is now is not known, so nobody else may have it.
            self._counts = replace(self._counts, discarded=self._counts.discarded + 1)
            with contextlib.suppress(DropFailed):  # told in the statistics
                await self._dropped(warm.name)
            raise

    async def _dropped(self, name: str) -> bool:
        with anyio.CancelScope(shield=True):
            async with self._limits.droppers:
                try:
                    dropped = await fork.drop_by_name(self._server, name, registry=self._registry)
                except DropFailed:
                    self._counts = replace(self._counts, undropped=(*self._counts.undropped, name))
                    raise
                self._counts = replace(self._counts, dropped=self._counts.dropped + dropped)
                if dropped and self._counts.dropped % _VACUUM_EVERY == 0:
                    # Upkeep: what fails here is done by the next one or by a sweep.
                    with contextlib.suppress(EnvironmentFault):
                        await self._vacuum()
        return dropped

    async def _vacuum(self) -> None:
        with _pg.translated("cannot vacuum the catalogs", EnvironmentFault):
            if self._registry is not None:
                await self._registry.vacuum()
                return
            async with self._server.maintenance() as connection:
                await database.vacuum_catalogs(connection, self._server.facts)


@contextlib.asynccontextmanager
async def open_pool(
    server: Server,
    template: Template,
    registry: Registry | None,
    *,
    low: int,
    high: int,
    creators: int | anyio.CapacityLimiter | None = None,
    droppers: int | anyio.CapacityLimiter = _DROPPERS,
) -> AsyncIterator[Pool]:
    """Keep forks of a template warm for as long as the scope is open; what is warm then is dropped.

    Args:
        server: the template's.
        template: what to clone.
        registry: where the forks are registered; None on a server that nobody else uses.
        low: fewer than so many warm forks are too few.
        high: and up to so many are made then. 0 and 0 make a fork when somebody asks for one.
        creators: how many are made at once, or a limiter that several pools share; None is
        `database.creators_for`.
        droppers: the same of drops.

    Raises:
        UsageError: the numbers cannot work.
        DropFailed: in the end, a warm fork could not be dropped; the next sweep tries again.
    """
    if not 0 <= low <= high:
        raise UsageError(f"a pool cannot have between {low} and {high} warm forks")
    if creators is None:
        creators = database.creators_for(server.facts)
    limits = _Limits(low=low, high=high, creators=_limiter(creators), droppers=_limiter(droppers))
    pool = Pool(server, template, registry, limits)
    builders = min(limits.creators.total_tokens, max(_BUILDERS, 1))
    try:
        async with beside(*[pool.build] * int(builders)):
            try:
                yield pool
            finally:
                pool.close()
    except BaseException as error:
        for failure in await pool.clear():
            error.add_note(str(failure))
        raise
    failures = await pool.clear()
    if failures:
        raise failures[0]


def _limiter(limit: int | anyio.CapacityLimiter) -> anyio.CapacityLimiter:
    if isinstance(limit, int):
        if limit < 1:
            raise UsageError(f"a pool needs at least one creator and one dropper, not {limit}")
        return anyio.CapacityLimiter(limit)
    return limit
