r"""What `\i`, `\ir` and `\copy ... from` name is put in their place when a seed is read.

So it is hashed, checked and loaded as it was read, and the disk is not read twice.
"""

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
_SUSPECT = re.compile(r"\\(?:i|ir|include|include_relative|copy)\b")
_ARGUMENT = re.compile(r"\A(?:'(?P<quoted>[^']+)'|(?P<plain>[^\s'\"`:|~\\]+));?\Z")
_COPY_FROM = re.compile(
    r"""\\copy \s+ (?P<target>.+?) \s+ from \s+
        (?P<file>'(?:[^']|'')+' | (?!(?:stdin|pstdin|program)\b)[^\s'"`:|~\\;]+) (?P<options>.*)""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT_TEXT = re.compile(r"\b(?:binary|encoding)\b", re.IGNORECASE)
_END_OF_ROWS = re.compile(r"^\\\.\r?$", re.MULTILINE)
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
    """The seed's folder, which nothing may leave, and how a script and a file of rows in it are read."""

    folder: Path
    read: Callable[[str, Path], str]
    read_rows: Callable[[str, Path], str]


def included(
    name: str,
    text: str,
    path: Path,
    *,
    root: Path,
    read: Callable[[str, Path], str],
    read_rows: Callable[[str, Path], str],
) -> tuple[str, tuple[Span, ...]]:
    r"""A script with the files that it includes, and those that it copies rows from, in their places.

    Args:
        name: as messages show the file.
        text: its content.
        path: where it is.
        root: the seed's folder. `\i` is relative to it or to the including file's folder, `\ir` to the
            latter.
        read: gives the text of a plain SQL file by its name and path.
        read_rows: the same of a file of rows.

    Raises:
        SeedError: an include leaves the folder, is not there, is in a statement, or goes in a circle.
    """
    if not _SUSPECT.search(text):
        return text, ()
    parts: list[str] = []
    spans: list[Span] = []
    _collect(
        name,
        text,
        (path.resolve(),),
        _Root(folder=root.resolve(), read=read, read_rows=read_rows),
        parts,
        spans,
    )
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
        if piece.meta == "copy" and (copied := _COPY_FROM.fullmatch(piece.text.rstrip().rstrip(";"))):
            statement, rows_name, rows = _copied(
                f"{name}:{piece.line}: \\copy", copied, chain[-1].parent, root
            )
            _add(parts, spans, f"{text[at : piece.start]}{statement}\n", name, line)
            _add(parts, spans, rows, rows_name, 1)
            _add(parts, spans, "\\.\n", name, piece.line)
            at, line = piece.end, piece.line
            continue
        if piece.meta not in _INCLUDING:
            continue
        where = f"{name}:{piece.line}: \\{piece.meta}"
        if following is not None and following.meta is None and following.start < piece.start:
            raise SeedError(f"{where}: it stands inside a statement; end that with ; first")
        inner = _included(where, piece, chain[-1].parent, root)
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


def _copied(where: str, copied: re.Match[str], folder: Path, root: _Root) -> tuple[str, str, str]:
    """The statement that reads rows from the script, the rows, and the name of their file."""
    written, options = copied["file"], copied["options"].strip()
    if written.startswith("'"):
        written = written[1:-1].replace("''", "'")
    if found := _NOT_TEXT.search(options):
        raise SeedError(
            f"{where} {written}: rows are read as UTF-8 text, and it says {found.group().upper()}; "
            "export them as text or CSV in UTF-8"
        )
    file = _found(where, written, (root.folder, folder), root, otherwise="")
    name = file.relative_to(root.folder).as_posix()
    rows = root.read_rows(name, file)
    if rows and not rows.endswith("\n"):
        rows += "\r\n" if "\r\n" in rows else "\n"
    end = _END_OF_ROWS.search(rows)
    if end is not None:
        if rows[end.end() :].strip():
            line = rows.count("\n", 0, end.start()) + 1
            raise SeedError(
                f"{name}:{line}: a line that ends COPY data (\\.), with more after it; take it out"
            )
        rows = rows[: end.start()]
    return f"COPY {copied['target']} FROM STDIN{' ' if options else ''}{options};", name, rows


def _included(where: str, piece: Piece, folder: Path, root: _Root) -> Path:
    assert piece.meta is not None
    rest = piece.text[1 + len(piece.meta) :].strip()
    argument = _ARGUMENT.match(rest)
    if argument is None:
        raise SeedError(f"{where} {rest}: not the plain name of one file; write the name out")
    written = argument["quoted"] or argument["plain"]
    bases = (folder,) if piece.meta in _RELATIVE else (root.folder, folder)
    return _found(where, written, bases, root, otherwise=", or list it under seed.files")


def _found(where: str, written: str, bases: tuple[Path, ...], root: _Root, *, otherwise: str) -> Path:
    there = {path.resolve() for base in bases if (path := base / written).is_file()}
    outside = [path for path in there if not path.is_relative_to(root.folder)]
    if outside or (not there and ".." in Path(written).parts) or (not there and Path(written).is_absolute()):
        raise SeedError(f"{where} {written}: it is not in the seed's folder; copy it there{otherwise}")
    if len(there) > 1:
        advice = "write \\ir" if otherwise else "rename one"
        raise SeedError(
            f"{where} {written}: there are two: by the seed's folder and by the file's own; {advice}"
        )
    if not there:
        raise SeedError(
            f"{where} {written}: there is no such file in the seed's folder; add it, or remove the line"
        )
    return there.pop()
