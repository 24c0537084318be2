"""A change set as an HTML fragment: what was and what is, side by side. No script, and nothing is loaded."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
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

__all__ = ["html_page", "to_html"]

_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_DONE = {"insert": "inserted", "update": "updated", "delete": "deleted"}
_OBJECTS = {"create": ("+", "created"), "alter": ("~", "altered"), "drop": ("-", "dropped")}
_LINES = {"+": "ins", "-": "del"}


def to_html(view: Shown, *, hint: str = "") -> str:
    """A `section` to be put into a page; it brings its style, for light and dark.

    Args:
        view: what to show.
        hint: said at the end if something was left out: how to see it. Plain text.
    """
    return "\n".join(
        [
            f'<section class="rt-changes" aria-label="What changed">\n<style>{_style()}</style>',
            *_parts(view, hint),
            "</section>\n",
        ]
    )


def html_page(view: Shown, *, title: str, hint: str = "") -> str:
    """The fragment in a page of its own."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>body{{margin:1.5rem auto;padding:0 1rem;max-width:72rem}}"
        f"h1{{font:600 1.25rem/1.4 system-ui,sans-serif;overflow-wrap:anywhere}}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{to_html(view, hint=hint)}</body>\n</html>\n"
    )


@cache
def _style() -> str:
    # Every rule begins with the fragment's class, so that it styles nothing else of the page it is put into.
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def _parts(view: Shown, hint: str) -> Iterator[str]:
    yield f'<p class="rt-summary">{escape(view.summary)}</p>'
    for table in view.tables:
        yield from _table(table)
    if view.sequences:
        yield from _sequences(view)
    if view.objects:
        yield '<p class="rt-head">Schema objects</p>'
        for item in view.objects:
            yield from _object(item)
    if view.writes:
        yield from _writes(view)
    if view.more:
        rest = ", ".join(f"{count:,} more {what}" for what, count in view.more.items())
        yield f'<p class="rt-soft">… and {rest}</p>'
    if view.cut and hint:
        yield f'<p class="rt-soft">{escape(hint)}</p>'


def _head(first: str) -> str:
    cells = "".join(f'<th scope="col">{name}</th>' for name in (first, "before", "after"))
    return f"<thead><tr>{cells}</tr></thead>"


def _table(table: ShownTable) -> Iterator[str]:
    yield f"<table>\n<caption><code>{_text(table.name)}</code> "
    yield f'<span class="rt-soft">{escape(table.counts)}</span></caption>'
    yield _head("column")
    for row in table.rows:
        yield "<tbody>" if row.op == "update" else '<tbody class="rt-whole">'
        yield from _row(row)
        yield "</tbody>"
    yield "</table>"
    notes = []
    if table.more_rows:
        notes.append(f"… {table.more_rows:,} more")
    if table.omitted:
        notes.append(f"… {counted(table.omitted, 'row')} more were too many to keep")
    notes += [table.found] if table.found else []
    for note in notes:
        yield f'<p class="rt-soft">{_text(note)}</p>'


def _row(row: ShownRow) -> Iterator[str]:
    key = ", ".join(f"{_text(name)} <code>{_text(value)}</code>" for name, value in row.key) or "(no key)"
    by = ""
    if row.background:
        by = f' <span class="rt-by"><span class="rt-outside">{escape(row.by)}</span></span>'
    elif row.by:
        by = f' <span class="rt-by">{_text(credit(row.by))}</span>'
    yield (
        f'<tr class="rt-row"><th scope="rowgroup" colspan="3"><span class="rt-op">{_SIGNS[row.op]} '
        f"{_DONE[row.op]}</span> {key}{by}</th></tr>"
    )
    for number, cell in enumerate(row.cells):
        yield from _cells(row, cell, len(row.cells) if number == 0 else 0)
    notes = []
    if row.more_cells:
        notes.append(f"… {counted(row.more_cells, 'column')} more")
    if row.nulls:
        notes.append(f"{counted(row.nulls, 'column')} null")
    if notes:
        yield f'<tr><td colspan="3"><span class="rt-soft">{", ".join(notes)}</span></td></tr>'
    if row.same:
        summary = f"<summary>{counted(len(row.same), 'unchanged column')}</summary>"
        yield f'<tr><td colspan="3"><details>{summary}<dl>'
        for cell in row.same:
            yield f"<dt>{_text(cell.column)}</dt><dd>{_value(cell.new, '')}</dd>"
        yield "</dl></details></td></tr>"


