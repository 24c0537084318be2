"""A warm fork is handed out once and in line; a pool that cannot build says why, and recovers.

Long because a pool is one state machine: each step of it is cancelled, killed or tampered with in the middle.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest
from anyio.lowlevel import checkpoint
from support.databases import connected, until_active
from support.forks import connected_as, made_template

from redteam_forker import fork as forks
from redteam_forker.errors import DropFailed, ForkUnavailable
from redteam_forker.fork import list_forks
from redteam_forker.ledger import DATABASE, entries_of
from redteam_forker.pool import open_pool
from redteam_forker.registry import open_registry
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redteam_forker.fork import Fork, Warm
    from redteam_forker.pool import Pool
    from redteam_forker.registry import Registry
    from redteam_forker.servers import Server
    from redteam_forker.template import Template


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, "CREATE TABLE t (id int PRIMARY KEY); -- pool") as made:
        yield made


@pytest.fixture
async def registry(server: Server) -> AsyncIterator[Registry]:
    """Every test must leave nothing: neither a database, nor a row."""
    before = await names(server)
    async with open_registry(server) as opened:
        yield opened
        assert await names(server) == before


async def names(server: Server) -> tuple[set[str], set[str]]:
    return {entry.name for entry in await entries_of(server)}, set(await list_forks(server))


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not holds():  # noqa: ASYNC110 - statistics set no event
            await anyio.sleep(0.002)


async def until_rested(pool: Pool, count: int) -> None:
    """Wait until so many forks are warm and none is about to be visited: the next checkout takes one of them.

    While one is visited, a checkout may be served by a build that ends sooner.
    """
    await until(lambda: (pool.statistics().warm, pool.statistics().visited) == (count, count))


async def take(pool: Pool, deadline_s: float = 20) -> Fork:
    return await pool.checkout(lifetime_s=60, deadline_s=deadline_s)


async def test_fork_that_is_checked_out_can_be_used_and_is_handed_out_once(
    server: Server, template: Template, registry: Registry
) -> None:
    async with open_pool(server, template, registry, low=2, high=3) as pool:
        taken = [await pool.checkout(lifetime_s=60, deadline_s=20, label=f"c{n}") for n in range(6)]
        assert len({fork.name for fork in taken}) == 6
        async with connected_as(taken[0]) as agent:
            await agent.execute("INSERT INTO t VALUES (1)")
        labels = {entry.name: (entry.state, entry.label) for entry in await registry.entries()}
        assert [labels[fork.name] for fork in taken] == [("leased", f"c{n}") for n in range(6)]
        for fork in taken:
            assert await pool.drop(fork)
        counts = pool.statistics()
        assert (counts.checked_out, counts.dropped, counts.failed, counts.undropped) == (6, 6, 0, ())
        assert 0 < counts.checkout_s <= counts.longest_checkout_s


async def test_nobody_can_enter_a_warm_fork(server: Server, template: Template, registry: Registry) -> None:
    async with open_pool(server, template, registry, low=1, high=1) as pool:
        await until_rested(pool, 1)
        (entry,) = await registry.entries()
        async with connected(server) as session:
            row = await session.fetchrow(
                "SELECT rolcanlogin, rolpassword, has_database_privilege(rolname, rolname, 'CONNECT')"
                " FROM pg_authid WHERE rolname = $1",
                entry.name,
            )
        assert tuple(row) == (False, None, False)
        fork = await take(pool)
        assert fork.name == entry.name
        async with connected(server) as session:
            row = await session.fetchrow(
                "SELECT rolcanlogin, extract(epoch FROM rolvaliduntil - now())::int FROM pg_roles"
                " WHERE rolname = $1",
                fork.name,
            )
        assert (row[0], 50 < row[1] <= 60) == (True, True)
        await pool.drop(fork)


async def test_pool_fills_to_high_and_again_when_it_falls_below_low(
    server: Server, template: Template, registry: Registry
) -> None:
    async with open_pool(server, template, registry, low=2, high=4) as pool:
        await until(lambda: pool.statistics().warm == 4)
        taken = [await take(pool), await take(pool)]
        await checkpoint()
        assert (pool.statistics().warm, pool.statistics().building) == (2, 0)
        taken.append(await take(pool))
        await until(lambda: pool.statistics().warm == 4)
        assert pool.statistics().created == 7
        for fork in taken:
            await pool.drop(fork)


async def pages_read(server: Server, fork: Fork) -> int:
    """How many pages of a fork its sessions had to read from files, those that are over."""
    async with connected(server) as session:
        read: int = await session.fetchval(
            "SELECT blks_read FROM pg_stat_database WHERE datname = $1", fork.name
        )
    return read


async def test_fork_that_waited_was_visited_and_answers_from_memory(
    server: Server, template: Template
) -> None:
    async with open_pool(server, template, None, low=1, high=1) as pool:
        await until(lambda: pool.statistics().visited == 1)
        visited = await take(pool)
        before = await pages_read(server, visited)
        async with connected_as(visited) as agent:
            assert await agent.fetchval("SELECT id FROM t WHERE id = 1") is None
        read = await pages_read(server, visited) - before
        await pool.drop(visited)
    async with open_pool(server, template, None, low=0, high=0) as pool:
        new = await take(pool)
        async with connected_as(new) as agent:
            assert await agent.fetchval("SELECT id FROM t WHERE id = 1") is None
        assert 4 * read < await pages_read(server, new)
        assert pool.statistics().visited == 0
        await pool.drop(new)


async def test_visit_that_fails_costs_nobody_a_fork(
    server: Server, template: Template, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def unlucky(_: Server, warm: Warm) -> None:
        tried.append(warm.name)
        raise ForkUnavailable("no session is free")

    monkeypatch.setattr("redteam_forker.pool.visit", unlucky)
    async with open_pool(server, template, registry, low=2, high=2) as pool:
        await until(lambda: len(tried) == 2)
        taken = [await take(pool), await take(pool)]
        assert {fork.name for fork in taken} == set(tried[:2])
        assert (pool.statistics().visited, pool.statistics().failed) == (0, 0)
        for fork in taken:
            await pool.drop(fork)


async def test_fork_that_is_being_visited_is_handed_out_afterwards_and_goes_with_the_pool(
    server: Server, template: Template, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def slow(_: Server, __: Warm) -> None:
        begun.set()
        await go_on.wait()

    monkeypatch.setattr("redteam_forker.pool.visit", slow)
    async with open_pool(server, template, registry, low=1, high=1, creators=1) as pool:
        await begun.wait()
        assert pool.statistics().warm == 1
        async with anyio.create_task_group() as tasks:

            async def use() -> None:
                await pool.drop(await take(pool))

            tasks.start_soon(use)
            await until(lambda: pool.statistics().waiting == 1)
            go_on.set()
        assert pool.statistics().checked_out == 1
        go_on = anyio.Event()
        begun = anyio.Event()
        with anyio.fail_after(20):
            await begun.wait()
    # Nothing is left of the one that was being visited in the end: `registry` sees to it.


async def test_pool_without_warm_forks_makes_them_on_demand_and_without_a_registry(
    server: Server, template: Template
) -> None:
    async with open_pool(server, template, None, low=0, high=0) as pool:
        assert pool.statistics().building == 0
        fork = await take(pool)
        assert await pool.drop(fork)
        assert pool.statistics().created == 1
    assert await list_forks(server) == []


async def test_who_waits_is_served_in_order(server: Server, template: Template, registry: Registry) -> None:
    served: list[int] = []

    async def wait(number: int) -> None:
        fork = await take(pool)
        served.append(number)
        await pool.drop(fork)

    creators = anyio.CapacityLimiter(1)
    await creators.acquire_on_behalf_of("the test")  # nothing is made until all are in line
    async with (
        open_pool(server, template, registry, low=0, high=0, creators=creators) as pool,
        anyio.create_task_group() as tasks,
    ):
        for number in range(6):
            tasks.start_soon(wait, number)
            await until(lambda: pool.statistics().waiting > number)  # noqa: B023 - awaited at once
        creators.release_on_behalf_of("the test")
    assert served == list(range(6))


async def test_no_more_are_made_or_dropped_at_once_than_allowed(
    server: Server, template: Template, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = {"made": 0, "dropped": 0}
    running = {"made": 0, "dropped": 0}

    @contextlib.contextmanager
    def counting(what: str) -> Iterator[None]:
        running[what] += 1
        most[what] = max(most[what], running[what])
        try:
            yield
        finally:
            running[what] -= 1

    create, drop = forks.create_warm, forks.drop_by_name

    async def counted_create(*args: Any, **kwargs: Any) -> Warm:
        with counting("made"):
            return await create(*args, **kwargs)

    async def counted_drop(*args: Any, **kwargs: Any) -> bool:
        with counting("dropped"):
            return await drop(*args, **kwargs)

    monkeypatch.setattr(forks, "create_warm", counted_create)
    monkeypatch.setattr(forks, "drop_by_name", counted_drop)
    async with open_pool(server, template, registry, low=8, high=8, creators=3, droppers=2) as pool:
        await until(lambda: pool.statistics().warm == 8)
    assert most == {"made": 3, "dropped": 2}


@contextlib.asynccontextmanager
async def broken(server: Server, template: Template) -> AsyncIterator[None]:
    """No fork can be made of the template while the scope is open."""
    async with connected(server) as session:
        await session.execute(f'ALTER ROLE "{template.group}" RENAME TO rt_away')
        try:
            yield
        finally:
            await session.execute(f'ALTER ROLE rt_away RENAME TO "{template.group}"')


async def test_builder_that_fails_wakes_who_waits_with_its_cause_and_recovers(
    server: Server, template: Template, registry: Registry
) -> None:
    told: list[str] = []

    async def wait() -> None:
        with pytest.raises(ForkUnavailable, match=f'role "{template.group}" does not exist') as refused:
            await take(pool, deadline_s=60)
        told.append(str(refused.value))

    async with open_pool(server, template, registry, low=0, high=0) as pool:
        with anyio.fail_after(20):
            async with broken(server, template), anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(wait)
            assert len(told) == 5
            await pool.drop(await take(pool))
        assert pool.statistics().failed >= 1


async def test_deadline_that_passes_tells_what_kept_the_builders(
    server: Server, template: Template, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_args: object, **_kwargs: object) -> Warm:
        raise ForkUnavailable("the server has no free connection", retryable=True)

    async with open_pool(server, template, registry, low=0, high=0, creators=1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(forks, "create_warm", fails)
            with pytest.raises(
                ForkUnavailable, match=r"within 0\.05 s: the server has no free conn"
            ) as refused:
                await take(pool, deadline_s=0.05)
            assert refused.value.retryable
            # It fails again and again: no use in waiting for the deadline.
            with (
                anyio.fail_after(10),
                pytest.raises(ForkUnavailable, match="none can be made: the server"),
            ):
                await take(pool, deadline_s=60)
        await pool.drop(await take(pool))


async def test_deadline_that_passes_while_others_are_served_says_so(
    server: Server, template: Template, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object, **_kwargs: object) -> Warm:
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(forks, "create_warm", never)
    async with open_pool(server, template, registry, low=0, high=0) as pool:
        with pytest.raises(ForkUnavailable, match=r"none became free within 0\.02 s \(0 others wait\)"):
            await take(pool, deadline_s=0.02)
        assert pool.statistics().waiting == 0


async def test_who_goes_away_while_waiting_costs_nobody_a_fork(
    server: Server, template: Template, registry: Registry
) -> None:
    async with open_pool(server, template, registry, low=0, high=0, creators=1) as pool:
        async with anyio.create_task_group() as impatient:
            impatient.start_soon(take, pool)
            await until(lambda: pool.statistics().building == 1)
            impatient.cancel_scope.cancel()
        await until(lambda: pool.statistics().warm == 1)
        fork = await take(pool)
        assert pool.statistics().created == 1
        await pool.drop(fork)


async def test_checkout_that_is_cancelled_in_the_middle_is_not_handed_out_again(
    server: Server, template: Template, registry: Registry
) -> None:
    async with (
        open_pool(server, template, registry, low=1, high=1) as pool,
        connected(server, DATABASE) as session,
        anyio.create_task_group() as tasks,
    ):
        await until_rested(pool, 1)
        (entry,) = await registry.entries()
        transaction = session.transaction()
        await transaction.start()
        await session.execute("SELECT FROM forker.forks FOR UPDATE")  # so that a checkout has to wait
        scope = anyio.CancelScope()

        async def impatient() -> None:
            with scope:
                await take(pool)

        tasks.start_soon(impatient)
        async with connected(server) as watch:
            await until_active(watch, "SELECT forker.move(%")
        scope.cancel()
        await transaction.rollback()
        await until(lambda: pool.statistics().discarded == 1)
        assert (pool.statistics().discarded, pool.statistics().checked_out) == (1, 0)
        fork = await take(pool)
        assert fork.name != entry.name
        await pool.drop(fork)
    assert entry.name not in await list_forks(server)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param('ALTER DATABASE "{0}" ALLOW_CONNECTIONS false', id="closed"),
        pytest.param('DROP DATABASE "{0}"', id="gone"),
        pytest.param("UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{0}'", id="invalid"),
    ],
)
async def test_warm_fork_that_somebody_tampered_with_is_passed_over(
    server: Server, template: Template, registry: Registry, damage: str
) -> None:
    async with open_pool(server, template, registry, low=1, high=1) as pool:
        await until_rested(pool, 1)
        (entry,) = await registry.entries()
        async with connected(server) as session:
            await session.execute(damage.format(entry.name))
        fork = await take(pool)
        assert fork.name != entry.name
        async with connected_as(fork) as agent:
            assert await agent.fetchval("SELECT count(*) FROM t") == 0
        await pool.drop(fork)
        assert pool.statistics().discarded == 1


async def test_fork_that_cannot_be_dropped_is_told_and_left_to_a_sweep(
    server: Server, template: Template, registry: Registry
) -> None:  # P38
    async with open_pool(server, template, registry, low=0, high=0) as pool:
        fork = await take(pool)
        async with connected(server) as session:
            await session.execute(f'GRANT CONNECT ON DATABASE postgres TO "{fork.name}"')
            with pytest.raises(DropFailed, match="objects depend on it"):
                await pool.drop(fork)
            assert pool.statistics().undropped == (fork.name,)
            assert registry.abandoned == {fork.name}
            await session.execute(f'REVOKE CONNECT ON DATABASE postgres FROM "{fork.name}"')
        assert await pool.drop(fork)
        assert registry.abandoned == frozenset()


@pytest.mark.parametrize("after", [0, 3, 10, 30])
async def test_pool_that_is_cancelled_leaves_nothing(
    server: Server, template: Template, registry: Registry, after: int
) -> None:  # P37

    async def run() -> None:
        async with open_pool(server, template, registry, low=4, high=6):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        # Some turns of the loop, so that each case is cancelled at another point of the work.
        for _ in range(after):
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    # The fixture checks what is left.


async def test_error_of_the_scope_leaves_the_pool_as_it_is(
    server: Server, template: Template, registry: Registry
) -> None:
    with pytest.raises(UsageError, match="a mistake"):
        async with open_pool(server, template, registry, low=1, high=1):
            raise UsageError("a mistake")


async def test_closed_pool_tells_who_waits(server: Server, template: Template, registry: Registry) -> None:
    async with anyio.create_task_group() as tasks:
        async with open_pool(server, template, registry, low=0, high=0, creators=1) as pool:

            async def wait() -> None:
                with pytest.raises(ForkUnavailable, match="the pool is closed"):
                    await take(pool)

            async with broken(server, template):
                tasks.start_soon(wait)
                await until(lambda: pool.statistics().waiting == 1)
                pool.close()
        with pytest.raises(ForkUnavailable, match="the pool is closed"):
            await take(pool)


@pytest.mark.parametrize(
    ("low", "high", "creators"), [(-1, 1, 1), (3, 2, 1), (1, 1, 0)], ids=["negative", "crossed", "none"]
)
async def test_numbers_that_cannot_work_are_refused(
    server: Server, template: Template, low: int, high: int, creators: int
) -> None:
    with pytest.raises(UsageError):
        async with open_pool(server, template, None, low=low, high=high, creators=creators):
            pass


async def test_every_session_of_a_fork_is_gone_before_its_database(
    server: Server, template: Template, registry: Registry
) -> None:  # P31
    async with open_pool(server, template, registry, low=1, high=1) as pool:
        fork = await take(pool)
        async with connected_as(fork) as agent:
            await agent.execute("BEGIN; INSERT INTO t VALUES (7)")
            assert await pool.drop(fork)
            with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
                await agent.execute("COMMIT")
