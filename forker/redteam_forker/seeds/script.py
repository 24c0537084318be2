"""A seed as it was read: SQL files in order, the day its world was written for, and what moves with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from redteam_forker.errors import SeedError
from redteam_forker.seeds.archives import restored_bytes, restored_path
from redteam_forker.seeds.content import is_archive, to_rows, to_text, unpacked
from redteam_forker.seeds.flags import FLAGS
from redteam_forker.seeds.folders import expanded
from redteam_forker.seeds.includes import Span, included, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import date
    from pathlib import Path

__all__ = ["Owners", "Seed", "SeedFile", "read_seed"]

Owners = Literal["create", "strip"]

# Goes into the hash: raise it when the same files would be loaded differently (P13).
_READER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFile:
    """One script. Its text is what is hashed, linted and loaded: the disk is not read twice.

    Attributes:
        name: its path relative to the seed's folder, as messages show it.
        data: its text in UTF-8, without a byte order mark; of an archive, the SQL that pg_restore makes of
            it.
        spans: which lines come from which file, if it includes others.
        note: a word on where its lines are, for an archive.
    """

    name: str
    data: bytes = field(repr=False)
    spans: tuple[Span, ...] = field(default=(), repr=False)
    note: str = ""

    @property
    def text(self) -> str:
        """The content as text."""
        return self.data.decode()

    def place(self, line: int) -> str:
        """`file:line` of one of its lines."""
        return place_of(self.name, self.spans, line)


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What a template is built from.

    Attributes:
        files: in the order in which they are loaded.
        anchor: the day on which the world's dates were written; None if its dates stay as they are.
        moves: `table.column` or `schema.table.column` of the dates that move with the anchor.
        owners: `create` makes owner roles that are missing, `strip` leaves ownership to whoever loads.
        allow: names of what would be refused otherwise; see `flags`.
        notes: what was left out when it was read, in words.
    """

    files: tuple[SeedFile, ...]
    anchor: date | None = None
    moves: tuple[str, ...] = ()
    owners: Owners = "create"
    allow: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def hash(self) -> str:
        """Hexadecimal SHA-256 over contents and options. Not over today's date, nor over file names."""
        digest = hashlib.sha256()
        parts = [file.data for file in self.files]
        parts.append(self.anchor.isoformat().encode() if self.anchor else b"")
        parts.append(f"{_READER} {self.owners} {' '.join(sorted(self.allow))}".encode())
        parts.extend(move.encode() for move in self.moves)
        digest.update(len(self.files).to_bytes(8, "big"))
        for part in parts:
            # With their lengths, so that moving a line from one file to the next is another seed.
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()


def read_seed(
    base: Path,
    files: Sequence[str],
    *,
    anchor: date | None,
    moves: Sequence[str],
    owners: Owners = "create",
    allow: Collection[str] = frozenset(),
) -> Seed:
    r"""Read a seed's files into memory. Blocks: it may run pg_restore.

    A file is plain SQL, the same packed by gzip, bzip2 or xz, or an archive of pg_dump (custom, tar,
    directory): its content says which. What `\i`, `\ir` and `\copy ... from` name is put in place. A folder
    stands for its `*.sql` files in natural order (`2_x` before `10_x`) without the ways back down; a folder
    of `migrations` and `seed.sql` for both, in that order.

    Args:
        base: the folder that the names are relative to.
        files: names of files or folders, in load order.
        anchor: see `Seed`.
        moves: see `Seed`.
        owners: see `Seed`.
        allow: see `Seed`.

    Raises:
        SeedError: a file is not there, is no SQL that could be loaded, or is cut off; it says what to do.
    """
    if not files:
        raise SeedError("the seed names no file; list its SQL files under seed.files, in load order")
    if moves and anchor is None:
        raise SeedError(
            "the seed moves dates but has no anchor; set seed.anchor to the day its dates are for"
        )
    if owners not in ("create", "strip"):
        raise SeedError(f"seed.owners is {owners!r}; write create or strip")
    unknown = sorted(set(allow) - set(FLAGS))
    if unknown:
        raise SeedError(
            f"seed.allow: {', '.join(unknown)} is no name of what can be allowed; {', '.join(FLAGS)} are"
        )
    notes: list[str] = []
    found = [path for name in files for path in expanded(base, name, notes)]
    try:
        read = tuple(_read(base, path, notes) for path in found)
    except OSError as error:
        raise SeedError(f"seed file {str(error.filename)!r} cannot be read: {error.strerror}") from error
    return Seed(
        files=read,
        anchor=anchor,
        moves=tuple(moves),
        owners=owners,
        allow=frozenset(allow),
        notes=tuple(notes),
    )


def _read(base: Path, path: Path, notes: list[str]) -> SeedFile:
    inside = path.is_relative_to(base)
    name = path.relative_to(base).as_posix() if inside else path.as_posix()
    if path.is_dir():
        return _archive(name, restored_path(name, path), notes)
    packed = path.read_bytes()
    data = unpacked(name, packed)
    if is_archive(name, data):
        sql = restored_path(name, path) if data is packed else restored_bytes(name, data)
        return _archive(name, sql, notes)

    def read_plain(inner_name: str, inner: Path) -> str:
        return to_text(inner_name, inner.read_bytes(), notes)

    def read_rows(inner_name: str, inner: Path) -> str:
        return to_rows(inner_name, inner.read_bytes())

    root = base if inside and path.resolve().is_relative_to(base.resolve()) else path.parent
    text, spans = included(
        name, to_text(name, data, notes), path, root=root, read=read_plain, read_rows=read_rows
    )
    return SeedFile(name=name, data=text.encode(), spans=spans)


def _archive(name: str, sql: bytes, notes: list[str]) -> SeedFile:
    return SeedFile(
        name=name, data=to_text(name, sql, notes).encode(), note="a line of what pg_restore -f - prints of it"
    )
