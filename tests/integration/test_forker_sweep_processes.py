"""Launchers, builders and sweepers are killed for real; what they left is cleared, and nothing else."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import anyio
import pytest
from support.cli import dsn_of
from support.databases import connected, until_active
from support.forks import made_template
from support.launchers import launchers_on

from redteam_forker.database import STEPS as REMOVAL
from redteam_forker.fork import create_fork, drop_fork
from redteam_forker.ledger import entries_of
from redteam_forker.registry import open_registry
from redteam_forker.sweep import STEPS, sweep, sweeping
from redteam_forker.template import Template, drop_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.launchers import Launchers

    from redteam_forker.servers import Server

_SEED = "CREATE TABLE stock (id int PRIMARY KEY); INSERT INTO stock VALUES (1); -- sweep"


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, _SEED) as made:
        yield made


@pytest.fixture(scope="module")
async def launchers(server: Server) -> AsyncIterator[Launchers]:
    async with launchers_on(dsn_of(server)) as started:
        yield started


async def traces(server: Server, names: list[str]) -> set[str]:
    """Those of `names` that a database, a role or a row of the registry still bears."""
    async with connected(server) as session:
        rows = await session.fetch(
            "SELECT datname AS n FROM pg_database WHERE datname = ANY ($1)"
            " UNION ALL SELECT rolname FROM pg_roles WHERE rolname = ANY ($1)",
            names,
        )
    registered = {entry.name for entry in await entries_of(server)}
    return {row["n"] for row in rows} | (registered & set(names))


async def ours(server: Server, template: Template) -> set[str]:
    """Everything on the server that bears the template's letters, but itself."""
    stem = template.name.removesuffix("template")
    async with connected(server) as session:
        rows = await session.fetch(
            "SELECT datname AS n FROM pg_database WHERE starts_with(datname, $1)"
            " UNION ALL SELECT rolname FROM pg_roles WHERE starts_with(rolname, $1)",
            stem,
        )
    registered = {entry.name for entry in await entries_of(server) if entry.name.startswith(stem)}
    return {row["n"] for row in rows} | registered


async def test_killed_launchers_forks_go_and_a_living_ones_stay(
    server: Server, template: Template, launchers: Launchers
) -> None:  # P40, P42
    killed = await launchers.start("live", template.to_json(), 20)
    living = await launchers.start("live", template.to_json(), 2)
    async with open_registry(server) as registry:
        mine = await create_fork(server, template, lifetime_s=60, registry=registry)
        killed.kill()
        assert await launchers.wait(killed) == signal.SIGKILL
        swept = await sweep(server, registry=registry)
        assert (set(swept.dropped), swept.failed) == (set(killed.said), ())
        assert await traces(server, killed.said) == set()
        assert await traces(server, [*living.said, mine.name]) == {*living.said, mine.name}
        await drop_fork(server, mine, registry=registry)
        living.kill()
        await launchers.wait(living)
        assert set((await sweep(server, registry=registry)).dropped) == set(living.said)


async def test_what_a_neighbour_leaves_in_the_middle_of_a_launch_goes_a_few_at_a_time(
    server: Server, template: Template, launchers: Launchers
) -> None:
    killed = await launchers.start("live", template.to_json(), 5)
    async with open_registry(server) as registry:
        mine = await create_fork(server, template, lifetime_s=60, registry=registry)
        killed.kill()
        await launchers.wait(killed)
        assert len((await sweep(server, registry=registry, most=2)).dropped) == 2
        async with sweeping(server, registry, every_s=0.05, most=2):
            with anyio.fail_after(30):
                while await traces(server, killed.said):  # noqa: ASYNC110 - a server sets no event
                    await anyio.sleep(0.02)
        assert await traces(server, [mine.name]) == {mine.name}
        await drop_fork(server, mine, registry=registry)


