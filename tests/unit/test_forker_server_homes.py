"""A cluster's directory is swept when all of its processes are gone, and never before."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import homes, placement, state
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_home_of_a_live_process_is_left(tmp_path: Path) -> None:
    home = homes.make(tmp_path, short_root=tmp_path)
    assert homes.sweep([tmp_path]) == []
    os.close(home.lock_fd)
    assert homes.sweep([tmp_path]) == [home.path]
    assert list(tmp_path.iterdir()) == []


def test_a_home_with_a_short_socket_is_swept_with_it(tmp_path: Path) -> None:
    root, short = tmp_path / ("long" * 30), tmp_path / "short"
    root.mkdir()
    short.mkdir()
    home = homes.make(root, short_root=short)
    assert home.sockets.is_relative_to(short)
    os.close(home.lock_fd)
    assert homes.sweep([root]) == [home.path]
    assert list(short.iterdir()) == []


@pytest.mark.parametrize("elsewhere", ["/", "..", "/etc/rts-x", "\0", ""])
def test_sweep_removes_nothing_that_is_not_a_home(tmp_path: Path, elsewhere: str) -> None:
    for name in ("rtf", "rtx-a", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "rtf-file").write_text("a file")
    (tmp_path / "rtf-link").symlink_to(tmp_path / "other")
    home = homes.make(tmp_path, short_root=tmp_path / "other")
    (home.path / "elsewhere").write_text(elsewhere)
    os.close(home.lock_fd)
    assert homes.sweep([tmp_path]) == [home.path]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "other",
        "rtf",
        "rtf-file",
        "rtf-link",
        "rtx-a",
    ]


def test_home_that_has_no_lock_yet_gets_its_time(tmp_path: Path) -> None:
    young = tmp_path / "rtf-young"
    young.mkdir()
    assert homes.sweep([tmp_path]) == []
    old = time.time() - 3600
    os.utime(young, (old, old))
    assert homes.sweep([tmp_path]) == [young]


def test_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable, match=f"cannot make a directory .* in {tmp_path / 'gone'}"):
        homes.make(tmp_path / "gone")


def test_given_root_is_taken(tmp_path: Path) -> None:
    chosen = placement.choose(tmp_path)
    assert (chosen.root, chosen.kind in {"reflink", "memory", "disk"}) == (tmp_path.resolve(), True)
    assert chosen.reason.startswith("the data root that was given, ")


def test_disk_is_taken_where_memory_cannot_be(tmp_path: Path) -> None:
    chosen = placement.choose(memory_root=tmp_path / "none", disk_roots=(tmp_path,))
    assert chosen.root == tmp_path
    assert chosen.kind in {"reflink", "disk"}


def test_no_room_anywhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable, match="no room for a database cluster"):
        placement.choose(memory_root=tmp_path / "none", disk_roots=(tmp_path / "nor",))


def test_what_is_kept_is_a_small_part_of_what_there_is(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert 0 < placement.kept_bytes(tmp_path, "disk") <= disk.f_blocks * disk.f_frsize // 10
    assert 0 < placement.kept_bytes(tmp_path, "memory") <= 4 << 30


def test_kept_home_whose_folder_is_not_there_gets_its_time(tmp_path: Path) -> None:
    home = homes.make(tmp_path, short_root=tmp_path, keeper=tmp_path / "folder")
    os.close(home.lock_fd)
    assert homes.sweep([tmp_path], named=state.named) == []
    old = time.time() - 7 * 86400
    os.utime(home.path, (old, old))
    assert homes.sweep([tmp_path], named=state.named) == [home.path]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"home": 1}', '"home"', "\0"])
def test_state_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    assert state.read(tmp_path) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_root_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="not writable"):
        placement.choose(tmp_path)