def _cells(row: ShownRow, cell: ShownCell, span: int) -> Iterator[str]:
    """The lines of one cell. A side on which the row is not there is one field, `span` lines high."""
    name = f'<th scope="row">{_text(cell.column)}</th>'
    absent = f'<td rowspan="{span}"><span class="rt-soft">no row</span></td>' if span else ""
    match row.op:
        case "insert":
            yield f"<tr>{name}{absent}<td>{_value(cell.new, 'ins')}</td></tr>"
        case "delete":
            # The field of the side that is gone comes after the one that was.
            yield f"<tr>{name}<td>{_value(cell.old, 'del')}</td>{absent}</tr>"
        case _ if cell.parts:
            for part in cell.parts:
                path = f'<th scope="row">{_text(cell.column)} <code>{_text(part.path)}</code></th>'
                yield f"<tr>{path}<td>{_part(part.old, 'del')}</td><td>{_part(part.new, 'ins')}</td></tr>"
            if cell.more_parts:
                more = counted(cell.more_parts, "part")
                yield f'<tr>{name}<td colspan="2"><span class="rt-soft">… {more} more</span></td></tr>'
        case _:
            yield f"<tr>{name}<td>{_value(cell.old, 'del')}</td><td>{_value(cell.new, 'ins')}</td></tr>"


def _part(text: str | None, tag: str) -> str:
    return '<span class="rt-soft">not there</span>' if text is None else f"<{tag}>{_text(text)}</{tag}>"


def _value(value: Readable | None, tag: str) -> str:
    """A cell's content; what differs is in `ins` or `del`, so that it is told without colour, and aloud."""
    if value is None:
        return ""
    marked = _text(value.marked)
    if value.kind == "null":
        marked = f'<span class="rt-null">{marked}</span>'
    if not value.before and not value.after:
        whole = marked
        return f"<{tag}>{whole}</{tag}>" if tag else whole
    if not value.marked:  # a value that has no other side
        text = _text(value.before + value.after)
        return f"<{tag}>{text}</{tag}>" if tag else text
    return f"{_text(value.before)}<{tag}>{marked}</{tag}>{_text(value.after)}" if tag else _text(value.text)


def _sequences(view: Shown) -> Iterator[str]:
    yield "<table>\n<caption>Sequences</caption>"
    yield _head("sequence") + "<tbody>"
    for item in view.sequences:
        yield (
            f'<tr><th scope="row"><code>{_text(item.column)}</code></th>'
            f"<td>{_value(item.old, 'del')}</td><td>{_value(item.new, 'ins')}</td></tr>"
        )
    yield "</tbody></table>"


def _object(item: ShownObject) -> Iterator[str]:
    sign, done = _OBJECTS[item.op]
    yield f'<p><span class="rt-op">{sign} {done}</span> <code>{_text(item.title)}</code></p>'
    lines = []
    for line in item.lines:
        text = _text(f"{line.sign} {line.text}".rstrip())
        tag = _LINES.get(line.sign)
        lines.append(f"<{tag}>{text}</{tag}>" if tag else text)
    if item.more_lines:
        lines.append(f'<span class="rt-soft">… {counted(item.more_lines, "line")} more</span>')
    if lines:
        yield "<pre>" + "\n".join(lines) + "</pre>"


def _writes(view: Shown) -> Iterator[str]:
    yield '<p class="rt-head">Writes</p>\n<ul>'
    for write in view.writes:
        yield f"<li>{_write(write)}</li>"
    yield "</ul>"


def _write(write: ShownWrite) -> str:
    parts = [f"{write.op} {counted(write.rows, 'row')} <code>{_text(write.table)}</code>"]
    if write.by:
        parts.append(_text(credit(write.by)))
    if write.gone:
        which = "" if write.gone == write.rows else f" of {write.gone:,}"
        parts.append(f'<span class="rt-soft">nothing{which} left: put back or written over later</span>')
    return " · ".join(parts)


def _text(text: str) -> str:
    """Text of a database, in its own writing direction: it cannot turn around what stands beside it."""
    return escape(text) if text.isascii() else f"<bdi>{escape(text)}</bdi>"
