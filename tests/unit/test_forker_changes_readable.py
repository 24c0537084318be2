"""Cells as people read them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shown import HOSTILE

from redteam_forker.changes.render.documents import Part, differing_parts
from redteam_forker.changes.render.readable import readable, readable_pair, visible


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        pytest.param("t", "boolean", "true", id="true"),
        pytest.param("f", "boolean", "false", id="false"),
        pytest.param("t", "text", "t", id="a-letter-is-no-boolean"),
        pytest.param(
            "2026-12-03 14:30:00+00", "timestamp with time zone", "Thu 2026-12-03 14:30 UTC", id="instant"
        ),
        pytest.param(
            "2026-12-03 14:30:05.25+00",
            "timestamp with time zone",
            "Thu 2026-12-03 14:30:05 UTC",
            id="instant-with-parts-of-a-second",
        ),
        pytest.param(
            "2026-12-03 14:30:00.5",
            "timestamp without time zone",
            "Thu 2026-12-03 14:30:00",
            id="half-a-second",
        ),
        pytest.param(
            "2026-12-03 14:30:00", "timestamp without time zone", "Thu 2026-12-03 14:30", id="local-time"
        ),
        pytest.param(
            "2026-12-03 14:30:00", "timestamp(3) without time zone", "Thu 2026-12-03 14:30", id="typmod"
        ),
        pytest.param("infinity", "timestamp with time zone", "infinity", id="infinity"),
        pytest.param(
            "0044-03-15 00:00:00+00 BC",
            "timestamp with time zone",
            "0044-03-15 00:00:00+00 BC",
            id="before-us",
        ),
        pytest.param(
            "12026-01-01 00:00:00", "timestamp without time zone", "12026-01-01 00:00:00", id="far-future"
        ),
        pytest.param("2026-12-03", "date", "2026-12-03", id="date"),
        pytest.param("\\xdead", "bytea", "\\xdead (2 bytes)", id="few-bytes"),
        pytest.param("\\x", "bytea", "0 bytes", id="no-bytes"),
        pytest.param("\\x" + "00" * 2048, "bytea", "2,048 bytes, sha256 e5a00aa9991a", id="many-bytes"),
        pytest.param("", "text", '""', id="empty"),
        pytest.param("null", "text", '"null"', id="a-text-that-reads-null"),
        pytest.param("NULL", "text", '"NULL"', id="a-text-that-reads-NULL"),
        pytest.param('""', "text", '""""', id="two-quotes-are-not-empty"),
        pytest.param(" a", "text", '" a"', id="blank-in-front"),
        pytest.param("null", "jsonb", "null (JSON)", id="json-null"),
        pytest.param("12.50", "numeric(10,2)", "12.50", id="number"),
        pytest.param("a\tb\nc", "text", "a⇥b↵c", id="lines"),
    ],
)
def test_a_value_is_shown_as_people_write_it(value: str, type_: str, text: str) -> None:
    assert readable(value, type_).text == text


