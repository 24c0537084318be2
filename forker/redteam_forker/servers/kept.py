"""What a folder keeps: whether its data may be started again, and how it is made ready or removed."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries, embedded, homes, placement, settings, state

if TYPE_CHECKING:
    from redteam_forker.servers.embedded import Embedded
    from redteam_forker.servers.homes import Home
    from redteam_forker.servers.state import State

__all__ = ["Prepared", "discard", "discard_unused", "prepare", "quiet_home"]

_QUIET_TIMEOUT_S = 45.0  # above the sum of the keeper's own steps when it stops
_POLL_S = 0.01
_LASTING_ROOTS = (Path("/var/cache"),)  # for root, whose own folders another user cannot enter


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A cluster that is about to be started, and the lock on its home."""

    site: embedded.Site
    home: Home
    known: State
    initialise: bool


async def quiet_home(folder: Path) -> Home | None:
    """The home that the folder names, once none of its processes lives (P85); None if there is none."""
    path = await anyio.to_thread.run_sync(state.named, folder)
    if path is None:
        return None
    with anyio.move_on_after(_QUIET_TIMEOUT_S) as scope:
        while True:
            try:
                home = await anyio.to_thread.run_sync(homes.take, path)
            except OSError:
                return None
            if home is not None:
                return home
            await anyio.sleep(_POLL_S)
    assert scope.cancelled_caught
    raise ServerUnavailable(
        f"processes of the shared server in {path} still run after {_QUIET_TIMEOUT_S:.0f} s, and nobody "
        "answers for them; end them, or use another folder",
        retryable=True,
    )


def prepare(options: Embedded, folder: Path, home: Home | None) -> Prepared:
    """Decide whether what is kept can be used, and remove it if not. Blocks."""
    assert options.package is not None
    known, version = state.read(folder), binaries.version_of(options.package)
    user = binaries.runner(options.run_as)
    # No place that is cleaned of old files, as temporary ones are: it would lose a template's, one by one.
    roots = tuple(root for root in (folder, *_LASTING_ROOTS) if binaries.closed_directory(root, user) is None)
    given = () if options.data_root is None else (options.data_root,)
    homes.sweep((placement.MEMORY_ROOT, *placement.DISK_ROOTS, *roots, *given), named=state.named)
    try:
        if known is not None and home is not None and _is_usable(known, home, options, version):
            place = placement.Placement(
                root=home.path.parent, kind=known.kind, reason=known.reason, file_system=known.file_system
            )
            site = embedded.site_at(replace(options, run_as=known.user), place)
            again = replace(known, boot=state.boot_id(), run=secrets.token_hex(8))
            return Prepared(site=site, home=home, known=again, initialise=False)
    except BaseException:
        if home is not None:
            os.close(home.lock_fd)
        raise
    if home is not None:
        os.close(home.lock_fd)
        homes.remove(home.remove)
    state.write(folder, None)
    place = placement.choose(options.data_root, disk_roots=roots)
    site = embedded.site_at(options, place)
    made = homes.make(place.root, keeper=folder)
    new = state.State(
        settings=settings.fingerprint(),
        version=version,
        boot=state.boot_id(),
        run=secrets.token_hex(8),
        user=embedded.user_name(site),
        home=str(made.path),
        password=secrets.token_urlsafe(32),
        kind=place.kind,
        reason=place.reason,
        file_system=place.file_system,
    )
    return Prepared(site=site, home=made, known=new, initialise=True)


def _is_usable(known: State, home: Home, options: Embedded, version: str) -> bool:
    """Whether the data may be started again: made alike, and on a machine that did not crash under it."""
    if (known.settings, known.version) != (settings.fingerprint(), version):
        return False
    if options.run_as not in (None, known.user) or not (home.path / "data/PG_VERSION").is_file():
        return False
    if known.boot and known.boot == state.boot_id():
        return True
    try:
        return (home.path / "flushed").read_text(encoding="ascii") == known.run
    except (OSError, UnicodeDecodeError):
        return False


async def discard(folder: Path) -> None:
    """Give up data that does not start; a cluster is a cache, and its seeds are still there."""
    home = await quiet_home(folder)
    if home is not None:
        os.close(home.lock_fd)
        await anyio.to_thread.run_sync(homes.remove, home.remove)
    await anyio.to_thread.run_sync(state.write, folder, None)


def discard_unused(folder: Path) -> bool:
    """The same unless somebody uses it; whether nothing is left. Blocks; the door is ours."""
    path = state.named(folder)
    home = None
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            home = homes.take(path)
            if home is None:
                return False
    state.write(folder, None)
    if home is not None:
        homes.remove(home.remove)
        os.close(home.lock_fd)
    return True
