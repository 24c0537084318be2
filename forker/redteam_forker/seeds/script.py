"""A seed as it was read: SQL files in order, the day its world was written for, and what moves with it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from redteam_forker.errors import SeedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from pathlib import Path

__all__ = ["Seed", "SeedFile", "read_seed"]

_UTF8_BOM = b"\xef\xbb\xbf"
_TAR_MAGIC_AT = 257
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFile:
    """One SQL file. Its bytes are what is hashed, linted and loaded: the disk is not read twice.

    Attributes:
        name: its path relative to the seed's folder, as messages show it.
        data: its content without a byte order mark, which Postgres would take for a syntax error.
    """

    name: str
    data: bytes = field(repr=False)

    @property
    def encoding(self) -> str:
        """What the bytes decode by without a loss: UTF-8, else Latin-1 as a byte-for-byte stand-in."""
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return "latin-1"
        return "utf-8"

    @property
    def text(self) -> str:
        """The content as text, by `encoding`."""
        return self.data.decode(self.encoding)


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What a template is built from.

    Attributes:
        files: in the order in which they are loaded.
        anchor: the day on which the world's dates were written; None if its dates stay as they are.
        moves: `table.column` or `schema.table.column` of the dates that move with the anchor.
    """

    files: tuple[SeedFile, ...]
    anchor: date | None = None
    moves: tuple[str, ...] = ()

    @cached_property
    def hash(self) -> str:
        """Hexadecimal SHA-256 over contents, moves and anchor. Not over today's date, nor over file names."""
        digest = hashlib.sha256()
        parts = [file.data for file in self.files]
        parts.append(self.anchor.isoformat().encode() if self.anchor else b"")
        parts.extend(move.encode() for move in self.moves)
        digest.update(len(self.files).to_bytes(8, "big"))
        for part in parts:
            # With their lengths, so that moving a line from one file to the next is another seed.
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()


def read_seed(base: Path, files: Sequence[str], *, anchor: date | None, moves: Sequence[str]) -> Seed:
    """Read a seed's files into memory.

    A folder stands for its `*.sql` files in natural order (`2_x` before `10_x`), not those of its folders;
    where a migration has an `.up.sql` and a `.down.sql`, only the up one is taken.

    Args:
        base: the folder that the names are relative to.
        files: names of files or folders, in load order.
        anchor: see `Seed`.
        moves: see `Seed`.

    Raises:
        SeedError: a file is not there, is empty of files, or is no plain SQL; it says what to do.
    """
    if not files:
        raise SeedError("the seed names no file; list its SQL files under seed.files, in load order")
    if moves and anchor is None:
        raise SeedError(
            "the seed moves dates but has no anchor; set seed.anchor to the day its dates are for"
        )
    found = [path for name in files for path in _expand(base, name)]
    read = tuple(_read(base, path) for path in found)
    return Seed(files=read, anchor=anchor, moves=tuple(moves))


def _natural(path: Path) -> list[tuple[int, int, str]]:
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(path.name) if part
    ]


def _expand(base: Path, name: str) -> list[Path]:
    path = base / name
    if path.is_file():
        return [path]
    if not path.is_dir():
        near = sorted(entry.name for entry in path.parent.glob("*.sql")) if path.parent.is_dir() else []
        there = f"; there are {', '.join(near[:8])}" if near else ""
        raise SeedError(f"seed file {name!r} is not in {base}{there}")
    if (path / "toc.dat").is_file():
        raise SeedError(_archive(name, "a pg_dump directory"))
    scripts = sorted((entry for entry in path.glob("*.sql") if entry.is_file()), key=_natural)
    names = {entry.name for entry in scripts}
    kept = [
        entry
        for entry in scripts
        if not (
            entry.name.endswith(".down.sql") and f"{entry.name.removesuffix('.down.sql')}.up.sql" in names
        )
    ]
    if not kept:
        raise SeedError(
            f"seed folder {name!r} holds no *.sql file; name the files, or the folder they are in"
        )
    return kept


def _read(base: Path, path: Path) -> SeedFile:
    name = path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SeedError(f"seed file {name!r} cannot be read: {error.strerror}") from error
    data = data.removeprefix(_UTF8_BOM)
    _check_plain(name, data)
    return SeedFile(name=name, data=data)


def _archive(name: str, what: str) -> str:
    return (
        f"seed file {name!r} is {what}; this version loads plain SQL: "
        f"make it with `pg_restore --no-owner -f seed.sql {name}` and name seed.sql instead"
    )


def _check_plain(name: str, data: bytes) -> None:
    """Refuse by content, not by name: a `backup.sql` may be an archive."""
    if data.startswith(b"PGDMP"):
        raise SeedError(_archive(name, "a pg_dump archive (custom format)"))
    if data[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        raise SeedError(_archive(name, "a tar archive"))
    for magic, tool in ((b"\x1f\x8b", "gunzip"), (b"\x28\xb5\x2f\xfd", "unzstd"), (b"BZh", "bunzip2")):
        if data.startswith(magic):
            raise SeedError(f"seed file {name!r} is compressed; unpack it with {tool} and name the SQL file")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SeedError(f"seed file {name!r} is UTF-16; make it UTF-8 with `iconv -f UTF-16 -t UTF-8 {name}`")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise SeedError(f"{name}:{line}: a NUL byte, so this is no text file; save it as UTF-8")
