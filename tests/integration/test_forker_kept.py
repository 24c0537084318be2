"""A kept fork can be compared long after its conversation, from what the registry knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.databases import connected
from support.forks import connected_as, made_template

import redteam_forker.ledger
from redteam_forker.changes import collect_changes
from redteam_forker.database import drop
from redteam_forker.fork import check_out, create_fork, create_warm, drop_by_name, keep_fork
from redteam_forker.kept import changes_of_kept
from redteam_forker.ledger import DATABASE, entries_of
from redteam_forker.registry import open_registry
from redteam_forker.servers import open_server
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.ledger import Entry
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

SEED = """
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 9) n;
"""


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, SEED + " -- kept") as made:
        yield made


async def entry_of(server: Server, name: str) -> Entry:
    (entry,) = [entry for entry in await entries_of(server) if entry.name == name]
    return entry


async def written_and_kept(server: Server, template: Template, *, warm: bool = False) -> str:
    async with open_registry(server) as registry:
        if warm:
            waiting = await create_warm(server, template, registry=registry)
            fork = await check_out(server, waiting, lifetime_s=60, registry=registry)
        else:
            fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        async with connected_as(fork) as session:
            await session.execute("UPDATE t SET v = 'new' WHERE id = 3; DELETE FROM t WHERE id = 4")
        await keep_fork(server, fork, registry=registry)
    return fork.name


@pytest.mark.parametrize("warm", [False, True], ids=["made", "warm"])
async def test_a_kept_fork_is_compared_as_when_its_conversation_ended(
    server: Server, template: Template, warm: bool
) -> None:
    name = await written_and_kept(server, template, warm=warm)
    entry = await entry_of(server, name)
    assert entry.watermark is not None
    changes = await changes_of_kept(server, entry)
    (table,) = changes.tables
    assert [(row.op, row.key) for row in table.rows] == [("update", {"id": "3"}), ("delete", {"id": "4"})]
    assert (changes.objects, changes.sequences) == ((), ())
    again = await changes_of_kept(server, entry)
    assert again.hash == changes.hash
    assert again.objects == ()  # what the first comparison needed in the fork is no change of it
    async with open_registry(server) as registry:
        await registry.claim(entry)
        await drop_by_name(server, name, registry=registry)


async def test_the_registry_keeps_a_watermark_that_is_as_good_as_the_forks_own(
    server: Server, template: Template
) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        async with connected_as(fork) as session:
            await session.execute("UPDATE t SET v = 'first of all' WHERE id = 1")
            first = await session.fetchval("SELECT min(xmin::text::bigint) FROM t WHERE id = 1")
        watermark = (await entry_of(server, fork.name)).watermark
        assert watermark is not None
        assert watermark <= fork.watermark
        assert watermark % 2**32 <= first
        hashes = {
            (await collect_changes(server, baseline=template.baseline, fork=fork.name, watermark=mark)).hash
            for mark in (watermark, fork.watermark)
        }
        assert len(hashes) == 1
        await drop_by_name(server, fork.name, registry=registry)


async def test_a_fork_that_cannot_be_compared_says_why(server: Server, template: Template) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        with pytest.raises(UsageError, match=r"is leased: .*`redteam forks keep` keeps it"):
            await changes_of_kept(server, await entry_of(server, fork.name))
        await keep_fork(server, fork, registry=registry)
        kept = await entry_of(server, fork.name)
        async with connected(server, fork.name) as session, session.transaction():
            await session.execute("SELECT 1")
            with pytest.raises(EnvironmentFault, match=rf"{fork.name}' is in use: .*: 1; end them"):
                await changes_of_kept(server, kept)
        async with connected(server) as session:
            await drop(session, server, fork.name)
        with pytest.raises(UsageError, match="is gone; `redteam forks drop` clears what is left"):
            await changes_of_kept(server, await entry_of(server, fork.name))
        await registry.claim(kept)
        await drop_by_name(server, fork.name, registry=registry)
        stray = await create_fork(server, template, lifetime_s=60)
        await registry.adopt(stray.name)
        adopted = await entry_of(server, stray.name)
        with pytest.raises(UsageError, match=r"when fork .* began is not known: it was not registered"):
            await changes_of_kept(server, adopted)
        await registry.claim(adopted)
        await drop_by_name(server, stray.name, registry=registry)


async def test_another_database_under_the_templates_name_is_not_the_template() -> None:
    async with open_server() as server, made_template(server, SEED) as template:
        name = await written_and_kept(server, template)
        async with connected(server) as session:
            await drop(session, server, template.name)  # by hand: ours refuses while there are forks
            await session.execute(f'CREATE DATABASE "{template.name}" STRATEGY FILE_COPY')
        entry = await entry_of(server, name)
        with pytest.raises(UsageError, match=f"'{template.name}' that fork '{name}' was cloned from is gone"):
            await changes_of_kept(server, entry)
        async with open_registry(server) as registry:
            await registry.claim(entry)
            await drop_by_name(server, name, registry=registry)


async def test_the_forks_of_an_older_registry_are_listed_before_and_after_it_is_migrated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_server() as server, made_template(server, SEED) as template:
        monkeypatch.setattr(redteam_forker.ledger, "_MIGRATIONS", ("registry_first",))
        name = await written_and_kept(server, template)
        old = await entry_of(server, name)
        assert (old.watermark, old.template_there) == (None, False)
        monkeypatch.undo()
        assert (await entry_of(server, name)).watermark is None  # reading migrates nothing
        async with open_registry(server) as registry, connected(server, DATABASE) as session:
            assert await session.fetchval("SELECT version FROM forker.about") >= 2
            entry = await entry_of(server, name)
            with pytest.raises(UsageError, match="or an older redteam made it"):
                await changes_of_kept(server, entry)
            await registry.claim(entry)
            await drop_by_name(server, name, registry=registry)
