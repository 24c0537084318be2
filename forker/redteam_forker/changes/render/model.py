"""What is shown of a change set, whichever way it is drawn: the one model of all renderings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from redteam_forker.changes.render.readable import Readable, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ALL",
    "BRIEF",
    "OUTSIDE",
    "Bounds",
    "Line",
    "Op",
    "Shown",
    "ShownCell",
    "ShownObject",
    "ShownPart",
    "ShownRow",
    "ShownTable",
    "ShownWrite",
    "author",
    "counted",
    "credit",
    "table_name",
]

OUTSIDE = "outside any call"
"""What is said of a row that no tool call wrote."""

Op = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much is shown before `… n more` stands for the rest; None: all.

    Attributes:
        rows: of each table.
        cells: of each row.
        chars: of each value.
        parts: of each JSON document that differs.
        lines: of each object's definition.
        items: objects, sequences, writes and tables, of each.
    """

    rows: int | None = 10
    cells: int | None = 8
    chars: int | None = 80
    parts: int | None = 6
    lines: int | None = 12
    items: int | None = 40


BRIEF = Bounds()
ALL = Bounds(rows=None, cells=None, chars=None, parts=None, lines=None, items=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPart:
    """A part of a JSON document that differs; a side is None where the document has no such part."""

    path: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCell:
    """A cell.

    Attributes:
        column: its name.
        old: as it was; None in a row that is new.
        new: as it is; None in a row that is gone.
        parts: of a JSON document with parts that differ: these, and not the whole of it.
        more_parts: how many parts more differ.
    """

    column: str
    old: Readable | None
    new: Readable | None
    parts: tuple[ShownPart, ...] = ()
    more_parts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A row that differs.

    Attributes:
        op: what happened to it.
        key: names and values of its key; empty in a table without one.
        cells: what changed; of a row that is new or gone, what is in it besides its key.
        more_cells: how many cells more there are of that kind.
        same: cells of an update that did not change, as they are.
        nulls: how many columns of a row that is new or gone are NULL.
        by: the tool calls that may have written it, or `OUTSIDE`; empty where that is not known.
    """

    op: Op
    key: tuple[tuple[str, str], ...]
    cells: tuple[ShownCell, ...]
    more_cells: int
    same: tuple[ShownCell, ...]
    nulls: int
    by: str

    @property
    def background(self) -> bool:
        """Whether it was written outside any call."""
        return self.by == OUTSIDE

    @property
    def title(self) -> str:
        """The key in words."""
        return ", ".join(f"{name} {value}" for name, value in self.key) or "(no key)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table with rows that differ.

    Attributes:
        name: `public` is left out.
        counts: how many rows were `inserted`, `updated`, `deleted`, in words.
        rows: those that are shown.
        more_rows: how many more the change set has.
        omitted: how many more there were, too many to keep.
        found: how they were found and why so, in words; empty for the usual way.
    """

    name: str
    counts: str
    rows: tuple[ShownRow, ...]
    more_rows: int
    omitted: int
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a definition: `+` new, `-` gone, blank the same, `…` lines that were left out."""

    sign: Literal["+", "-", " ", "…"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownObject:
    """A schema object that differs, with the lines of its definition that do."""

    op: Literal["create", "drop", "alter"]
    title: str
    lines: tuple[Line, ...]
    more_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWrite:
    """A write of which nothing is left to see, or one of a call that is asked for.

    Attributes:
        op: what it did.
        table: to which table.
        rows: to how many rows.
        gone: how many of these show no difference that this write made.
        by: as of a row.
    """

    op: Op
    table: str
    rows: int
    gone: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All of it, ready to be drawn.

    Attributes:
        summary: everything in one line.
        tables, sequences, objects, writes: what is shown of each.
        more: how many more tables, sequences, objects and writes there are, by these words.
        cut: whether anything was left out because of the bounds, unchanged cells apart.
        whole: whether all was asked for, unchanged cells too.
    """

    summary: str
    tables: tuple[ShownTable, ...]
    sequences: tuple[ShownCell, ...]
    objects: tuple[ShownObject, ...]
    writes: tuple[ShownWrite, ...]
    more: Mapping[str, int]
    cut: bool
    whole: bool


def table_name(schema: str, name: str) -> str:
    """A table's or sequence's name as a person writes it: bare in schema `public`."""
    return visible(name if schema == "public" else f"{schema}.{name}")


def author(by: Sequence[str] | None, names: Mapping[str, str]) -> str:
    """Who wrote something, in words; empty where that is not known."""
    if by is None:
        return ""
    return " or ".join(visible(names.get(call, call)) for call in by) or OUTSIDE


def credit(by: str) -> str:
    """`by reschedule, turn 4`, `outside any call`, or nothing."""
    return f"by {by}" if by and by != OUTSIDE else by


def counted(count: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
