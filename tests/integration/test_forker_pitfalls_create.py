"""Making templates and forks beside whatever else goes on on a server."""

from __future__ import annotations

import os
import secrets
import signal
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from support.databases import connected, scratch_database, until_active
from support.forks import TODAY, connected_as, made_fork, made_template, seed_of

from redteam_forker import _pg, database
from redteam_forker.errors import DropFailed, ForkUnavailable, ServerUnavailable
from redteam_forker.fork import create_fork, drop_fork, list_forks
from redteam_forker.template import build_template

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_TABLE = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);"


async def test_a_clone_waits_for_a_source_that_is_in_use(server: Server) -> None:
    # P01: the server waits 5 s of itself and then gives up; we ask again.
    name = f"scratch_{secrets.token_hex(8)}"
    async with (
        scratch_database(server, _TABLE) as source,
        connected(server) as admin,
        connected(server) as watcher,
        anyio.create_task_group() as tasks,
    ):
        started = "SELECT query_start FROM pg_stat_activity WHERE query LIKE $1 AND pid <> pg_backend_pid()"

        async def make() -> None:
            await database.clone(admin, name, source, file_copy=True)

        async with connected(server, source):
            tasks.start_soon(make)
            await until_active(watcher, f'CREATE DATABASE "{name}"%')
            first = await watcher.fetchval(started, f'CREATE DATABASE "{name}"%')
            with anyio.fail_after(30):
                while await watcher.fetchval(started, f'CREATE DATABASE "{name}"%') == first:  # noqa: ASYNC110 - a server sets no event
                    await anyio.sleep(0.05)
    async with connected(server) as admin:
        assert await admin.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", name) == 1
        await admin.execute(f"DROP DATABASE {name}")


async def test_a_session_in_template1_stops_no_build_and_no_fork(server: Server) -> None:
    # P02: nothing of ours is made from template1, and nothing of ours is ever in it.
    async with (
        connected(server, "template1"),
        made_template(server, _TABLE + "-- template1") as template,
        made_fork(server, template) as fork,
        connected_as(fork) as agent,
    ):
        assert await agent.fetchval("SELECT count(*) FROM t") == 1


async def test_a_template_is_found_and_cloned_without_a_session_in_it(server: Server) -> None:
    # P03: what is known of a template is not kept in it. P04: closed first, so nobody has to be thrown out.
    sql = _TABLE + "-- sealed"
    async with made_template(server, sql) as template:
        with pytest.raises(ServerUnavailable, match="not currently accepting connections"):
            await server.connect(template.name)
        assert (await build_template(server, seed_of(sql), role=None, today=TODAY)).from_cache
        async with made_fork(server, template), connected(server) as admin:
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
            assert await admin.fetchval(sessions, template.name) == 0


async def test_no_process_of_the_server_is_in_a_database_of_its_own_accord(server: Server) -> None:
    # P05, P06: no background worker holds a template open, so a clone lacks none.
    async with connected(server) as admin:
        kinds = await admin.fetch(
            "SELECT DISTINCT backend_type FROM pg_stat_activity WHERE datid IS NOT NULL"
        )
    assert [row["backend_type"] for row in kinds] == ["client backend"]


async def test_time_limits_of_the_server_do_not_end_our_work(server: Server) -> None:
    # P08: a default of the database (or of our role) must not cut a clone or a drop.
    limits = (
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "transaction_timeout",
    )
    async with scratch_database(server, _TABLE) as name, connected(server) as admin:
        for limit in limits:
            await admin.execute(f"ALTER DATABASE {name} SET {limit} = '1ms'")
        async with connected(server, name) as session:
            assert [await session.fetchval(f"SHOW {limit}") for limit in limits] == ["0"] * len(limits)
            await session.execute("SELECT pg_sleep(0.01)")


@pytest.mark.parametrize("role", ["we\"ird; DROP ROLE x; --'", "%s", "ä" * 30, "Mixed Case", "$do$"])
async def test_a_name_from_a_seed_stays_a_name(server: Server, role: str) -> None:
    # P11: databases and roles of ours are never named after what users write; what they write is quoted.
    quoted = '"' + role.replace('"', '""') + '"'
    async with (
        made_template(server, f"{_TABLE} GRANT SELECT ON t TO {quoted};", role=role) as template,
        made_fork(server, template) as fork,
        connected_as(fork) as agent,
    ):
        assert template.created_roles == (role,)
        assert await agent.fetchval("SELECT count(*) FROM t") == 1


async def test_a_statement_in_a_transaction_of_ours_makes_no_database(server: Server) -> None:
    # P07: several statements sent as one are a transaction, in which CREATE DATABASE is refused.
    async with connected(server) as admin, admin.transaction():
        with pytest.raises(asyncpg.ActiveSQLTransactionError):
            await database.clone(admin, "never_made", "template0", file_copy=True)


async def test_a_collation_of_another_machine_is_told_with_the_way_out(server: Server) -> None:
    # P18: our own clusters use a collation without versions; a server of others may have moved.
    async with scratch_database(server, _TABLE) as name, connected(server) as admin:
        await admin.execute(f"UPDATE pg_database SET datcollversion = '0' WHERE datname = '{name}'")
        with (
            pytest.raises(ForkUnavailable, match="REFRESH COLLATION VERSION"),
            _pg.translated("cannot make fork", ForkUnavailable),
        ):
            await database.clone(admin, "never_made", name, file_copy=True)


async def test_foreign_databases_that_look_alike_are_not_ours(server: Server) -> None:
    # P41: in LIKE, an underscore is any character.
    alike = f"rtx{server.facts.instance}xaaaaaaaaxaaaaaaaaaaaaaaaa"
    async with connected(server) as admin:
        await admin.execute(f"CREATE DATABASE {alike} STRATEGY FILE_COPY")
        try:
            assert alike not in await list_forks(server)
        finally:
            await admin.execute(f"DROP DATABASE {alike}")


async def test_a_drop_that_a_stuck_process_holds_up_ends_in_time_and_is_done_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # P35: a process that does not answer holds up every drop; its database is then half dropped (P17).
    async with made_template(server, _TABLE + "-- stuck") as template:
        fork = await create_fork(server, template, lifetime_s=60)
        # A session of ours elsewhere, stopped by the kernel, stands for a worker that is stuck.
        async with connected(server) as stuck:
            pid = await stuck.fetchval("SELECT pg_backend_pid()")
            _signal(pid, "STOP")
            try:
                monkeypatch.setattr(database, "DROP_TIMEOUT_S", 1.0)
                with pytest.raises(DropFailed, match="not done after 1 s"):
                    await drop_fork(server, fork)
            finally:
                _signal(pid, "CONT")
            monkeypatch.undo()
            await drop_fork(server, fork)
            left = await stuck.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", fork.name)
        assert left == 0


def _signal(pid: int, name: str) -> None:
    os.kill(pid, getattr(signal, f"SIG{name}"))


async def test_a_dropped_fork_never_gives_its_name_to_another(server: Server) -> None:
    # P43: what an earlier one left behind cannot be in the way of the next.
    async with made_template(server, _TABLE + "-- names") as template:
        forks = [await create_fork(server, template, lifetime_s=60) for _ in range(3)]
        for fork in forks:
            await drop_fork(server, fork)
        assert len({fork.name for fork in forks}) == 3
