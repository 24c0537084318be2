"""From a file's bytes to SQL text. What a file is, its content says; its name says nothing.

Text is UTF-8 from here on: whatever else a file declares itself to be is converted once, and the statements
that declare it are set aside (`rewrites`), so that psql, the check and the server see the same characters.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

from redteam_forker.errors import SeedError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CUT_OFF",
    "MOST_BYTES",
    "is_archive",
    "is_utf8_name",
    "is_whole",
    "to_rows",
    "to_text",
    "unpacked",
]

# Of one file as text. A small file can unpack to more than a machine holds.
MOST_BYTES = 1 << 30

_TAR_MAGIC_AT = 257
_FOREIGN = (
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it with unzstd, or pack it with gzip or xz"),
    (b"\x04\x22\x4d\x18", "is compressed by lz4; unpack it with unlz4, or pack it with gzip or xz"),
    (b"PK\x03\x04", "is a zip file; unpack it and name the files that are in it, in load order"),
    (b"SQLite format 3\x00", "is a SQLite database; export its tables as PostgreSQL's SQL"),
    (b"-- MySQL dump", "is a MySQL dump; convert it, for example with pgloader, and dump that with pg_dump"),
    (
        b"-- MariaDB dump",
        "is a MariaDB dump; convert it, for example with pgloader, and dump that with pg_dump",
    ),
)
# The longer mark first: UTF-32's begins with UTF-16's.
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_DECLARED = re.compile(
    rb"""^[ \t]*(?:
        SET\s+(?:SESSION\s+|LOCAL\s+)?client_encoding\s*(?:=|\bTO\b)\s*(?P<set>'[^'\n]*'|"[^"\n]*"|[\w-]+)
      | SET\s+NAMES\s+(?P<names>'[^'\n]*'|[\w-]+)
      | \\encoding[ \t]+(?P<meta>\S+)
    )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
# Postgres' names for encodings, without what is neither letter nor digit, and Python's for those that differ.
_CODECS = {
    "ABC": "cp1258",
    "ALT": "cp866",
    "BIG5": "cp950",
    "EUCCN": "gb2312",
    "EUCJIS2004": "euc_jis_2004",
    "EUCJP": "euc_jp",
    "EUCKR": "euc_kr",
    "JOHAB": "johab",
    "KOI8": "koi8_r",
    "KOI8R": "koi8_r",
    "KOI8U": "koi8_u",
    "LATIN5": "iso8859_9",
    "LATIN6": "iso8859_10",
    "LATIN7": "iso8859_13",
    "LATIN8": "iso8859_14",
    "LATIN9": "iso8859_15",
    "LATIN10": "iso8859_16",
    "SHIFTJIS": "cp932",
    "SHIFTJIS2004": "shift_jis_2004",
    "SJIS": "cp932",
    "TCVN": "cp1258",
    "UHC": "cp949",
    "WIN": "cp1251",
}
_UTF8_NAMES = frozenset({"UTF8", "UNICODE", "AUTO"})
_DUMP_BEGINS = "-- PostgreSQL database dump\n"
_DUMP_ENDS = "-- PostgreSQL database dump complete"
CUT_OFF = (
    f"pg_dump's last line ({_DUMP_ENDS}) is missing: the file is cut off; dump it again, or, if it was "
    "shortened on purpose, take out pg_dump's first comment too"
)
_SIDES = re.compile(
    r"^--[ \t]*(?:\+goose[ \t]+|\+migrate[ \t]+|migrate:[ \t]*)(?P<side>up|down)\b.*$",
    re.IGNORECASE | re.MULTILINE,
)


