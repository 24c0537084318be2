"""The registry says whose each fork is; who loses his hold on it hands nothing out, and is told."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import anyio
import pytest
from support.databases import connected
from support.forks import made_template
from support.servers import open_to_all, stranger

import redteam_forker.ledger
from redteam_forker.errors import ForkUnavailable, ServerUnavailable
from redteam_forker.fork import close_fork, create_fork, create_warm, drop_by_name, drop_fork, keep_fork
from redteam_forker.ledger import DATABASE, entries_of
from redteam_forker.registry import open_registry
from redteam_forker.servers import open_server
from redteam_forker.sql import query
from redteam_forker.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from redteam_forker.ledger import Entry
    from redteam_forker.registry import Registry
    from redteam_forker.servers import Server
    from redteam_forker.template import Template


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, "CREATE TABLE t (id int PRIMARY KEY); -- registry") as made:
        yield made


async def entry_of(server: Server, name: str) -> Entry | None:
    return next((entry for entry in await entries_of(server) if entry.name == name), None)


async def state_of(server: Server, name: str) -> str | None:
    entry = await entry_of(server, name)
    return entry.state if entry else None


@pytest.fixture
async def alone() -> AsyncIterator[Server]:
    """A server without a registry."""
    async with open_server() as opened:
        yield opened


async def cut(server: Server, registry: Registry) -> None:
    """End the session that holds a launcher's lock, as a network does."""
    async with connected(server, DATABASE) as session:
        await session.fetch(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks"
            " WHERE locktype = 'advisory' AND classid = 29300 AND objid::bigint = $1",
            registry.launcher,
        )


async def test_fork_is_registered_from_its_intent_to_its_end(server: Server, template: Template) -> None:
    async with open_registry(server) as registry:
        warm = await create_warm(server, template, registry=registry, label="one/c001")
        entry = await entry_of(server, warm.name)
        assert entry is not None
        assert (entry.state, entry.launcher, entry.template) == ("warm", registry.launcher, template.name)
        assert (entry.label, entry.liveness, entry.lease_until, entry.there) == (
            "one/c001",
            "alive",
            None,
            True,
        )
        fork = await create_fork(server, template, lifetime_s=60, registry=registry, label="one/c002")
        entry = await entry_of(server, fork.name)
        assert entry is not None
        assert (entry.state, entry.label) == ("leased", "one/c002")
        assert entry.lease_s is not None
        assert 0 < entry.lease_s <= 60
        await close_fork(server, fork, registry=registry)
        assert await state_of(server, fork.name) == "closing"
        assert await drop_fork(server, fork, registry=registry)
        assert await drop_by_name(server, warm.name, registry=registry)
        assert await entry_of(server, fork.name) is None
        assert await entry_of(server, warm.name) is None


async def test_row_is_there_before_the_database(server: Server, template: Template) -> None:  # P09
    async with open_registry(server) as registry, connected(server) as session:
        transaction = session.transaction()
        await transaction.start()
        await session.execute(f'ALTER DATABASE "{template.name}" RENAME TO rt_for_a_moment')
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: create_warm(server, template, registry=registry))
            with anyio.fail_after(10):
                while not (entries := await registry.entries()):  # noqa: ASYNC110 - a server sets no event
                    await anyio.sleep(0.005)
            tasks.cancel_scope.cancel()
        await transaction.rollback()
        assert [(entry.state, entry.there) for entry in entries] == [("creating", False)]
        assert await registry.entries() == ()


async def test_labels_and_names_of_any_kind_are_only_text(server: Server, template: Template) -> None:  # P11
    label = 'it\'s \\ "quoted" $$; DROP TABLE forker.forks; -- é\n' + "x" * 300
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry, label=label)
        entry = await entry_of(server, fork.name)
        assert entry is not None
        assert entry.label == label[:200]
        assert "quoted" not in fork.name
        await drop_fork(server, fork, registry=registry)


async def test_kept_fork_is_nobodys_and_stays(server: Server, template: Template) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry, label="keep/c001")
        await close_fork(server, fork, registry=registry)
        await keep_fork(server, fork, registry=registry)
        assert not await drop_fork(server, fork, registry=registry)
    entry = await entry_of(server, fork.name)
    assert entry is not None
    assert (entry.kept, entry.launcher, entry.liveness, entry.label) == (True, None, "", "keep/c001")
    swept = await sweep(server, unregistered=True)
    assert (swept.dropped, swept.kept) == ((), (fork.name,))
    async with open_registry(server) as registry:
        assert await registry.claim(entry)
        assert await drop_by_name(server, fork.name, registry=registry)


