"""A change set in GitHub-flavoured Markdown: for a CI summary, a pull request, an issue.

Whatever comes from the database stands in code spans: nothing in them is a link, a mention, HTML or a table's
border. Only backticks and `|` need care there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redteam_forker.changes.render.model import counted, credit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_forker.changes.render.model import (
        Shown,
        ShownCell,
        ShownObject,
        ShownRow,
        ShownTable,
        ShownWrite,
    )
    from redteam_forker.changes.render.readable import Readable

__all__ = ["COMMENT_CHARS", "to_markdown"]

COMMENT_CHARS = 60_000
"""What fits into a comment on GitHub with some room (65,536); a job's summary takes 1 MiB."""

_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_DONE = {"create": "created", "alter": "altered", "drop": "dropped"}
_TICKS = re.compile("`+")


def to_markdown(
    view: Shown, *, title: str = "", chars: int | None = COMMENT_CHARS, hint: str = "", level: int = 3
) -> str:
    """The whole text, ending with a line feed.

    Args:
        view: what to show.
        title: a heading above it all, as plain text.
        chars: the most characters it may have: what does not fit is counted; None: no bound.
        hint: a command that shows what was left out, if something was.
        level: of the tables' headings.
    """
    text, left = [f"**{view.summary}**\n"], 0
    if title:
        text.insert(0, f"{'#' * (level - 1)} {_code(title)}\n")
    last = f"All of it: {_code(hint)}\n" if hint else ""
    room = None if chars is None else chars - sum(map(len, text)) - len(last) - 100
    for block in _blocks(view, "#" * level):
        if room is not None:
            room -= len(block) + 1
        if room is None or room >= 0:
            text.append(block)
        else:
            left += 1
            room = 0  # a later, shorter block would stand where nobody expects it
    if left:
        text.append(f"… {counted(left, 'section')} more did not fit here.\n")
    if last and (left or view.cut):
        text.append(last)
    return "\n".join(text)


def _blocks(view: Shown, heading: str) -> Iterator[str]:
    for table in view.tables:
        yield f"{heading} {_code(table.name)}: {table.counts}\n\n{_table(table)}"
    if view.sequences:
        rows = ["| sequence | before | after |", "|---|---|---|"]
        for item in view.sequences:
            assert item.old is not None
            assert item.new is not None
            rows.append(f"| {_cell(item.column)} | {_value(item.old)} | {_value(item.new)} |")
        yield f"{heading} Sequences\n\n" + "\n".join(rows) + "\n"
    if view.objects:
        yield f"{heading} Schema objects\n\n" + "\n".join(_object(item) for item in view.objects)
    if view.writes:
        yield f"{heading} Writes\n\n" + "\n".join(_write(item) for item in view.writes) + "\n"
    if view.more:
        yield "… and " + ", ".join(f"{count:,} more {what}" for what, count in view.more.items()) + "\n"


def _table(table: ShownTable) -> str:
    lines = ["| | row | what changed | written by |", "|---|---|---|---|"]
    lines += [_row(row) for row in table.rows]
    notes = []
    if table.more_rows:
        notes.append(f"… {table.more_rows:,} more")
    if table.omitted:
        notes.append(f"… {counted(table.omitted, 'row')} more were too many to keep")
    if table.found:
        notes.append(_code(table.found))
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in notes)


def _row(row: ShownRow) -> str:
    key = ", ".join(f"{_cell(name)} {_cell(value)}" for name, value in row.key) or "(no key)"
    by = f"**{row.by}**" if row.background else _cell(row.by) if row.by else ""
    return f"| {_SIGNS[row.op]} {row.op} | {key} | {'<br>'.join(_cells(row))} | {by} |"


def _cells(row: ShownRow) -> Iterator[str]:
    if row.op != "update":
        cells = [f"{_cell(cell.column)} {_value(cell.new or cell.old)}" for cell in row.cells]
        if row.more_cells:
            cells.append(f"… {counted(row.more_cells, 'column')} more")
        if row.nulls:
            cells.append(f"{counted(row.nulls, 'column')} null")
        yield ", ".join(cells)
        return
    for cell in row.cells:
        yield from _change(cell)
    if row.more_cells:
        yield f"… {counted(row.more_cells, 'changed column')} more"


def _change(cell: ShownCell) -> Iterator[str]:
    if not cell.parts:
        yield f"{_cell(cell.column)} {_value(cell.old)} → {_value(cell.new)}"
        return
    for part in cell.parts:
        name = f"{_cell(cell.column)} {_cell(part.path)}"
        if part.old is None:
            yield f"{name} added {_cell(part.new or '')}"
        elif part.new is None:
            yield f"{name} removed {_cell(part.old)}"
        else:
            yield f"{name} {_cell(part.old)} → {_cell(part.new)}"
    if cell.more_parts:
        yield f"{_cell(cell.column)} … {counted(cell.more_parts, 'part')} more"


def _value(value: Readable | None) -> str:
    if value is None or value.kind == "null":
        return "*null*"
    return _cell(value.text)


def _object(item: ShownObject) -> str:
    lines = [f"{line.sign}{line.text}" if line.sign != "…" else "…" for line in item.lines]
    if item.more_lines:
        lines.append(f"… {counted(item.more_lines, 'line')} more")
    ticks = "`" * max(3, _longest_ticks("\n".join(lines)) + 1)
    return f"{_code(item.title)} {_DONE[item.op]}\n\n{ticks}diff\n" + "\n".join(lines) + f"\n{ticks}\n"


def _write(write: ShownWrite) -> str:
    by = credit(write.by)
    parts = [f"- {write.op} {counted(write.rows, 'row')} {_code(write.table)}"]
    if by:
        parts.append(_code(by))
    if write.gone:
        which = "" if write.gone == write.rows else f" of {write.gone:,}"
        parts.append(f"nothing{which} left: put back or written over later")
    return " · ".join(parts)


def _cell(text: str) -> str:
    """A code span inside a table: `|` ends a cell even there, unless it is escaped."""
    pieces: list[str] = []
    for piece in text.split("|"):
        # `\\|` would be an escaped backslash and a border, so such a `|` stands between two spans.
        if pieces and not pieces[-1].endswith("\\"):
            pieces[-1] += f"\\|{piece}"
        else:
            pieces.append(piece)
    return "&#124;".join(_code(piece) for piece in pieces)


def _code(text: str) -> str:
    """A code span, whatever the text is."""
    if not text:
        return ""
    ticks = "`" * (_longest_ticks(text) + 1)
    # One blank on each side is taken away again; without, a backtick or blank of the text's own would be.
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