async def test_frozen_launcher_is_never_swept(
    server: Server, template: Template, launchers: Launchers
) -> None:
    frozen = await launchers.start("live", template.to_json(), 1)
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        async with connected(server, "rt_registry") as session:
            # As if it had been frozen for an hour: it is silent, and its lease is over. Its lock is held.
            await session.execute(
                "UPDATE forker.launchers SET beat_at = beat_at - interval '1 hour', lease_until = beat_at"
                " WHERE pid = $1",
                frozen.pid,
            )
        assert (await sweep(server)).dropped == ()
        assert await traces(server, frozen.said) == set(frozen.said)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
        frozen.kill()
        await launchers.wait(frozen)
    assert (await sweep(server)).dropped == tuple(frozen.said)


async def test_database_that_a_killed_launcher_was_still_making_does_not_appear_later(
    server: Server, template: Template, launchers: Launchers
) -> None:  # P09
    before = await ours(server, template)
    async with connected(server) as session:
        transaction = session.transaction()
        await transaction.start()
        # Who copies it has to wait for us.
        await session.execute(f'ALTER DATABASE "{template.name}" RENAME TO rt_for_a_moment')
        killed = await launchers.start("creating", template.to_json())
        async with connected(server) as watch:
            await until_active(watch, "CREATE DATABASE %")
            killed.kill()
            await launchers.wait(killed)
            assert len((await sweep(server)).dropped) == 1
        await transaction.rollback()
    assert await ours(server, template) == before


async def test_warm_forks_of_a_killed_launcher_go(
    server: Server, template: Template, launchers: Launchers
) -> None:
    killed = await launchers.start("warm", template.to_json())
    killed.kill()
    await launchers.wait(killed)
    assert (await sweep(server)).dropped == tuple(killed.said)


@pytest.mark.parametrize("step", STEPS)
async def test_sweeper_that_is_killed_after_a_step_is_followed_by_one_that_finishes(
    server: Server, template: Template, launchers: Launchers, step: str
) -> None:
    left = await launchers.start("live", template.to_json(), 2)
    left.kill()
    await launchers.wait(left)
    assert await launchers.run("sweep", die_after=step) == signal.SIGKILL
    assert await traces(server, left.said)  # the second fork at least
    swept = await sweep(server)
    assert swept.failed == ()
    assert await traces(server, left.said) == set()


def test_every_step_of_a_removal_is_one_of_a_sweep() -> None:
    assert set(REMOVAL) < set(STEPS)


@pytest.mark.parametrize("what", ["one", "pool"])
async def test_what_a_launcher_leaves_that_is_killed_before_any_statement_is_cleared(
    server: Server, template: Template, launchers: Launchers, what: str
) -> None:  # P09
    before = await ours(server, template)
    killed = 0
    while await launchers.run(what, template.to_json(), die_before=killed):
        killed += 1
    assert killed > 20
    assert await ours(server, template) > before
    assert (await sweep(server)).failed == ()
    assert await ours(server, template) == before


async def test_builder_that_is_killed_before_any_statement_leaves_a_template_that_is_whole_or_nothing(
    server: Server, launchers: Launchers
) -> None:  # P12
    sql = "CREATE TABLE t (id int); ALTER TABLE t OWNER TO owner_in_the_seed;"
    owner = {"owner_in_the_seed"}
    before = await everything(server)
    count, status, left = 0, -1, set[str]()
    while status and not left:
        status = await launchers.run("build", sql, die_before=count)
        swept = await sweep(server)
        assert swept.failed == ()
        left = await everything(server) - before
        count += 2
    assert {name.rpartition("_")[2] for name in left - owner} == {"template", "baseline", "app"}
    assert owner < left
    assert count > 15
    async with connected(server) as session:
        name = next(name for name in left if name.endswith("_template"))
        facts = await session.fetchval(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1", name
        )
    await drop_template(server, Template.from_json(facts))
    assert await everything(server) == before


async def everything(server: Server) -> set[str]:
    async with connected(server) as session:
        rows = await session.fetch(
            "SELECT datname AS n FROM pg_database UNION ALL SELECT rolname FROM pg_roles"
        )
    return {row["n"] for row in rows} - {"rt_registry"}