async def test_fork_that_somebody_keeps_goes_on_and_is_not_dropped(
    server: Server, template: Template
) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        entry = await entry_of(server, fork.name)
        assert entry is not None
        assert await registry.keep(entry)
        assert not await registry.keep(entry)  # it has changed since
        await close_fork(server, fork, registry=registry)
        assert not await drop_fork(server, fork, registry=registry)
        assert await state_of(server, fork.name) == "kept"
        kept = await entry_of(server, fork.name)
        assert kept is not None
        assert await registry.claim(kept)
        await drop_by_name(server, fork.name, registry=registry)


async def test_launcher_that_leaves_is_forgotten(server: Server) -> None:
    async with open_registry(server) as registry:
        mine = registry.launcher
    async with connected(server, DATABASE) as session:
        assert not await session.fetchval("SELECT count(*) FROM forker.launchers WHERE id = $1", mine)


async def test_what_a_launcher_leaves_behind_is_garbage_at_once(server: Server, template: Template) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
    entry = await entry_of(server, fork.name)
    assert entry is not None
    assert entry.orphaned
    assert (await sweep(server)).dropped == (fork.name,)


async def test_lost_session_is_replaced_and_conversations_go_on(server: Server, template: Template) -> None:
    async with open_registry(server, heartbeat_s=0.05) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        mine = registry.launcher
        await cut(server, registry)
        await registry.ensure_held()
        with anyio.fail_after(10):
            while not await locked(server, mine):  # noqa: ASYNC110 - a server sets no event
                await anyio.sleep(0.01)
        assert (registry.launcher, registry.fault, registry.is_ours(fork.name)) == (mine, None, True)
        await close_fork(server, fork, registry=registry)
        await drop_fork(server, fork, registry=registry)


async def locked(server: Server, launcher: int) -> bool:
    async with connected(server, DATABASE) as session:
        return bool(
            await session.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 29300"
                " AND objid::bigint = $1",
                launcher,
            )
        )


async def test_registry_out_of_reach_hands_nothing_out_and_says_why(
    server: Server, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        await cut(server, registry)
        launcher = registry._launcher

        async def unreachable() -> asyncpg.Connection:
            raise ServerUnavailable("the cable is out")

        with monkeypatch.context() as patched:
            patched.setattr(launcher, "_connect", unreachable)
            patched.setattr(launcher, "_beaten", float("-inf"))
            with pytest.raises(ForkUnavailable, match=r"registry is out of reach: "):
                await create_fork(server, template, lifetime_s=60, registry=registry)
            with pytest.raises(ForkUnavailable, match=r"the cable is out"):
                await create_fork(server, template, lifetime_s=60, registry=registry)
            # Who has a fork goes on with it.
            await close_fork(server, fork, registry=registry)
        other = await create_fork(server, template, lifetime_s=60, registry=registry)
        for each in (fork, other):
            await drop_fork(server, each, registry=registry)


async def test_launcher_that_was_given_up_is_told_and_starts_anew(server: Server, template: Template) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        mine, launcher = registry.launcher, registry._launcher
        await cut(server, registry)
        async with connected(server, DATABASE) as session:
            # As if it had been away for an hour, on another machine.
            await session.execute(
                "UPDATE forker.launchers SET beat_at = beat_at - interval '1 hour', place = '',"
                " lease_until = beat_at - interval '59 minutes' WHERE id = $1",
                mine,
            )
        assert (await sweep(server)).dropped == (fork.name,)
        with pytest.raises(ForkUnavailable, match=f"fork '{fork.name}' is not ours any more"):
            await close_fork(server, fork, registry=registry)
        assert not await drop_fork(server, fork, registry=registry)
        for _ in range(2):  # the first may be the one that finds the session cut
            await launcher.beat()
        await registry.ensure_held()
        assert registry.launcher != mine
        assert not registry.is_ours(fork.name)
        other = await create_fork(server, template, lifetime_s=60, registry=registry)
        assert await drop_fork(server, other, registry=registry)


@pytest.mark.parametrize(
    ("beat_s", "lease_s", "warm", "leased"),
    [
        pytest.param(0, 0, "silent", "silent", id="lock-lost-just-now"),
        pytest.param(3600, -60, "gone", "silent", id="silent-and-leased"),
        pytest.param(3600, 60, "gone", "gone", id="silent-and-lease-over"),
    ],
)
async def test_launcher_is_gone_by_lock_and_silence_and_lease_together(
    server: Server, template: Template, beat_s: float, lease_s: float, warm: str, leased: str
) -> None:
    async with open_registry(server) as registry:
        forks = [
            (await create_warm(server, template, registry=registry)).name,
            (await create_fork(server, template, lifetime_s=60, registry=registry)).name,
        ]
        query = """
            UPDATE forker.launchers
            SET beat_at = clock_timestamp() - make_interval(secs => $2), place = '',
                lease_until = clock_timestamp() - make_interval(secs => $3)
            WHERE id = $1
        """
        async with connected(server, DATABASE) as session:
            await session.execute(query, registry.launcher, beat_s, lease_s)
            held = {entry.name: entry.liveness for entry in await entries_of(server)}
            assert [held[name] for name in forks] == ["alive", "alive"]
            await cut(server, registry)
            lost = {entry.name: entry.liveness for entry in await entries_of(server)}
        assert [lost[name] for name in forks] == [warm, leased]
        await registry._launcher.beat()
        await registry._launcher.beat()
        for name in forks:
            assert await drop_by_name(server, name, registry=registry)


async def test_session_behind_a_pooler_of_transactions_is_refused(server: Server) -> None:
    async with open_registry(server) as registry:
        session = registry._launcher._session
        assert session is not None
        await session.execute("SELECT pg_advisory_unlock_all()")  # what such a pooler does
        await registry._launcher.beat()
        assert registry.fault is not None
        assert "not a pooler" in registry.fault


async def test_many_who_open_at_once_make_one_registry(alone: Server) -> None:
    seen: list[int] = []

    async def open_it() -> None:
        async with open_registry(alone) as registry:
            seen.append(registry.launcher)

    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(open_it)
    assert len(set(seen)) == 6


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(["CREATE DATABASE rt_registry ALLOW_CONNECTIONS false"], id="maker-was-killed"),
        pytest.param(
            [
                "CREATE DATABASE rt_registry",
                "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'rt_registry'",
            ],
            id="drop-was-interrupted",
        ),
    ],
)
async def test_registry_that_is_half_made_is_finished(alone: Server, damage: list[str]) -> None:
    async with connected(alone) as session:
        for statement in damage:
            await session.execute(statement)
    assert await entries_of(alone) == ()
    async with open_registry(alone) as registry:
        assert await registry.entries() == ()


