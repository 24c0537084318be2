"""What a change set looks like to people: a terminal, Markdown, an HTML fragment; and JSON for programs.

`shown` decides what is shown, once for all: the renderings only draw it. `of_table` and `of_calls` take a
part of a change set first. The JSON form is the change set's own, `ChangeSet.to_json`: exact and whole.
"""

from __future__ import annotations

from redteam_forker.changes.render.html import html_page, to_html
from redteam_forker.changes.render.markdown import COMMENT_CHARS, to_markdown
from redteam_forker.changes.render.model import ALL, BRIEF, Bounds, Shown, author, credit, table_name
from redteam_forker.changes.render.readable import Readable, readable, readable_pair, visible
from redteam_forker.changes.render.selection import of_calls, of_table
from redteam_forker.changes.render.showing import shown
from redteam_forker.changes.render.terminal import print_changes

__all__ = [
    "ALL",
    "BRIEF",
    "COMMENT_CHARS",
    "Bounds",
    "Readable",
    "Shown",
    "author",
    "credit",
    "html_page",
    "of_calls",
    "of_table",
    "print_changes",
    "readable",
    "readable_pair",
    "shown",
    "table_name",
    "to_html",
    "to_markdown",
    "visible",
]
