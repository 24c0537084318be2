"""Change sets on a terminal, in Markdown, in HTML."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from support.shown import HOSTILE, NAMES, everything, hostile_set, one_update, table_of

from redteam_forker.changes import ChangeSet, RowChange, Write
from redteam_forker.changes.render import (
    ALL,
    BRIEF,
    COMMENT_CHARS,
    html_page,
    of_calls,
    of_table,
    print_changes,
    shown,
    to_html,
    to_markdown,
    visible,
)
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_forker.changes.render import Bounds, Shown

HINT = "redteam diff x --all"


def plain(view: Shown, *, width: int = 100, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(
        file=output, width=width, force_terminal=terminal, color_system="truecolor" if terminal else None
    )
    print_changes(console, view, hint=HINT)
    return output.getvalue()


def rendered(changes: ChangeSet, bounds: Bounds = BRIEF) -> dict[str, str]:
    view = shown(changes, names=NAMES, bounds=bounds)
    return {
        "terminal": plain(view),
        "markdown": to_markdown(view, hint=HINT),
        "html": to_html(view, hint=HINT),
    }


class Page(HTMLParser):
    """What a browser would find: elements that are open at the end, and what each text stands in."""

    VOID = frozenset({"meta", "br", "img", "input", "link", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_a_terminal_shows_what_changed_and_who_did_it() -> None:
    text = plain(shown(everything(), names=NAMES))
    assert text.startswith(
        "49 rows in 4 tables (41 inserted, 3 updated, 2 deleted, 3 too many to keep), 1 sequence moved, "
        "2 schema objects changed\n"
    )
    for line in (
        "appointments  1 inserted, 2 updated, 1 deleted",
        "  ~ id 90311   by reschedule, turn 4",
        "      kind       new → follow_up",
        "      starts_at  Thu 2026-12-03 14:30 UTC → Fri 2026-12-04 09:00 UTC",
        '      details    tags[1] "b" → "c"',
        '                 + tags[2] "d"',
        '                 contact.phone "0711 1" → "0711 2"',
        "                 - contact.mail null",
        "      paid       false → true",
        "      … 1 unchanged column",
        "  - id 90313   by cancel, turn 6 or reschedule, turn 4",
        "  ~ id 90314   outside any call",
        '      note  "" → null',
        "wide  1 updated  (found by keys: the table was rewritten)",
        "      … 39 unchanged columns",
        "billing.lines  40 inserted, 3 too many to keep",
        "  … 30 more",
        "  … 3 rows more were too many to keep",
        "  - (no key)",
        "      a 1, 1 column null",
        "  appointments_id_seq  90311 → 90312",
        "  + create index public.i",
        "      - SELECT 1",
        "      + SELECT 2",
        "  update 2 rows patients   by book, turn 2   nothing left: put back or written over later",
        "  insert 1 row audit   outside any call   nothing left: put back or written over later",
        HINT,
    ):
        assert line in text.splitlines(), line
    assert "update 1 row appointments" not in text  # what it wrote is there to be seen
    assert "  + billing" not in text


def test_nothing_is_said_to_be_nothing() -> None:
    for text in rendered(ChangeSet()).values():
        assert "nothing changed" in text
        assert HINT not in text


def test_all_of_it_is_all_of_it() -> None:
    texts = rendered(everything(), ALL)
    for form, text in texts.items():
        assert "line 40" in text, form
        assert "… 30 more" not in text
        assert HINT not in text
        assert "Allergic to penicillin. " * 5 in text.replace("</del>", "").replace("<ins>", ""), form
    assert "column_40 value 40" in texts["terminal"]


def test_a_part_of_forty_rows_of_forty_columns_fits_on_a_screen() -> None:
    columns = {"id": "bigint", **{f"c{n:02}": "text" for n in range(40)}}
    image = {"id": "1", **{f"c{n:02}": f"value {n}" for n in range(40)}}
    rows = [
        RowChange(op="insert", key={"id": str(n)}, old=None, new={**image, "id": str(n)}) for n in range(40)
    ]
    view = shown(ChangeSet(tables=(table_of(rows, columns),)))
    lines = plain(view, width=120, terminal=True).splitlines()
    assert len(lines) < 40
    text = plain(view)
    assert text.count(", … 32 columns more\n") == 10
    assert text.count("  … 30 more\n") == 1


def test_a_row_is_told_by_its_key_first() -> None:
    row = RowChange(op="insert", key={"b": "2", "a": "1"}, old=None, new={"x": "0", "a": "1", "b": "2"})
    changes = ChangeSet(tables=(table_of([row], {"x": "text", "a": "text", "b": "text"}, key=("b", "a")),))
    assert "  + b 2, a 1\n      x 0\n" in plain(shown(changes))


def test_a_terminal_that_is_narrow_folds_and_keeps_the_indent() -> None:
    lines = plain(shown(everything(), names=NAMES), width=44, terminal=True).splitlines()
    bare = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]
    assert max(map(len, bare)) <= 44
    start = next(n for n, line in enumerate(bare) if line.startswith("      starts_at"))
    assert bare[start + 1].startswith("      ")


@pytest.mark.parametrize("bounds", [BRIEF, ALL], ids=["brief", "all"])
def test_no_value_can_command_the_terminal(bounds: Bounds) -> None:
    text = plain(shown(hostile_set(), bounds=bounds), terminal=True)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)  # our own colours
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2028\u2029\u2066-\u2069]", bare)
    assert "\x1b" not in plain(shown(hostile_set(), bounds=bounds))
    assert "[red]markup[/]" in bare


@pytest.mark.parametrize("bounds", [BRIEF, ALL], ids=["brief", "all"])
def test_no_value_is_markup_in_html(bounds: Bounds) -> None:
    text = html_page(shown(hostile_set(), bounds=bounds), title="<script>")
    page = Page(text)
    assert (page.open, page.wrong) == ([], [])
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "section", "p", "table", "caption", "thead",
        "tbody", "tr", "th", "td", "code", "span", "del", "ins", "bdi", "details", "summary", "dl", "dt",
        "dd", "pre", "ul", "li",
    }  # fmt: skip
    attributes = {name for _, found in page.tags for name in found}
    assert not any(name.startswith("on") or name in ("href", "src", "style") for name in attributes)
    shown_text = "".join(page.texts)
    for value in HOSTILE:
        assert visible(value[:40]) in shown_text


def test_html_stands_for_itself_and_is_told_without_colour() -> None:
    text = to_html(shown(everything(), names=NAMES))
    page = Page(text)
    assert "http" not in text  # nothing is loaded from anywhere
    assert page.count("script") == 0
    assert page.count("table") == page.count("caption") == 5
    scopes = [found.get("scope") for tag, found in page.tags if tag == "th"]
    assert set(scopes) == {"col", "row", "rowgroup"}
    assert "prefers-color-scheme: dark" in text
    assert page.count("del") >= 8
    assert page.count("ins") >= 8
    assert "<del>Weber</del>" in text
    assert "<ins>Okafor</ins>" in text
    assert "39 unchanged columns" in text
    rules = re.findall(r"(?m)^\s*([^@\s{}][^{}]*)\{", text[: text.index("</style>")].split("<style>")[1])
    assert [rule for rule in rules if not all(".rt-changes" in one for one in rule.split(","))] == []


def test_every_row_of_an_html_table_is_as_wide_as_its_head() -> None:
    for changes in (everything(), hostile_set()):
        text = to_html(shown(changes, bounds=ALL))
        for table in re.findall(r"<table>.*?</table>", text, re.DOTALL):
            for body in re.findall(r"<tbody>(.*?)</tbody>", table, re.DOTALL):
                below = 0  # how many rows a field from above still reaches into
                for row in re.findall(r"<tr[ >].*?</tr>", body, re.DOTALL):
                    cells = re.findall(r"<t[hd]([ >][^>]*)", row)
                    width = sum(int((re.search(r'colspan="(\d+)"', one) or [0, 1])[1]) for one in cells)
                    assert width + (below > 0) == 3, row
                    high = max(
                        (int((re.search(r'rowspan="(\d+)"', one) or [0, 1])[1]) for one in cells), default=1
                    )
                    below = high - 1 if high > 1 else max(below - 1, 0)


@pytest.mark.parametrize("bounds", [BRIEF, ALL], ids=["brief", "all"])
def test_no_value_breaks_a_markdown_table_or_becomes_markup(bounds: Bounds) -> None:
    text = to_markdown(shown(hostile_set(), bounds=bounds), chars=None)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline if child.type.startswith(("link", "image", "s_"))} == set()
    assert {child.content for child in inline if child.type == "html_inline"} <= {"<br>"}
    assert not any(token.type == "html_block" for token in tokens)
    rows = [n for n, token in enumerate(tokens) if token.type == "tr_open"]
    widths = []
    for start in rows:
        end = next(n for n in range(start, len(tokens)) if tokens[n].type == "tr_close")
        widths.append(sum(token.type in ("td_open", "th_open") for token in tokens[start:end]))
    assert set(widths) == {3, 4}
    assert len(rows) == len(HOSTILE) * 4 + 1 + len(HOSTILE)  # a head and three rows each; the sequences
    code = "".join(child.content for child in inline if child.type in ("code_inline", "text"))
    assert "@octocat" in code
    assert not any("@octocat" in child.content for child in inline if child.type == "text")


def test_markdown_says_who_and_what() -> None:
    text = to_markdown(shown(everything(), names=NAMES), title="j4hfwm c008", hint=HINT)
    lines = text.splitlines()
    assert lines[0] == "## `j4hfwm c008`"
    assert "### `appointments`: 1 inserted, 2 updated, 1 deleted" in lines
    assert any(
        line.startswith("| ~ update | `id` `90311` | `kind` `new` → `follow_up`<br>") for line in lines
    )
    assert '| ~ update | `id` `90314` | `note` `""` → *null* | **outside any call** |' in lines
    assert f"All of it: `{HINT}`" in lines
    assert "-SELECT 1" in lines


def test_markdown_fits_into_a_comment_and_counts_what_does_not() -> None:
    one = everything().tables[0]
    long = [
        RowChange(op="insert", key={"id": str(n)}, old=None, new={"id": str(n), "note": "x" * 5000})
        for n in range(10)
    ]
    tables = tuple(table_of(long, {"id": "bigint", "note": "text"}, table=f"t{n}") for n in range(200))
    view = shown(ChangeSet(tables=(one, *tables)), bounds=ALL)
    text = to_markdown(view, hint=HINT)
    assert len(text) <= COMMENT_CHARS
    assert "… 199 sections more did not fit here." in text
    assert HINT in text
    assert len(to_markdown(view, chars=None)) > 10_000_000


def test_ten_megabytes_in_a_cell_are_a_line_in_every_rendering() -> None:
    old = "some words " * 1_000_000
    texts = rendered(one_update(old, old[:5_000_000] + "!" + old[5_000_000:]))
    assert all(len(text) < 10_000 for text in texts.values())
    assert all("!" in text for text in texts.values())


def test_a_write_that_may_have_left_a_row_is_not_said_to_have_left_nothing() -> None:
    gone = RowChange(op="delete", key={"id": "1"}, old={"id": "1"}, new=None)  # by whom is not known
    write = Write(xid=5, schema="public", table="t", op="delete", rows=1)
    changes = ChangeSet(tables=(table_of([gone], {"id": "bigint"}),), writes=(write,))
    assert shown(changes).writes == ()
    assert [one.gone for one in shown(changes, every_write=True).writes] == [0]
    many = ChangeSet(
        tables=changes.tables, writes=(Write(xid=5, schema="public", table="t", op="delete", rows=3),)
    )
    assert [one.gone for one in shown(many).writes] == [2]


def test_what_one_call_did_is_its_rows_and_its_writes() -> None:
    part = of_calls(everything(), {"c2"})
    assert [(table.table, [row.key for row in table.rows]) for table in part.tables] == [
        ("appointments", [{"id": "90311"}, {"id": "90313"}])
    ]
    assert [write.xid for write in part.writes] == [70]
    assert (part.sequences, part.objects) == ((), ())
    text = plain(shown(part, names=NAMES, every_write=True))
    assert "  update 1 row appointments   by reschedule, turn 4\n" in text


@pytest.mark.parametrize("name", ["appointments", "public.appointments"])
def test_one_table_is_its_rows_and_its_writes(name: str) -> None:
    part = of_table(everything(), name)
    assert [table.table for table in part.tables] == ["appointments"]
    assert [write.table for write in part.writes] == ["appointments"]
    assert [table.table for table in of_table(everything(), "lines").tables] == ["lines"]
    assert of_table(everything(), "audit").tables == ()  # written and put back
    assert ChangeSet.from_json(part.to_json()) == part


def test_a_table_that_did_not_change_is_answered_with_what_is_near() -> None:
    with pytest.raises(UsageError) as caught:
        of_table(everything(), "apointments")
    assert str(caught.value) == (
        "nothing changed in a table 'apointments'; did you mean 'appointments'? Tables that changed: "
        "appointments, audit, billing.lines, keyless, patients, wide"
    )
    with pytest.raises(UsageError, match="no row of any table changed"):
        of_table(ChangeSet(), "t")
    twice = ChangeSet(tables=tuple(table_of([], {"id": "bigint"}, schema=schema) for schema in ("a", "b")))
    with pytest.raises(UsageError, match=r"name one with its schema: a\.t, b\.t"):
        of_table(twice, "t")
