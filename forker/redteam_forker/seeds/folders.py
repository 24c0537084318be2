"""Which files a name under `seed.files` stands for, and in which order."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from redteam_forker.errors import SeedError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["expanded"]

_DIGITS = re.compile(r"(\d+)")
_SHOWN = 8
_MIGRATIONS = ("migrations", "migration")
_AFTER_MIGRATIONS = re.compile(r"\A(?:seeds?|data|fixtures)\.sql(?:\.(?:gz|bz2|xz))?\Z", re.IGNORECASE)
_BEFORE_MIGRATIONS = re.compile(r"\Aroles\.sql(?:\.(?:gz|bz2|xz))?\Z", re.IGNORECASE)


def expanded(base: Path, name: str, notes: list[str]) -> list[Path]:
    """The files, and directories of pg_dump, that `name` stands for.

    Args:
        base: the folder that the name is relative to.
        name: of a file or a folder.
        notes: what is left out is added here, in words.

    Raises:
        SeedError: there is no such file, or the folder does not say what is to be loaded.
    """
    path = base / name
    if path.is_file():
        return [path]
    if not path.is_dir():
        near = sorted(entry.name for entry in path.parent.glob("*.sql")) if path.parent.is_dir() else []
        there = f"; there are {', '.join(near[:_SHOWN])}" if near else ""
        raise SeedError(f"seed file {name!r} is not in {base}{there}")
    return _folder(path, name, notes)


def _folder(path: Path, name: str, notes: list[str]) -> list[Path]:
    if (path / "toc.dat").is_file():
        return [path]
    scripts = _scripts(path)
    below = sorted((entry for entry in path.iterdir() if entry.is_dir() and _holds_sql(entry)), key=_natural)
    migrations = next((entry for entry in below if entry.name.lower() in _MIGRATIONS), None)
    if migrations is not None and _scripts(migrations):
        first = [entry for entry in scripts if _BEFORE_MIGRATIONS.match(entry.name)]
        last = [entry for entry in scripts if _AFTER_MIGRATIONS.match(entry.name)]
        if len(first) + len(last) == len(scripts):
            _left(name, [entry.name for entry in below if entry not in (migrations, path / "seeds")], notes)
            seeds = _ups(path / "seeds", name, notes) if (path / "seeds").is_dir() else []
            return [*first, *_ups(migrations, name, notes), *last, *seeds]
    if scripts:
        _left(name, [entry.name for entry in below], notes)
        return _ups(path, name, notes)
    if len(below) == 1:
        return _folder(below[0], _join(name, below[0]), notes)
    if below:
        listed = ", ".join(_join(name, entry) for entry in below[:_SHOWN])
        raise SeedError(
            f"seed folder {name!r} holds SQL in several folders; list them in load order: {listed}"
        )
    raise SeedError(f"seed folder {name!r} holds no *.sql file; name the files, or the folder they are in")


def _join(name: str, entry: Path) -> str:
    return (PurePosixPath(name) / entry.name).as_posix()


def _left(name: str, folders: list[str], notes: list[str]) -> None:
    if folders:
        notes.append(
            f"{name}: not read: the folders {', '.join(folders)}; list those that belong to the seed"
        )


def _scripts(path: Path) -> list[Path]:
    return sorted(
        (
            entry
            for entry in path.iterdir()
            if entry.name.lower().endswith((".sql", ".sql.gz", ".sql.bz2", ".sql.xz"))
            and not entry.name.startswith(".")
            and entry.is_file()
        ),
        key=_natural,
    )


def _holds_sql(path: Path) -> bool:
    if path.name.startswith(".") or path.is_symlink():
        return False
    return (
        (path / "toc.dat").is_file()
        or bool(_scripts(path))
        or any(_holds_sql(entry) for entry in path.iterdir() if entry.is_dir())
    )


def _natural(path: Path) -> list[tuple[int, int, str]]:
    # Flyway's repeatable migrations (R__) run after its numbered ones.
    last = [(2, 0, "")] if path.name.startswith("R__") else []
    return last + [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(path.name) if part
    ]


def _ups(path: Path, name: str, notes: list[str]) -> list[Path]:
    """A folder's scripts without the ways back down of migrations that have one."""
    scripts = _scripts(path)
    names = {entry.name for entry in scripts}
    down = [entry for entry in scripts if _up_of(entry.name) in names]
    if down:
        listed = ", ".join(entry.name for entry in down[:_SHOWN])
        more = f" and {len(down) - _SHOWN} more" if len(down) > _SHOWN else ""
        notes.append(f"{name}: not run: the ways back down {listed}{more}")
    return [entry for entry in scripts if entry not in down]


def _up_of(name: str) -> str | None:
    """The migration that `name` takes back, by golang-migrate's names or Flyway's."""
    if name.endswith(".down.sql"):
        return name.removesuffix(".down.sql") + ".up.sql"
    return f"V{name[1:]}" if re.match(r"U\d[\d._]*__", name) else None
