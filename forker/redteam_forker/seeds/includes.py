r"""What `\i` and `\ir` name is put in their place when a seed is read, so it is hashed and checked too."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from redteam_forker.errors import SeedError
from redteam_forker.seeds.statements import ScriptError, split_script

if TYPE_CHECKING:
    from collections.abc import Callable

    from redteam_forker.seeds.statements import Piece

__all__ = ["Span", "included", "place_of"]

_INCLUDING = frozenset({"i", "ir", "include", "include_relative"})
_RELATIVE = frozenset({"ir", "include_relative"})
_SUSPECT = re.compile(r"\\(?:i|ir|include|include_relative)\b")
_ARGUMENT = re.compile(r"\A(?:'(?P<quoted>[^']+)'|(?P<plain>[^\s'\"`:|~\\]+));?\Z")
_DEEPEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Lines of one file in a script that was put together from several.

    Attributes:
        first: the line in the script at which they begin.
        name: the file's.
        line: the line in the file that `first` is.
    """

    first: int
    name: str
    line: int


def place_of(name: str, spans: tuple[Span, ...], line: int) -> str:
    """`file:line` of a line of a script."""
    at = bisect_right([span.first for span in spans], line) - 1
    if at < 0:
        return f"{name}:{line}"
    span = spans[at]
    return f"{span.name}:{span.line + line - span.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    """The seed's folder, which no include may leave, and how a file in it is read."""

    folder: Path
    read: Callable[[str, Path], str]


def included(
    name: str, text: str, path: Path, *, root: Path, read: Callable[[str, Path], str]
) -> tuple[str, tuple[Span, ...]]:
    r"""A script with the files that it includes in their places.

    Args:
        name: as messages show the file.
        text: its content.
        path: where it is.
        root: the seed's folder. `\i` is relative to it or to the including file's folder, `\ir` to the
            latter.
        read: gives the text of a plain SQL file by its name and path.

    Raises:
        SeedError: an include leaves the folder, is not there, is in a statement, or goes in a circle.
    """
    if not _SUSPECT.search(text):
        return text, ()
    parts: list[str] = []
    spans: list[Span] = []
    _collect(name, text, (path.resolve(),), _Root(folder=root.resolve(), read=read), parts, spans)
    return "".join(parts), tuple(spans) if len(spans) > 1 else ()


def _collect(
    name: str, text: str, chain: tuple[Path, ...], root: _Root, parts: list[str], spans: list[Span]
) -> None:
    try:
        pieces = split_script(text) if _SUSPECT.search(text) else []
    except ScriptError as error:
        raise SeedError(f"{name}:{error.line}: {error}") from error
    at, line = 0, 1
    for piece, following in zip_longest(pieces, pieces[1:]):
        if piece.meta not in _INCLUDING:
            continue
        where = f"{name}:{piece.line}: \\{piece.meta}"
        if following is not None and following.meta is None and following.start < piece.start:
            raise SeedError(f"{where}: it stands inside a statement; end that with ; first")
        inner = _resolve(where, piece, chain[-1].parent, root)
        if inner in chain or len(chain) > _DEEPEST:
            raise SeedError(f"{where}: {inner.name} includes itself; remove one of both")
        _add(parts, spans, text[at : piece.start] + "\n", name, line)
        inner_name = inner.relative_to(root.folder).as_posix()
        inner_text = _ended(inner_name, root.read(inner_name, inner))
        _collect(inner_name, inner_text, (*chain, inner), root, parts, spans)
        at, line = piece.end, piece.line
    _add(parts, spans, text[at:], name, line)


def _add(parts: list[str], spans: list[Span], text: str, name: str, line: int) -> None:
    first = 1 if not spans else spans[-1].first + parts[-1].count("\n")
    spans.append(Span(first=first, name=name, line=line))
    parts.append(text)


def _ended(name: str, text: str) -> str:
    """Like psql, end what a file ends with, semicolon or not, before the file that included it goes on."""
    try:
        pieces = split_script(text)
    except ScriptError as error:
        raise SeedError(f"{name}:{error.line}: {error}") from error
    last = pieces[-1] if pieces else None
    open_ended = last is not None and last.meta is None and last.start + len(last.text) == last.end
    return text.removesuffix("\n") + ("\n;\n" if open_ended else "\n")


def _resolve(where: str, piece: Piece, folder: Path, root: _Root) -> Path:
    assert piece.meta is not None
    rest = piece.text[1 + len(piece.meta) :].strip()
    argument = _ARGUMENT.match(rest)
    if argument is None:
        raise SeedError(f"{where} {rest}: not the plain name of one file; write the name out")
    written = argument["quoted"] or argument["plain"]
    bases = [folder] if piece.meta in _RELATIVE else [root.folder, folder]
    there = {path.resolve() for base in bases if (path := base / written).is_file()}
    outside = [path for path in there if not path.is_relative_to(root.folder)]
    if outside or (not there and ".." in Path(written).parts) or (not there and Path(written).is_absolute()):
        raise SeedError(
            f"{where} {written}: it is not in the seed's folder; copy it there, or list it under seed.files"
        )
    if len(there) > 1:
        raise SeedError(
            f"{where} {written}: there are two: by the seed's folder and by the file's own; write \\ir"
        )
    if not there:
        raise SeedError(
            f"{where} {written}: there is no such file in the seed's folder; add it, or remove the line"
        )
    return there.pop()
