"""A fork is private, whole and used once; it goes without a trace, and so does one never finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.databases import connected, until_active
from support.forks import connected_as, made_fork, made_template

from redteam_forker.errors import DropFailed, ForkUnavailable
from redteam_forker.fork import Fork, close_fork, connect_fork_admin, create_fork, drop_fork, list_forks
from redteam_forker.role import CONNECTIONS_PER_FORK
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_SEED = """
CREATE TABLE stock (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO stock SELECT g, 'thing ' || g FROM generate_series(1, 200) g;
CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, line text);
"""


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, _SEED) as made:
        yield made


async def traces(server: Server, name: str) -> int:
    async with connected(server) as session:
        return int(
            await session.fetchval(
                "SELECT (SELECT count(*) FROM pg_database WHERE datname = $1)"
                " + (SELECT count(*) FROM pg_roles WHERE rolname = $1)",
                name,
            )
        )


async def test_twenty_forks_at_once_see_only_their_own_write(server: Server, template: Template) -> None:
    seen: dict[str, list[str]] = {}

    async def converse(word: str) -> None:
        async with made_fork(server, template) as fork, connected_as(fork) as agent:
            await agent.execute("UPDATE stock SET name = $1 WHERE id = 7", word)
            await everyone.wait()
            rows = await agent.fetch("SELECT name FROM stock WHERE id = 7 OR name LIKE 'word%'")
            seen[word] = [row["name"] for row in rows]

    everyone = Barrier(20)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(converse, f"word {number}")
    assert seen == {word: [word] for word in seen}
    assert len(seen) == 20


class Barrier:
    """Lets everybody go when all have come."""

    def __init__(self, parties: int) -> None:
        self._missing = parties
        self._all_here = anyio.Event()

    async def wait(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._all_here.set()
        await self._all_here.wait()


async def test_fork_reaches_itself_only_as_measured(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork:
        assert fork.reaches == (fork.name,)


async def test_password_is_in_no_repr(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork:
        assert fork.password not in repr(fork)


async def test_every_write_in_a_fork_is_at_or_after_its_watermark(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        await agent.execute("INSERT INTO log (line) VALUES ('mine')")
        async with connected(server, fork.database) as admin:
            mine = await admin.fetchval("SELECT xmin::text::bigint FROM log")
            oldest = await admin.fetchval("SELECT max(xmin::text::bigint) FROM stock")
    assert oldest < fork.watermark <= mine


async def test_admin_session_sees_the_fork(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork:
        session = await connect_fork_admin(server, fork)
        try:
            assert await session.fetchval("SELECT current_database()") == fork.name
        finally:
            await session.close()


async def test_template_stays_as_it_was(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        await agent.execute("DELETE FROM stock")
        async with made_fork(server, template) as other, connected_as(other) as neighbour:
            assert await neighbour.fetchval("SELECT count(*) FROM stock") == 200


async def test_dropped_fork_is_gone_with_its_role_while_in_use(server: Server, template: Template) -> None:
    fork = await create_fork(server, template, lifetime_s=60)
    async with connected_as(fork) as agent:
        await agent.execute("BEGIN; INSERT INTO log (line) VALUES ('open')")
        await drop_fork(server, fork)
        assert await traces(server, fork.name) == 0


async def test_dropping_twice_is_no_error(server: Server, template: Template) -> None:
    fork = await create_fork(server, template, lifetime_s=60)
    await drop_fork(server, fork)
    await drop_fork(server, fork)
    assert await traces(server, fork.name) == 0


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param('ALTER DATABASE "{0}" IS_TEMPLATE true', id="made-a-template"),
        pytest.param('ALTER DATABASE "{0}" ALLOW_CONNECTIONS false', id="closed"),
        pytest.param(
            "UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{0}'", id="drop-was-interrupted"
        ),
        pytest.param('DROP DATABASE "{0}"', id="database-gone"),
        pytest.param('REVOKE ALL ON DATABASE "{0}" FROM "{0}"; DROP ROLE "{0}"', id="role-gone"),
    ],
)
async def test_drop_finishes_what_it_finds(server: Server, template: Template, damage: str) -> None:
    fork = await create_fork(server, template, lifetime_s=60)
    async with connected(server) as session:
        await session.execute(damage.format(fork.name))
    await drop_fork(server, fork)
    assert await traces(server, fork.name) == 0


async def test_cancelled_drop_is_finished(server: Server, template: Template) -> None:
    fork = await create_fork(server, template, lifetime_s=60)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await drop_fork(server, fork)
    assert await traces(server, fork.name) == 0


async def test_drop_that_the_catalog_denies_is_an_error(server: Server, template: Template) -> None:
    fork = await create_fork(server, template, lifetime_s=60)
    async with connected(server) as session:
        # Something else that the role may do keeps the role from being dropped.
        await session.execute(f'GRANT CONNECT ON DATABASE postgres TO "{fork.name}"')
        with pytest.raises(DropFailed, match=f"cannot drop fork '{fork.name}'"):
            await drop_fork(server, fork)
        await session.execute(f'REVOKE CONNECT ON DATABASE postgres FROM "{fork.name}"')
    await drop_fork(server, fork)
    assert await traces(server, fork.name) == 0


@pytest.mark.parametrize("after", range(0, 40, 4))
async def test_cancelled_creation_leaves_nothing(server: Server, template: Template, after: int) -> None:
    made: list[Fork] = []

    async def create() -> None:
        made.append(await create_fork(server, template, lifetime_s=60))

    before = await list_forks(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        # Some turns of the loop, so that each case is cancelled at another point of the work.
        for _ in range(after):
            await anyio.sleep(0.0005)
        tasks.cancel_scope.cancel()
    for fork in made:
        await drop_fork(server, fork)
    assert await list_forks(server) == before
    async with connected(server) as session:
        pattern = template.name.removesuffix("template") + "%"
        roles = await session.fetch(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE $1 AND rolcanlogin", pattern
        )
    assert roles == []


async def test_creation_that_fails_leaves_nothing(server: Server, template: Template) -> None:
    before = await list_forks(server)
    async with connected(server) as session:
        await session.execute(f'ALTER ROLE "{template.group}" RENAME TO rt_away')
        try:
            with pytest.raises(ForkUnavailable, match=f'role "{template.group}" does not exist'):
                await create_fork(server, template, lifetime_s=60)
        finally:
            await session.execute(f'ALTER ROLE rt_away RENAME TO "{template.group}"')
    assert await list_forks(server) == before


async def test_role_ends_to_be_valid(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected(server) as session:
        left = await session.fetchval(
            "SELECT extract(epoch FROM rolvaliduntil - now())::float FROM pg_roles WHERE rolname = $1",
            fork.name,
        )
    assert 590 < left <= 600


async def test_lifetime_must_be_positive(server: Server, template: Template) -> None:
    with pytest.raises(UsageError, match="lifetime"):
        await create_fork(server, template, lifetime_s=0)


async def test_role_may_open_so_many_sessions_and_no_more(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork:
        sessions: list[asyncpg.Connection] = []
        try:
            while len(sessions) < CONNECTIONS_PER_FORK:
                sessions.append(await asyncpg.connect(**login(fork)))
            with pytest.raises(asyncpg.TooManyConnectionsError):
                await asyncpg.connect(**login(fork))
        finally:
            for session in sessions:
                await session.close()


def login(fork: Fork) -> dict[str, object]:
    return {
        "host": fork.host,
        "port": fork.port,
        "user": fork.user,
        "password": fork.password,
        "database": fork.database,
    }


async def test_closed_fork_lets_nobody_in_and_keeps_its_rows(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork:
        async with connected_as(fork) as agent:
            await agent.execute("INSERT INTO log (line) VALUES ('kept')")
            settled = await close_fork(server, fork)
            assert agent.is_closed() or await is_cut(agent)
        assert settled.late == 0
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="not permitted to log in"):
            await asyncpg.connect(**login(fork))
        async with connected(server, fork.database) as session:
            assert await session.fetchval("SELECT line FROM log") == "kept"


async def is_cut(session: asyncpg.Connection) -> bool:
    try:
        await session.execute("SELECT 1")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return True
    return False


async def test_closing_waits_for_a_late_writer(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.execute, "INSERT INTO log SELECT FROM pg_sleep(0.2)")
            async with connected(server) as session:
                await until_active(session, "INSERT INTO log SELECT FROM pg_sleep%")
            settled = await close_fork(server, fork, settle_s=10)
        async with connected(server, fork.database) as session:
            assert await session.fetchval("SELECT count(*) FROM log") == 1
    assert settled.late == 0
    assert settled.waited_s > 0


async def test_closing_ends_who_does_not_come_to_an_end(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        await agent.execute("BEGIN; INSERT INTO log (line) VALUES ('never committed')")
        settled = await close_fork(server, fork, settle_s=0.05)
        async with connected(server, fork.database) as session:
            assert await session.fetchval("SELECT count(*) FROM log") == 0
    assert settled.late == 1
    assert settled.waited_s >= 0.05


async def test_login_trigger_does_not_lock_us_out(server: Server, template: Template) -> None:
    sql = """
        CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed today'; END $$;
        CREATE EVENT TRIGGER door ON login EXECUTE FUNCTION no();
        ALTER EVENT TRIGGER door ENABLE ALWAYS;
    """
    async with made_fork(server, template) as fork:
        async with connected(server, fork.database) as session:
            await session.execute(sql)
        with pytest.raises(asyncpg.RaiseError, match="closed today"):
            await asyncpg.connect(**login(fork))
        async with connected(server, fork.database) as session:
            assert await session.fetchval("SELECT count(*) FROM stock") == 200
