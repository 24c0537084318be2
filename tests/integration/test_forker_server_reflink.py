"""On a file system that clones files, a fork shares its template's blocks instead of copying them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.databases import connected, scratch_database
from support.processes import until

from redteam_forker import database
from redteam_forker.servers import homes, open_server, placement

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLE_BYTES = 200 << 20
_FILL = "CREATE TABLE t (x text); ALTER TABLE t ALTER x SET STORAGE PLAIN; "
_ROWS = f"INSERT INTO t SELECT repeat('x', 8000) FROM generate_series(1, {_TABLE_BYTES // 8192})"


@pytest.fixture(scope="module")
def xfs() -> Iterator[Path]:
    """A new XFS, in a file, where root may mount one."""
    mkfs = shutil.which("mkfs.xfs", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if os.geteuid() != 0 or mkfs is None:
        pytest.skip("needs root, and mkfs.xfs of the package xfsprogs")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        image, point = Path(directory) / "image", Path(directory) / "mounted"
        Path(directory).chmod(0o755)
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(1 << 30)
        subprocess.run([mkfs, "-q", "-m", "reflink=1", str(image)], check=True)
        mounted = subprocess.run(
            ["mount", "-o", "loop", str(image), str(point)], capture_output=True, text=True, check=False
        )
        if mounted.returncode != 0:
            pytest.skip(f"no loop mount here: {mounted.stderr.strip()}")
        try:
            point.chmod(0o755)
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True)


async def test_fork_shares_the_blocks_of_its_template(xfs: Path) -> None:
    async with open_server(data_root=xfs) as server:
        facts = server.facts
        assert (facts.clone, facts.file_system) == (True, "xfs")
        assert "clones files" in facts.placement
        async with scratch_database(server, _FILL + _ROWS) as source, connected(server) as admin:
            await admin.execute("CHECKPOINT")
            os.sync()
            before = placement.free_bytes(xfs)
            await database.clone(admin, "cloned", source, file_copy=True)
            os.sync()
            taken = before - placement.free_bytes(xfs)
            size = await admin.fetchval("SELECT pg_database_size('cloned')")
    # P94: the size that PostgreSQL tells is not what the clone takes.
    assert size > _TABLE_BYTES
    assert taken < size / 10


async def test_shared_server_says_that_it_clones(xfs: Path) -> None:
    async with open_server(shared=xfs.parent / "state", data_root=xfs) as server:
        assert (server.facts.clone, server.facts.file_system, server.facts.shared) == (True, "xfs", True)
        home = Path(server.facts.host).parent
    await until(lambda: is_free(home))  # it is being flushed to the disk


def is_free(home: Path) -> bool:
    taken = homes.take(home)
    if taken is not None:
        os.close(taken.lock_fd)
    return taken is not None


async def test_server_elsewhere_does_not_claim_to_clone() -> None:
    root = placement.MEMORY_ROOT
    if not os.access(root, os.W_OK):
        pytest.skip(f"{root} is not there")
    async with open_server(data_root=root) as server, connected(server) as session:
        assert (server.facts.clone, server.facts.file_system) == (False, "tmpfs")
        assert await session.fetchval("SHOW file_copy_method") == "copy"
