"""One cluster for all launches of a user: who opens it joins it, the last one out ends it, its data stays.

Long because every process that can be killed is killed, and each time the next one must get in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from support.databases import connected
from support.forks import TODAY, connected_as, made_fork, seed_of
from support.processes import children, is_alive, parent, until

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import discard_shared, homes, open_server, placement, state, trim
from redteam_forker.template import build_template
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redteam_forker.servers import Server

_OWNER = """
import anyio, os, signal, sys
from pathlib import Path
from redteam_forker.servers import open_server

async def main():
    async with open_server(shared=Path(sys.argv[1]), data_root=Path(sys.argv[2])) as server:
        child = os.fork() if "fork" in sys.argv[3:] else -1
        if child == 0:
            signal.pause()
        connection = await server.connect()
        found = await connection.fetchval("SELECT system_identifier FROM pg_control_system()")
        await connection.close()
        print(server.facts.host, found, child, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""
_SQL = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@dataclass(frozen=True)
class Places:
    """The folder of a shared server, and where its data goes."""

    folder: Path
    root: Path

    def open(self) -> contextlib.AbstractAsyncContextManager[Server]:
        return open_server(shared=self.folder, data_root=self.root)

    def state(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return data

    def change(self, **parts: str) -> None:
        (self.folder / "state.json").write_text(json.dumps({**self.state(), **parts}))

    def is_flushed(self) -> bool:
        known = self.state()
        sign = Path(known["home"]) / "flushed"
        return sign.exists() and sign.read_text() == known["run"]

    def homes(self) -> list[Path]:
        return sorted(self.root.glob("rt*"))


@dataclass(frozen=True)
class Owner:
    """A process that has the server open."""

    process: anyio.abc.Process
    home: Path
    system: str
    child: int

    async def leave(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        assert await self.process.wait() == 0


@pytest.fixture
def places() -> Iterator[Places]:
    """In memory where there is any: its data is not flushed to a disk that others keep busy."""
    memory, disk = placement.MEMORY_ROOT, placement.DISK_ROOTS[0]
    base = memory if placement.free_bytes(memory) > 1 << 30 else disk
    with tempfile.TemporaryDirectory(dir=base) as directory:
        Path(directory).chmod(0o755)
        root = Path(directory) / "data"
        root.mkdir(mode=0o755)
        yield Places(folder=Path(directory) / "state", root=root)


@asynccontextmanager
async def owner_of(places: Places, *options: str) -> AsyncIterator[Owner]:
    argv = [sys.executable, "-c", _OWNER, str(places.folder), str(places.root), *options]
    async with await anyio.open_process(argv, stderr=None) as process:
        try:
            assert process.stdout is not None
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 4096)
            host, system, child = line.decode().split()
            yield Owner(process=process, home=Path(host).parent, system=system, child=int(child))
        finally:
            if process.returncode is None:
                process.kill()


def home_of(server: Server) -> Path:
    return Path(server.facts.host).parent


def postmaster(home: Path) -> int:
    return int((home / "data/postmaster.pid").read_text().split()[0])


def processes_of(home: Path) -> list[int]:
    postgres = postmaster(home)
    return [parent(postgres), postgres, *children(postgres)]


async def identity(server: Server) -> str:
    async with connected(server) as session:
        return str(await session.fetchval("SELECT system_identifier FROM pg_control_system()"))


async def test_processes_that_open_at_once_get_the_same_cluster(places: Places) -> None:
    found: list[tuple[Path, str]] = []

    async def one() -> None:
        async with owner_of(places) as owner:
            found.append((owner.home, owner.system))
            await until(lambda: len(found) == 3)
            await owner.leave()

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert len(set(found)) == 1
    assert places.homes() == [found[0][0]]


async def test_first_one_leaves_and_the_rest_go_on_and_the_last_one_ends_it(places: Places) -> None:
    async with owner_of(places) as first:
        async with places.open() as second:
            await first.leave()
            assert await identity(second) == first.system
            running = processes_of(first.home)
            # The supervisor and the postmaster; a session's process may just have ended.
            assert all(map(is_alive, running[:2]))
        await until(lambda: not any(map(is_alive, running)))
    assert places.homes() == [first.home]


async def test_next_launch_finds_its_template_and_what_was_kept(places: Places) -> None:
    async with places.open() as server:
        await build_template(server, seed_of(_SQL), role=None, today=TODAY)
        async with connected(server) as session:
            await session.execute("CREATE DATABASE kept")
        first = await identity(server)
    async with places.open() as server:
        template = await build_template(server, seed_of(_SQL), role=None, today=TODAY)
        assert (await identity(server), template.from_cache) == (first, True)
        async with (
            connected(server, "kept"),
            made_fork(server, template) as fork,
            connected_as(fork) as agent,
        ):
            assert await agent.fetchval("SELECT id FROM t") == 1


async def test_failure_of_the_launch_that_made_it_is_no_loss_to_the_others(places: Places) -> None:
    with contextlib.suppress(RuntimeError):
        async with places.open():
            async with owner_of(places) as other:
                pass
            raise RuntimeError("a failed launch")
    assert places.homes() == [other.home]
    async with places.open() as server:
        assert await identity(server) == other.system


async def test_facts_say_that_it_is_shared_and_what_is_kept_where(places: Places) -> None:
    async with places.open() as server:
        facts = server.facts
    assert (facts.kind, facts.shared, facts.ours) == ("embedded", True, True)
    assert facts.file_system
    assert facts.placement.startswith(f"{home_of(server)}: ")
    assert "between launches at most" in facts.placement


async def test_killed_owner_counts_as_out(places: Places) -> None:
    async with owner_of(places) as owner:
        running = processes_of(owner.home)
        owner.process.kill()
        await until(lambda: not any(map(is_alive, running)))
    async with places.open() as server:
        assert await identity(server) == owner.system


async def test_killed_owner_counts_as_out_while_a_child_of_its_lives(places: Places) -> None:
    async with owner_of(places, "fork") as owner:
        running = processes_of(owner.home)
        owner.process.kill()
        try:
            await until(lambda: not any(map(is_alive, running)))
            assert is_alive(owner.child)
        finally:
            os.kill(owner.child, signal.SIGKILL)


async def test_other_owners_are_not_touched_when_one_is_killed(places: Places) -> None:
    async with places.open() as server:
        async with owner_of(places) as other:
            other.process.kill()
            await other.process.wait()
        assert await identity(server) == other.system


async def test_killed_supervisor_takes_the_server_along_and_the_data_stays(places: Places) -> None:
    async with places.open() as server:
        template = await build_template(server, seed_of(_SQL), role=None, today=TODAY)
        running = processes_of(home_of(server))
        os.kill(running[0], signal.SIGKILL)
        await until(lambda: not any(map(is_alive, running)))
    async with places.open() as server:
        again = await build_template(server, seed_of(_SQL), role=None, today=TODAY)
    assert (again.from_cache, again.name) == (True, template.name)


async def test_server_opens_again_right_after_its_postmaster_was_killed(places: Places) -> None:
    # P85: what the postmaster leaves behind holds the data directory for a while.
    async with places.open() as server:
        first = await identity(server)
        lingering = await server.connect()
        await lingering.execute("CREATE DATABASE kept")
        os.kill(postmaster(home_of(server)), signal.SIGKILL)
        async with places.open() as again, connected(again, "kept"):
            assert await identity(again) == first
        await lingering.close()


async def test_process_ids_that_are_in_use_again_do_not_keep_it_from_starting(places: Places) -> None:
    async with owner_of(places) as owner:
        running = processes_of(owner.home)
        pid_file = owner.home / "data/postmaster.pid"
        stale = pid_file.read_text().split("\n", 1)[1]
        os.kill(running[0], signal.SIGKILL)
        await until(lambda: not any(map(is_alive, running)))
    user = pid_file.parent.stat().st_uid
    drop = {"user": user} if os.geteuid() == 0 else {}
    bystander = await anyio.open_process(["sleep", "60"], **drop)  # type: ignore[arg-type]
    try:
        pid_file.write_text(f"{bystander.pid}\n{stale}")
        os.chown(pid_file, user, -1)
        async with places.open() as server:
            assert await identity(server) == owner.system
    finally:
        bystander.kill()
        await bystander.aclose()


@pytest.mark.parametrize(
    "reached",
    ["rtk-*/lock", "rtk-*/c/s", "rtk-*/data/PG_VERSION", "rtk-*/data/postmaster.pid"],
    ids=["directory", "supervisor", "initdb", "postgres"],
)
async def test_opener_killed_on_its_way_leaves_nothing_running_and_the_next_opens(
    places: Places, reached: str
) -> None:
    argv = [sys.executable, "-c", _OWNER, str(places.folder), str(places.root)]
    async with await anyio.open_process(argv, stderr=None) as process:
        await until(lambda: any(places.root.glob(reached)))
        process.kill()
        await process.wait()
        async with places.open() as server:
            await identity(server)
            mine = home_of(server)

    def is_swept() -> bool:
        homes.sweep([places.root], named=state.named)
        return places.homes() == [mine]

    await until(is_swept)


async def test_cancelled_start_leaves_nothing(places: Places) -> None:
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            async with places.open():
                raise AssertionError("it was cancelled before it could be ready")

        tasks.start_soon(start)
        await until(lambda: any(places.root.glob("*/data/*")))
        tasks.cancel_scope.cancel()
    assert places.homes() == []


@pytest.mark.parametrize(
    "change",
    [
        {"boot": "another-start-of-the-machine"},
        {"version": "postgres (PostgreSQL) 17.9"},
        {"settings": "made-by-others"},
        {"password": "not-the-one"},
        {"home": "/nonexistent/rtk-home"},
        None,
    ],
    ids=["crashed-machine", "version", "settings", "password", "home", "corrupt"],
)
async def test_data_that_cannot_be_trusted_is_discarded(
    places: Places, change: dict[str, str] | None
) -> None:
    async with places.open() as server:
        old, first = home_of(server), await identity(server)
    if change is None:
        (places.folder / "state.json").write_text('{"settings": ')
    else:
        places.change(**change)
    async with places.open() as server:
        assert await identity(server) != first
        assert places.homes() == [home_of(server)]
    assert not old.exists()


async def test_data_that_does_not_start_is_discarded(places: Places) -> None:
    async with places.open() as server:
        first = await identity(server)
    (home_of(server) / "data/global/pg_control").write_bytes(b"x" * 8192)
    async with places.open() as server:
        assert await identity(server) != first
        assert places.homes() == [home_of(server)]


@pytest.mark.parametrize("flushed", [True, False])
async def test_data_on_a_disk_outlives_the_machines_start_if_it_was_stopped_and_flushed(
    places: Places, flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "_kind", lambda _: "disk")
    async with places.open() as server:
        first = await identity(server)
    await until(places.is_flushed)
    if not flushed:
        (home_of(server) / "flushed").write_text("of-an-earlier-start")
    monkeypatch.setattr(state, "boot_id", lambda: "the-next-start")
    async with places.open() as server:
        assert (await identity(server) == first) is flushed
    await until(places.is_flushed)


async def test_cluster_that_is_in_use_is_never_discarded(places: Places) -> None:
    async with places.open() as server:
        first = await identity(server)
        places.change(version="postgres (PostgreSQL) 17.9")
        with pytest.raises(ServerUnavailable, match="in use by another version of this program"):
            async with places.open():
                pass
        assert await identity(server) == first


async def test_two_folders_are_two_clusters(places: Places) -> None:
    other = Places(folder=places.folder.with_name("other"), root=places.root)
    async with places.open() as one, other.open() as two:
        assert await identity(one) != await identity(two)
        assert places.homes() == sorted([home_of(one), home_of(two)])


async def test_nobody_else_gets_at_the_folder_or_the_supervisor(places: Places) -> None:
    async with places.open() as server:
        modes = {
            path: stat.S_IMODE(path.stat().st_mode)
            for path in (places.folder, places.folder / "state.json", home_of(server) / "c")
        }
    assert list(modes.values()) == [0o700, 0o600, 0o700]
    known = state.read(places.folder)
    assert known is not None
    assert known.password not in repr(known)


@pytest.mark.parametrize("kind", ["file", "open", "below-a-file"])
async def test_unusable_folder_is_named(places: Places, kind: str) -> None:
    folder = places.folder
    if kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("in the way")
        folder = folder / "below" if kind == "below-a-file" else folder
    with pytest.raises(UsageError, match=str(folder)):
        async with open_server(shared=folder):
            pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_folder_that_may_not_be_written_to_is_named(places: Places) -> None:
    places.folder.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="cannot be used: Permission denied"):
        async with places.open():
            pass


@as_root
async def test_folder_of_another_user_is_refused(places: Places) -> None:
    places.folder.mkdir()
    os.chown(places.folder, 65534, 65534)
    with pytest.raises(UsageError, match="belongs to another user"):
        async with places.open():
            pass


async def test_old_templates_go_and_those_with_forks_stay(places: Places) -> None:
    async with places.open() as server:
        old = await build_template(server, seed_of(_SQL), role=None, today=TODAY)
        busy = await build_template(server, seed_of(f"{_SQL} -- forked"), role=None, today=TODAY)
        new = await build_template(server, seed_of(f"{_SQL} -- new"), role=None, today=TODAY)
        async with made_fork(server, busy), connected(server) as session:
            size = await session.fetchval("SELECT sum(pg_database_size(oid))::bigint FROM pg_database")
            assert await trim.trim(server, size) == []
            assert await trim.trim(server, size - 1) == [old.name]
            assert await trim.trim(server, 0) == [new.name]
            names = [row[0] for row in await session.fetch("SELECT datname FROM pg_database")]
            roles = [row[0] for row in await session.fetch("SELECT rolname FROM pg_roles")]
    assert [name for name in (old.name, old.baseline, new.name, new.baseline) if name in names] == []
    assert [name for name in (old.group, busy.group, new.group) if name in roles] == [busy.group]


async def test_last_one_out_keeps_no_more_than_the_limit(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "kept_bytes", lambda *_: 0)
    async with places.open() as server:
        await build_template(server, seed_of(_SQL), role=None, today=TODAY)
        async with places.open():
            pass
        again = await build_template(server, seed_of(_SQL), role=None, today=TODAY)
        assert again.from_cache
    async with places.open() as server:
        assert not (await build_template(server, seed_of(_SQL), role=None, today=TODAY)).from_cache


async def test_shared_cluster_is_discarded_when_nobody_uses_it(places: Places) -> None:
    async with places.open() as server:
        assert not await discard_shared(places.folder)
        await identity(server)
    assert await discard_shared(places.folder)
    assert (places.homes(), state.read(places.folder)) == ([], None)
    assert await discard_shared(places.folder)


async def test_stopped_cluster_is_swept_only_when_its_folder_does_not_name_it(places: Places) -> None:
    async with places.open() as server:
        home = home_of(server)
    assert homes.sweep([places.root]) == []
    assert homes.sweep([places.root], named=state.named) == []
    (places.folder / "state.json").unlink()
    assert homes.sweep([places.root], named=state.named) == [home]
