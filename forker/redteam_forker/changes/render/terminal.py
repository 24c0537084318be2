"""A change set on a terminal, or as plain text where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.padding import Padding
from rich.text import Text

from redteam_forker.changes.render.model import counted, credit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from redteam_forker.changes.render.model import (
        Shown,
        ShownCell,
        ShownObject,
        ShownRow,
        ShownTable,
        ShownWrite,
    )
    from redteam_forker.changes.render.readable import Readable

__all__ = ["print_changes"]

_SIGNS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
_OF_OBJECTS = {"create": "+", "alter": "~", "drop": "-"}
_LINES = {"+": "green", "-": "red", " ": "dim", "…": "dim"}
_ON_ONE_LINE = 72
_WIDEST_NAME = 28


class _Line(NamedTuple):
    indent: int
    text: Text


def print_changes(console: Console, view: Shown, *, hint: str = "") -> None:
    """Print a change set.

    Args:
        console: where to; lines are folded to its width if it is a terminal, and left whole if it is not.
        view: what to show.
        hint: said at the end if something was left out: how to see it.
    """
    for indent, text in _lines(view, hint):
        if console.is_terminal:
            text.overflow = "fold"
            console.print(Padding(text, (0, 0, 0, indent)), highlight=False)
        else:
            # Past rich, which takes a hundred times as long for a line that it leaves as it is.
            console.file.write(f"{' ' * indent}{text.plain}".rstrip() + "\n")


def _lines(view: Shown, hint: str) -> Iterator[_Line]:
    yield _Line(0, Text(view.summary, style="bold"))
    for table in view.tables:
        yield _Line(0, Text())
        yield from _table(table, whole=view.whole)
    yield from _more(view, "tables")
    if view.sequences:
        yield _Line(0, Text())
        yield _Line(0, Text("sequences", style="bold"))
        for sequence in view.sequences:
            yield from _change(sequence, len(sequence.column), indent=2)
        yield from _more(view, "sequences")
    if view.objects:
        yield _Line(0, Text())
        yield _Line(0, Text("schema objects", style="bold"))
        for item in view.objects:
            yield from _object(item)
        yield from _more(view, "objects")
    if view.writes:
        yield _Line(0, Text())
        yield _Line(0, Text("writes", style="bold"))
        for write in view.writes:
            yield _write(write)
        yield from _more(view, "writes")
    if view.cut and hint:
        yield _Line(0, Text())
        yield _Line(0, Text(hint, style="dim"))


def _more(view: Shown, what: str) -> Iterator[_Line]:
    if view.more.get(what):
        yield _Line(2, Text(f"… {view.more[what]:,} more {what}", style="dim"))


def _table(table: ShownTable, *, whole: bool) -> Iterator[_Line]:
    head = Text.assemble((table.name, "bold"), f"  {table.counts}")
    if table.found:
        head.append(f"  ({table.found})", style="dim")
    yield _Line(0, head)
    for row in table.rows:
        yield from _row(row, whole=whole)
    if table.more_rows:
        yield _Line(2, Text(f"… {table.more_rows:,} more", style="dim"))
    if table.omitted:
        yield _Line(2, Text(f"… {counted(table.omitted, 'row')} more were too many to keep", style="dim"))


def _row(row: ShownRow, *, whole: bool) -> Iterator[_Line]:
    sign, style = _SIGNS[row.op]
    head = Text.assemble((sign, f"bold {style}"), " ", (row.title, "bold"))
    if row.by:
        head.append("   ")
        head.append(credit(row.by), style="magenta" if row.background else "cyan")
    yield _Line(2, head)
    if row.op == "update":
        width = min(max((len(cell.column) for cell in row.cells), default=0), _WIDEST_NAME)
        for cell in row.cells:
            yield from _change(cell, width, indent=6)
        if row.more_cells:
            yield _Line(6, Text(f"… {counted(row.more_cells, 'changed column')} more", style="dim"))
    else:
        yield from _values(row)
    if whole and row.same:
        yield _Line(6, Text("unchanged: ", style="dim").append_text(_joined(row.same)))
    elif row.same:
        yield _Line(6, Text(f"… {counted(len(row.same), 'unchanged column')}", style="dim"))


def _values(row: ShownRow) -> Iterator[_Line]:
    """The cells of a row that is new or gone, one after the other."""
    text = _joined(row.cells)
    if row.more_cells:
        text.append(f", … {counted(row.more_cells, 'column')} more", style="dim")
    if row.nulls:
        separator = ", " if text.plain else ""
        text.append(f"{separator}{counted(row.nulls, 'column')} null", style="dim")
    if text.plain:
        yield _Line(6, text)


def _joined(cells: tuple[ShownCell, ...]) -> Text:
    text = Text()
    for number, cell in enumerate(cells):
        value = cell.new or cell.old
        assert value is not None
        text.append(", " if number else "")
        text.append(f"{cell.column} ", style="dim").append_text(_value(value, ""))
    return text


def _change(cell: ShownCell, width: int, *, indent: int) -> Iterator[_Line]:
    """Both sides of a cell: beside each other, or one above the other if they are long."""
    name = Text(cell.column.ljust(width), style="dim")
    if cell.parts:
        yield from _parts(cell, width, indent)
        return
    assert cell.old is not None
    assert cell.new is not None
    old, new = _value(cell.old, "red"), _value(cell.new, "green")
    if len(old) + len(new) <= _ON_ONE_LINE:
        yield _Line(indent, Text.assemble(name, "  ", old, (" → ", "dim"), new))
    else:
        yield _Line(indent, Text.assemble(name, "  ", ("- ", "red"), old))
        yield _Line(indent, Text.assemble(" " * len(name), "  ", ("+ ", "green"), new))


def _parts(cell: ShownCell, width: int, indent: int) -> Iterator[_Line]:
    for number, part in enumerate(cell.parts):
        text = Text.assemble(("" if number else cell.column).ljust(width), "  ", style="dim")
        if part.old is None:
            text.append_text(Text.assemble(("+ ", "bold green"), f"{part.path} ", (part.new or "", "green")))
        elif part.new is None:
            text.append_text(Text.assemble(("- ", "bold red"), f"{part.path} ", (part.old, "red")))
        else:
            text.append_text(
                Text.assemble(f"{part.path} ", (part.old, "red"), (" → ", "dim"), (part.new, "green"))
            )
        yield _Line(indent, text)
    if cell.more_parts:
        yield _Line(indent + width + 2, Text(f"… {counted(cell.more_parts, 'part')} more", style="dim"))


def _value(value: Readable, style: str) -> Text:
    if value.kind == "null":
        return Text("null", style=f"italic {style}".strip())
    text = Text(style=style)
    text.append(value.before)
    text.append(value.marked, style="bold" if value.before or value.after else "")
    text.append(value.after)
    return text


def _object(item: ShownObject) -> Iterator[_Line]:
    yield _Line(2, Text.assemble((_OF_OBJECTS[item.op], "bold"), f" {item.op} ", (item.title, "bold")))
    for line in item.lines:
        yield _Line(6, Text(f"{line.sign} {line.text}".rstrip(), style=_LINES[line.sign]))
    if item.more_lines:
        yield _Line(6, Text(f"… {counted(item.more_lines, 'line')} more", style="dim"))


def _write(write: ShownWrite) -> _Line:
    text = Text.assemble(f"{write.op} {counted(write.rows, 'row')} ", (write.table, "bold"))
    if write.by:
        text.append(f"   {credit(write.by)}", style="cyan")
    if write.gone:
        which = "" if write.gone == write.rows else f" of {write.gone:,}"
        text.append(f"   nothing{which} left: put back or written over later", style="dim")
    return _Line(2, text)