class _Unpacker(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


_PACKINGS: tuple[tuple[bytes, str, Callable[[], _Unpacker]], ...] = (
    (b"\x1f\x8b", "gzip", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
)


def unpacked(name: str, data: bytes) -> bytes:
    """The content of a file that gzip, bzip2 or xz may have packed, once or more often.

    Raises:
        SeedError: it is cut off or damaged, or unpacks to more than `MOST_BYTES`.
    """
    while found := next(((by, new) for magic, by, new in _PACKINGS if data.startswith(magic)), None):
        packing, new = found
        parts, total = [], 0
        try:
            while data:
                unpacker = new()
                part = unpacker.decompress(data, MOST_BYTES - total + 1)
                total += len(part)
                if total > MOST_BYTES:
                    raise SeedError(
                        f"seed file {name!r} unpacks to more than {MOST_BYTES >> 20} MiB; take a smaller dump"
                    )
                if not unpacker.eof:
                    raise SeedError(
                        f"seed file {name!r} is cut off: its {packing} data never end; copy it again"
                    )
                parts.append(part)
                data = unpacker.unused_data.lstrip(b"\0")
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise SeedError(f"seed file {name!r} is damaged ({error}); copy it again") from error
        data = b"".join(parts)
    return data


def is_archive(name: str, data: bytes) -> bool:
    """Whether it is an archive that pg_restore reads: pg_dump's custom format, or its tar.

    Raises:
        SeedError: it is a tar of something else.
    """
    if data.startswith(b"PGDMP"):
        return True
    if data[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] != b"ustar":
        return False
    if data[: data.find(b"\0")] == b"toc.dat":
        return True
    raise SeedError(
        f"seed file {name!r} is a tar file that pg_dump did not make; unpack it and name what is in it"
    )


def is_utf8_name(name: str) -> bool:
    """Whether Postgres takes a name of an encoding for UTF-8."""
    return _plain(name) in _UTF8_NAMES


def to_text(name: str, data: bytes, notes: list[str]) -> str:
    """Decode SQL, and leave out the ways back down of migrations that hold both ways in one file.

    Args:
        name: as messages show the file.
        data: what it holds, unpacked.
        notes: what was left out is added here, in words.

    Raises:
        SeedError: it is no text, is in an encoding that it does not declare, or was cut off.
    """
    for magic, words in _FOREIGN:
        if data.startswith(magic):
            raise SeedError(f"seed file {name!r} {words}")
    if len(data) > MOST_BYTES:
        raise SeedError(f"seed file {name!r} has more than {MOST_BYTES >> 20} MiB; take a smaller dump")
    text = _decoded(name, data)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise SeedError(f"{name}:{line}: a NUL byte, so this is no text file; save it as UTF-8")
    return _up_only(name, text, notes)


def to_rows(name: str, data: bytes) -> str:
    """Decode what COPY reads rows from: UTF-8, and nothing else.

    Raises:
        SeedError: it is not, or has more than `MOST_BYTES`.
    """
    if len(data) > MOST_BYTES:
        raise SeedError(f"seed file {name!r} has more than {MOST_BYTES >> 20} MiB; take fewer rows")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SeedError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8, and rows are read as that; save "
            "the file as UTF-8 (iconv -f LATIN1 -t UTF-8)"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise SeedError(f"{name}:{line}: a NUL byte, so these are no rows of text; export them as CSV")
    return text


def is_whole(text: str) -> bool:
    """Whether a dump, if it is one, has its end."""
    return _DUMP_BEGINS not in text[:4096].replace("\r\n", "\n") or _DUMP_ENDS in text


def _plain(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name.upper())


def _decoded(name: str, data: bytes) -> str:
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return _by(name, data[len(mark) :], codec, f"its byte order mark says {codec}")
    declared = _declaration(name, data)
    if declared is not None:
        return _by(name, data, _codec(name, declared), f"it declares client_encoding {declared}")
    return _by(name, data, "utf-8", "it declares no other encoding")


def _by(name: str, data: bytes, codec: str, because: str) -> str:
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SeedError(
            f"{name}:{line}: byte 0x{data[error.start]:02x} is not {codec}, and {because}; save the file "
            "as UTF-8 (iconv -f LATIN1 -t UTF-8), or name its encoding by SET client_encoding = 'LATIN1';"
        ) from None


def _declaration(name: str, data: bytes) -> str | None:
    """The one encoding, other than UTF-8, that a script says it is in."""
    found: dict[str, int] = {}
    for match in _DECLARED.finditer(data):
        told = (match["set"] or match["names"] or match["meta"]).decode("ascii", "replace").strip("'\";")
        if told.lower() != "default" and _plain(told) not in (*_UTF8_NAMES, "SQLASCII"):
            found.setdefault(_plain(told), data.count(b"\n", 0, match.start()) + 1)
    if len(found) > 1:
        line = max(found.values())
        raise SeedError(f"{name}:{line}: a second encoding ({', '.join(found)}); save the file as UTF-8")
    return next(iter(found), None)


def _codec(name: str, declared: str) -> str:
    if declared in _CODECS:
        return _CODECS[declared]
    for pattern, codec in (
        (r"LATIN(\d)", "iso8859_{}"),
        (r"ISO8859(\d+)", "iso8859_{}"),
        (r"WIN(\d+)", "cp{}"),
    ):
        if match := re.fullmatch(pattern, declared):
            return codec.format(match.group(1))
    if declared in ("GBK", "GB18030"):
        return declared.lower()
    raise SeedError(
        f"seed file {name!r} declares client_encoding {declared}, which cannot be converted; save it as UTF-8"
    )


def _up_only(name: str, text: str, notes: list[str]) -> str:
    marks = list(_SIDES.finditer(text))
    if not any(mark["side"].lower() == "down" for mark in marks):
        return text
    parts, at = [], 0
    for mark, following in zip_longest(marks, marks[1:]):
        if mark["side"].lower() == "down":
            stop = following.start() if following else len(text)
            line = text.count("\n", 0, mark.start()) + 1
            notes.append(f"{name}:{line}: the way back down is left out")
            parts += [text[at : mark.end()], "\n" * text.count("\n", mark.end(), stop)]
            at = stop
    return "".join((*parts, text[at:]))
