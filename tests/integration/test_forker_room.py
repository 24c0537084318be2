"""While forks are made: below a low-water mark of free space none is, and old templates make way first."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.databases import connected
from support.forks import TODAY, made_template, seed_of

from redteam_forker.errors import ForkUnavailable
from redteam_forker.fork import create_fork, drop_fork
from redteam_forker.pool import open_pool
from redteam_forker.registry import open_registry
from redteam_forker.room import LOW_WATER_BYTES
from redteam_forker.servers import discard_shared, open_server, placement
from redteam_forker.template import build_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redteam_forker.registry import Registry
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

_MIB = 1 << 20
_SIZE_MIB = 400
_TABLE = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);"


@pytest.fixture
def tiny() -> Iterator[Path]:
    """A small file system of its own, which the server's user may enter too."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        point = Path(directory) / "mounted"
        point.mkdir()
        options = f"size={_SIZE_MIB}m,mode=0755"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"this root may not mount: {mounted.stderr.decode().strip()}")
        try:
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True)


class Filler:
    """A file that takes room away, and gives it back."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filler"

    def leave(self, left_bytes: int) -> None:
        """Take so much that so much is left."""
        with self._path.open("ab") as file:
            at = file.tell()
            os.posix_fallocate(file.fileno(), at, placement.free_bytes(self._path.parent) - left_bytes)

    def give_back(self) -> None:
        self._path.unlink()


@pytest.fixture
async def server(tiny: Path) -> AsyncIterator[Server]:
    async with open_server(data_root=tiny) as opened:
        yield opened


async def many(server: Server, template: Template, registry: Registry) -> None:
    """Make and drop forks without end: what was seen of the disk a moment ago is believed for a moment."""
    while True:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        await drop_fork(server, fork, registry=registry)


async def test_below_the_low_water_mark_no_fork_is_made_and_above_it_again(
    server: Server, tiny: Path
) -> None:
    # P22
    filler = Filler(tiny)
    async with open_registry(server) as registry, made_template(server, _TABLE) as template:
        first = await create_fork(server, template, lifetime_s=60, registry=registry)
        filler.leave(LOW_WATER_BYTES)
        with pytest.raises(ForkUnavailable) as refused:
            await many(server, template, registry)
        assert refused.value.retryable
        assert "no fork is made: " in str(refused.value)
        assert f"must leave {LOW_WATER_BYTES // _MIB} MB" in str(refused.value)
        # Nothing is left of the one that was not made, and nothing stopped.
        assert [entry.name for entry in await registry.entries()] == [first.name]
        async with connected(server) as admin:
            assert await admin.fetchval("SELECT 1") == 1
        filler.give_back()
        await drop_fork(server, first, registry=registry)
        async with open_pool(server, template, registry, low=0, high=0) as pool:
            again = await pool.checkout(lifetime_s=60, deadline_s=30)
            await pool.drop(again)


async def test_who_waits_for_a_fork_is_told_that_there_is_no_room(server: Server, tiny: Path) -> None:
    # P22
    filler = Filler(tiny)
    async with open_registry(server) as registry, made_template(server, _TABLE) as template:
        filler.leave(LOW_WATER_BYTES)
        async with open_pool(server, template, registry, low=0, high=0) as pool:
            with pytest.raises(ForkUnavailable, match="none can be made: no fork is made: "):
                await pool.checkout(lifetime_s=60, deadline_s=30)
        filler.give_back()


async def test_templates_that_nobody_uses_make_way_for_a_fork(tiny: Path, tmp_path: Path) -> None:
    folder, filler = tmp_path / "kept", Filler(tiny)
    try:
        async with open_server(data_root=tiny, shared=folder) as server:
            async with open_registry(server) as gone:
                old = await build_template(
                    server, seed_of(f"{_TABLE} -- old"), role=None, today=TODAY, registry=gone
                )
            async with open_registry(server) as neighbour, open_registry(server) as registry:
                theirs = await build_template(
                    server, seed_of(f"{_TABLE} -- theirs"), role=None, today=TODAY, registry=neighbour
                )
                ours = await build_template(
                    server, seed_of(_TABLE), role=None, today=TODAY, registry=registry
                )
                # A fork would leave less than the mark by a little: one template less is enough.
                filler.leave(LOW_WATER_BYTES + ours.size_bytes + 4 * _MIB)
                fork = await create_fork(server, ours, lifetime_s=60, registry=registry)
                await drop_fork(server, fork, registry=registry)
                async with connected(server) as admin:
                    rows = await admin.fetch("SELECT datname::text AS n FROM pg_database WHERE datistemplate")
                    group = await admin.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", old.group)
                assert {row["n"] for row in rows} - {"template0", "template1"} == {theirs.name, ours.name}
                assert group is None
                filler.give_back()
    finally:
        assert await discard_shared(folder)