def test_null_is_told_apart_from_every_text() -> None:
    null = readable(None, "text")
    assert (null.text, null.kind) == ("null", "null")
    texts = [readable(value, "text") for value in (*HOSTILE, "null", "NULL", "", '"null"')]
    assert all(one.kind == "value" and one.text != "null" for one in texts)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "⟨ESC⟩[31mred"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("\x7f\x00", "⟨DEL⟩⟨NUL⟩"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("a\u00a0b", "a⟨U+00A0⟩b"),
        ("\udcff", "⟨U+DCFF⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("a\ufe0f", "a⟨U+FE0F⟩"),
        # What belongs to a script or an emoji stays what it is.
        ("\U0001f469\u200d\U0001f52c \u2764\ufe0f", "\U0001f469\u200d\U0001f52c \u2764\ufe0f"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("שלום", "שלום"),
        ("Zoë naïve 東京", "Zoë naïve 東京"),
        # A joiner that joins nothing hides.
        ("a\u200db", "a⟨U+200D⟩b"),
        ("é\u200d", "é⟨U+200D⟩"),
    ],
)
def test_what_is_not_seen_or_does_something_is_shown_as_a_sign(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_no_text_whatever_leaves_a_control_or_a_direction_in_what_is_shown(text: str) -> None:
    shown = visible(text)
    allowed = {"\u200c", "\u200d"}
    hidden = [
        c for c in shown if c not in allowed and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]
    assert hidden == []
    assert "\n" not in shown
    shown.encode()


@given(st.text(max_size=200), st.text(max_size=200), st.integers(min_value=10, max_value=80))
def test_a_pair_that_differs_never_looks_alike_unless_it_is_cut(old: str, new: str, chars: int) -> None:
    one, other = readable_pair(old, new, "text")
    assert (one.text == other.text) == (visible(old) == visible(new))
    short, _ = readable_pair(old, new, "text", chars=chars)
    assert short.cut or short.text == one.text


def test_a_long_text_is_shown_around_the_place_that_differs() -> None:
    old = "x " * 500 + "the brown fox" + " y" * 500
    new = "x " * 500 + "the red fox" + " y" * 500
    was, now = readable_pair(old, new, "text", chars=40)
    assert (was.marked, now.marked) == ("brown", "red")
    assert was.text.startswith("…")
    assert was.text.endswith("…")
    assert "the brown fox y" in was.text
    assert "the red fox y" in now.text
    assert was.cut
    assert len(was.text) <= 42


def test_a_text_that_differs_over_a_long_way_is_cut_in_it() -> None:
    was, now = readable_pair("a" * 30 + " " + "b" * 900, "a" * 30 + " " + "c" * 900, "text", chars=60)
    assert was.text == "…" + "a" * 13 + " " + "b" * 45 + "…"
    assert now.marked == "c" * 45 + "…"


def test_short_values_are_marked_whole() -> None:
    was, now = readable_pair("25099", "25100", "bigint")
    assert (was.marked, now.marked) == ("25099", "25100")


def test_a_difference_that_the_readable_form_would_hide_is_shown_exactly() -> None:
    was, now = readable_pair(
        "2026-12-03 14:30:05.1+00", "2026-12-03 14:30:05.2+00", "timestamp with time zone"
    )
    assert (was.text, now.text) == ("2026-12-03 14:30:05.1+00", "2026-12-03 14:30:05.2+00")
    bare, quoted = readable_pair("a", "a ", "text")
    assert (bare.text, quoted.text) == ("a", '"a "')


def test_megabytes_are_compared_and_cut() -> None:
    old = "lorem ipsum " * 900_000
    new = old[:6_000_000] + "HERE" + old[6_000_000:]
    was, now = readable_pair(old, new, "text", chars=80)
    assert "HERE" in now.marked
    assert len(was.text) + len(now.text) < 200
    assert readable("\\x" + "ab" * 5_000_000, "bytea").text.startswith("5,000,000 bytes, sha256 ")
    assert differing_parts('{"a": "' + old + '"}', '{"a": 1}') == ()


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        pytest.param('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', [("b", "2", "3")], id="member"),
        pytest.param('{"a": {"b": {"c": 1}}}', '{"a": {"b": {"c": 2}}}', [("a.b.c", "1", "2")], id="deep"),
        pytest.param('{"a": 1}', '{"b": 1}', [("a", "1", None), ("b", None, "1")], id="gone-and-new"),
        pytest.param("[1, 2, 3]", "[1, 3]", [("[1]", "2", None)], id="item-taken-out"),
        pytest.param("[1, 2]", "[0, 1, 2]", [("[0]", None, "0")], id="item-put-in-front"),
        pytest.param('[{"a": 1}]', '[{"a": 2}]', [("[0].a", "1", "2")], id="within-an-item"),
        pytest.param('{"a": 1.0}', '{"a": 1.00}', [], id="equal-numbers"),
        pytest.param('{"a": 1}', '{"a": true}', [("a", "1", "true")], id="one-is-not-true"),
        pytest.param('{"a": null}', "{}", [("a", "null", None)], id="null-is-not-absent"),
        pytest.param('{"a b": 1}', '{"a b": 2}', [('["a b"]', "1", "2")], id="odd-name"),
        pytest.param(
            '{"n": 12345678901234567890123}', '{"n": 12345678901234567890124}',
            [("n", "12345678901234567890123", "12345678901234567890124")], id="every-digit",
        ),
        pytest.param("1", "2", [], id="no-parts"),
        pytest.param("{", "{}", [], id="no-json"),
        pytest.param("[" * 9000 + "]" * 9000, "[]", [], id="too-deep"),
        pytest.param(None, "{}", [], id="null"),
    ],
)  # fmt: skip
def test_of_a_document_the_parts_that_differ_are_shown(
    old: str | None, new: str | None, parts: list[tuple[str, str | None, str | None]]
) -> None:
    assert differing_parts(old, new) == tuple(Part(path=path, old=was, new=now) for path, was, now in parts)