async def test_looking_makes_no_registry(alone: Server) -> None:
    assert await entries_of(alone) == ()
    swept = await sweep(alone, dry_run=True, unregistered=True)
    assert swept.would_drop == ()
    async with connected(alone) as session:
        assert not await session.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", DATABASE)


async def test_nobody_else_may_enter_the_registry(server: Server) -> None:
    async with open_registry(server), connected(server) as session:
        name = f"nobody_{secrets.token_hex(4)}"
        await session.execute(f"CREATE ROLE {name}")
        try:
            statement = "SELECT has_database_privilege($1, $2, 'CONNECT')"
            assert not await session.fetchval(statement, name, DATABASE)
        finally:
            await session.execute(f"DROP ROLE {name}")


async def test_newer_registry_is_refused_with_what_to_do(alone: Server) -> None:
    async with open_registry(alone):
        pass
    async with connected(alone, DATABASE) as session:
        await session.execute("UPDATE forker.about SET version = 99")
    with pytest.raises(ServerUnavailable, match=r"version 99, made by a newer redteam.*upgrade redteam"):
        async with open_registry(alone):
            pass
    with pytest.raises(ServerUnavailable, match="version 99"):
        await entries_of(alone)


async def test_older_registry_is_migrated_and_keeps_its_forks(
    alone: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_registry(alone) as registry:
        await registry.adopt("rt_aaaa_bbbbbbbb_cccccccccccccccc")
    migrations = (*redteam_forker.ledger._MIGRATIONS, "next")
    monkeypatch.setattr(redteam_forker.ledger, "_MIGRATIONS", migrations)
    monkeypatch.setattr(
        redteam_forker.ledger,
        "query",
        lambda name: "ALTER TABLE forker.forks ADD note text" if name == "next" else query(name),
    )
    async with open_registry(alone) as registry, connected(alone, DATABASE) as session:
        assert [entry.state for entry in await registry.entries()] == ["kept"]
        assert await session.fetchval("SELECT version FROM forker.about") == len(migrations)
        assert await session.fetch("SELECT note FROM forker.forks") == [(None,)]


async def test_role_that_is_no_superuser_has_a_registry_and_others_are_told() -> None:  # P20
    async with (
        open_to_all() as server,
        stranger(server, "CREATEDB CREATEROLE") as mine,
        stranger(server, "CREATEDB CREATEROLE") as theirs,
        open_server(mine) as existing,
        made_template(existing, "CREATE TABLE t (id int); -- no superuser") as template,
    ):
        async with open_registry(existing) as registry:
            warm = await create_warm(existing, template, registry=registry)
            fork = await create_fork(existing, template, lifetime_s=60, registry=registry)
            assert DATABASE not in fork.reaches
            async with open_server(theirs) as other:
                with pytest.raises(ServerUnavailable, match=r"registry 'rt_registry' .* is role 'stranger_"):
                    async with open_registry(other):
                        pass
            await close_fork(existing, fork, registry=registry)
            assert await drop_fork(existing, fork, registry=registry)
        swept = await sweep(existing)
        assert (swept.dropped, swept.failed, swept.vacuumed) == ((warm.name,), (), False)
