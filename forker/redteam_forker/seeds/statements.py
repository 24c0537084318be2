"""Cuts a psql script into statements, backslash commands and COPY data, each with its line.

It follows psql's own scanner where that decides what is a statement: quotes, dollar quotes, nested comments,
semicolons inside parentheses (CREATE RULE) and inside BEGIN ATOMIC bodies end nothing. It does not know SQL.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

__all__ = ["Piece", "ScriptError", "split_script"]

_TOKEN = re.compile(
    r"""
      (?P<space>\s++)
    | (?P<comment>--[^\n]*+)
    | (?P<block>/\*)
    | (?P<string>[eE]'(?:[^'\\]++|\\.|'')*+' | '[^']*+' | "[^"]*+")
    | (?P<open_quote>[eE]?' | ")
    | (?P<dollar>\$(?:[^\W\d]\w*+)?\$)
    | (?P<word>[^\W\d][\w$]*+)
    | (?P<meta>\\)
    | (?P<end>;)
    | (?P<paren>[()])
    | (?P<other>\d[\w$]*+ | .)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
_COPY_IN = re.compile(r"\s*copy\b.*\bfrom\s+stdin\b", re.IGNORECASE | re.DOTALL)
_COPY_META = re.compile(r"\\copy\b.*\bfrom\s+p?stdin\b", re.IGNORECASE)
_COMMAND = re.compile(r"\\([A-Za-z_]+|\S)?")
# These send what stands before them, as a semicolon would.
_SENDING = frozenset(
    {"g", "gx", "gset", "gexec", "gdesc", "crosstabview", "crosstab", "watch", "parse", "bind"}
)


class ScriptError(ValueError):
    """A script that psql could not read to its end.

    Attributes:
        line: where the unfinished thing begins.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One statement or one backslash command.

    Attributes:
        meta: the backslash command's name (`restrict`, `!`), or None for a statement.
        text: the statement without its semicolon and without backslash commands in its midst (blanked, so
            that positions in it are positions in the script); or the command's whole line.
        start: offset of its first character that is neither white space nor comment.
        end: offset after its semicolon, or after the command's line.
        line: the line of `start`, from 1.
        last_line: the line of its semicolon.
        data_line: the first line of the COPY data that follow it, or None.
    """

    meta: str | None
    text: str = field(repr=False)
    start: int
    end: int
    line: int
    last_line: int
    data_line: int | None = None


class _Lines:
    """Offsets to line numbers."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        self._starts.extend(match.end() for match in re.finditer("\n", text))

    def at(self, offset: int) -> int:
        return bisect_right(self._starts, offset)


class _Body:
    """Whether we are inside a BEGIN ATOMIC body, by psql's own rule of thumb over the words so far."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._depth = 0

    def see(self, word: str, paren_depth: int) -> None:
        lowered = word.lower()
        if len(self._head) < 4:
            self._head.append(lowered)
        head = self._head[:1] + self._head[3:] if self._head[1:3] == ["or", "replace"] else self._head
        if paren_depth or head[0] != "create" or head[1:2] not in (["function"], ["procedure"]):
            return
        if lowered == "begin" or (lowered == "case" and self._depth):
            self._depth += 1
        elif lowered == "end" and self._depth:
            self._depth -= 1

    @property
    def inside(self) -> bool:
        return self._depth > 0


def split_script(text: str) -> list[Piece]:
    """Cut a whole script.

    Raises:
        ScriptError: a quote, a comment, a parenthesis or COPY data never end: the file is cut off.
    """
    return _Splitter(text).run()


class _Splitter:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = _Lines(text)
        self._pieces: list[Piece] = []
        self._reset()

    def _reset(self) -> None:
        self._start: int | None = None
        self._parens: list[int] = []
        self._body = _Body()
        self._blanks: list[tuple[int, int]] = []

    def run(self) -> list[Piece]:
        text, at = self._text, 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            assert match is not None  # `other` takes any character
            kind, token = match.lastgroup, match.group()
            if kind not in ("space", "comment", "block", "meta", "end") and self._start is None:
                self._start = at
            match kind:
                case "block":
                    at = self._after_comment(at)
                    continue
                case "open_quote":
                    raise ScriptError(self._lines.at(at), f"the quote {token} that begins here never ends")
                case "dollar":
                    close = text.find(token, match.end())
                    if close < 0:
                        raise ScriptError(
                            self._lines.at(at), f"the quote {token} that begins here never ends"
                        )
                    at = close + len(token)
                    continue
                case "word":
                    self._body.see(token, len(self._parens))
                case "paren":
                    self._parenthesis(token, at)
                case "end" if not self._parens and not self._body.inside:
                    at = self._statement(at, at + 1)
                    continue
                case "meta":
                    at = self._command(at)
                    continue
            at = match.end()
        if self._start is not None:
            if self._parens:
                raise ScriptError(
                    self._lines.at(self._parens[-1]), "the parenthesis that opens here never closes"
                )
            # psql runs a last statement that lacks its semicolon.
            self._statement(len(text), len(text))
        return self._pieces

    def _after_comment(self, at: int) -> int:
        depth, here = 1, at + 2
        while depth:
            edge = _BLOCK_EDGE.search(self._text, here)
            if edge is None:
                raise ScriptError(self._lines.at(at), "the comment that begins here never ends")
            depth += 1 if edge.group() == "/*" else -1
            here = edge.end()
        return here

    def _parenthesis(self, sign: str, at: int) -> None:
        if sign == "(":
            self._parens.append(at)
        elif self._parens:
            self._parens.pop()

    def _statement(self, stop: int, end: int) -> int:
        """Close the statement that ends at `stop`; returns where to go on."""
        start = self._start
        if start is None:  # an empty statement
            self._reset()
            return end
        text = self._text[start:stop]
        for low, high in self._blanks:
            text = text[: low - start] + re.sub(r"[^\n]", " ", self._text[low:high]) + text[high - start :]
        self._reset()
        data_line, after = None, end
        if _COPY_IN.match(_without_comments(text) if text[:4].lower() == "copy" else ""):
            data_line, after = self._copy_data(end, start)
        self._pieces.append(
            Piece(
                meta=None,
                text=text,
                start=start,
                end=end,
                line=self._lines.at(start),
                last_line=self._lines.at(max(start, stop - 1)),
                data_line=data_line,
            )
        )
        return after

    def _copy_data(self, end: int, start: int) -> tuple[int, int]:
        newline = self._text.find("\n", end)
        rest = self._text[end:] if newline < 0 else self._text[end:newline]
        if rest.strip() and not rest.strip().startswith("--"):
            raise ScriptError(
                self._lines.at(end), "text follows COPY ... FROM stdin; on its line, where data begin"
            )
        data = len(self._text) if newline < 0 else newline + 1
        close = re.compile(r"^\\\.\r?$", re.MULTILINE).search(self._text, data)
        if close is None:
            raise ScriptError(
                self._lines.at(start),
                "the data of the COPY that begins here never end (no \\.): the file is cut off; get it whole",
            )
        return self._lines.at(data), close.end()

    def _command(self, at: int) -> int:
        """Read a backslash command, which reaches to the end of its line; returns where to go on."""
        if self._text.startswith("\\;", at):
            return self._statement(at, at + 2)
        newline = self._text.find("\n", at)
        stop = len(self._text) if newline < 0 else newline
        line = self._text[at:stop].rstrip("\r")
        named = _COMMAND.match(line)
        name = (named.group(1) if named else None) or ""
        number = self._lines.at(at)
        if self._start is not None:
            if name in _SENDING:
                self._statement(at, at)
            else:
                self._blanks.append((at, at + len(line)))
        data_line, after = None, at + len(line)
        if name == "copy" and _COPY_META.match(line):
            data_line, after = self._copy_data(after, at)
        self._pieces.append(
            Piece(
                meta=name,
                text=line,
                start=at,
                end=at + len(line),
                line=number,
                last_line=number,
                data_line=data_line,
            )
        )
        return after


def _without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
