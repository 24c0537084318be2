"""What a fork's role is still doing when the fork is closed: waited for, ended, and in either case named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from support.databases import connected, until_active
from support.forks import connected_as, made_fork, made_template

from redteam_forker.fork import close_fork
from redteam_forker.names import quote_ident

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server
    from redteam_forker.template import Template

# Comes to an end when its role may not log in any more, which is when the fork is being closed.
_UNTIL_SHUT_OUT = """
DO $$ BEGIN
    WHILE (SELECT rolcanlogin FROM pg_roles WHERE rolname = current_user) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$
"""


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, "CREATE TABLE log (line text)") as made:
        yield made


async def test_a_session_that_rests_is_nothing_late(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        await agent.execute("INSERT INTO log VALUES ('done')")
        settled = await close_fork(server, fork, settle_s=10)
    assert (settled.late, settled.sessions) == (0, ())


async def test_what_is_waited_for_is_told_although_it_came_to_an_end(
    server: Server, template: Template
) -> None:
    async with (
        made_fork(server, template) as fork,
        connected_as(fork) as agent,
        connected(server) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(agent.execute, _UNTIL_SHUT_OUT)
        await until_active(session, "%rolcanlogin FROM pg_roles%")
        settled = await close_fork(server, fork, settle_s=20)
    (late,) = settled.sessions
    assert late.state == "active"
    assert late.statement.startswith("DO $$ BEGIN WHILE (SELECT rolcanlogin")
    assert (late.ended, settled.late) == (False, 0)
    assert late.open_s is not None


async def test_what_outlives_the_bound_is_ended_and_told(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        await agent.execute("SET application_name TO 'job'")
        await agent.execute("BEGIN")
        await agent.execute("INSERT INTO log VALUES ('never committed')")
        settled = await close_fork(server, fork, settle_s=0.05)
        async with connected(server, fork.database) as session:
            assert await session.fetchval("SELECT count(*) FROM log") == 0
    (late,) = settled.sessions
    assert (late.application, late.state) == ("job", "idle in transaction")
    assert late.statement == "INSERT INTO log VALUES ('never committed')"
    assert (late.ended, settled.late) == (True, 1)


async def test_who_keeps_its_own_role_locked_is_ended_and_told(server: Server, template: Template) -> None:
    async with made_fork(server, template) as fork, connected_as(fork) as agent:
        change = f"ALTER ROLE {quote_ident(fork.user)} SET work_mem TO '1MB'"
        await agent.execute("BEGIN")
        await agent.execute(change)
        settled = await close_fork(server, fork, settle_s=0.05)
    (late,) = settled.sessions
    assert (late.statement, late.ended, settled.late) == (change, True, 1)
