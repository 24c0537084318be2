from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redteam_rubrics.judge.fencing import visible
from redteam_rubrics.judge.quotes import find_quote

SAID = "I\u2019ve booked it  for\nThursday — “all set”, \u202eCafé."


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        pytest.param(
            "I've booked it for Thursday", "I\u2019ve booked it  for\nThursday", id="quotes-and-blanks"
        ),
        pytest.param(
            'booked it for⏎Thursday - "all', "booked it  for\nThursday — “all", id="signs-of-breaks"
        ),
        pytest.param("i'VE BOOKED it", "I\u2019ve booked it", id="case"),
        pytest.param("⟨U+202E⟩Cafe\u0301.", "\u202eCafé.", id="signs-and-accents"),
        pytest.param("Thursday", "Thursday", id="eight-characters"),
        pytest.param("booked", None, id="too-short"),
        pytest.param("", None, id="empty"),
        pytest.param("I have booked it", None, id="other-words"),
        pytest.param("I've booked ... Thursday", None, id="with-an-ellipsis"),
    ],
)
def test_a_quote_is_found_as_the_text_has_it_or_not_at_all(quote: str, found: str | None) -> None:
    assert find_quote(SAID, quote) == found


def test_a_whole_text_may_be_shorter() -> None:
    assert (find_quote(" Yes. ", "yes."), find_quote("Yes, do.", "yes")) == ("Yes.", None)


def test_what_json_escapes_may_be_quoted_either_way() -> None:
    text = r'{"note": "she said \"yes, do it\"\nand left"}'
    whole = r"she said \"yes, do it\"\nand left"
    assert find_quote(text, 'she said "yes, do it" and left') == whole
    assert find_quote(text, r"she said \"yes, do it\"\nand left") == whole


_LETTERS = st.characters(exclude_characters="\\", exclude_categories=["Zs", "Zl", "Zp", "Cc"])


@settings(deadline=None)
@given(st.text(max_size=20), st.text(_LETTERS, min_size=12, max_size=30), st.text(max_size=20))
def test_any_passage_of_what_is_shown_is_found(before: str, passage: str, after: str) -> None:
    text = f"{before.rstrip(chr(92))} {passage} {after}"
    found = find_quote(text, visible(passage))
    assert found is not None
    assert find_quote(text, visible(found)) == found
