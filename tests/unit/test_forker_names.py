"""Names are short, opaque and never cut; an identifier or a constant is quoted in one place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redteam_forker
from redteam_forker.names import (
    build_name,
    fork_name,
    instance_tag,
    is_own,
    quote_ident,
    quote_literal,
    template_name,
)
from redteam_sdk.errors import InternalError

_HASH = "ab" * 32
hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(identity=st.text(), digest=hashes)
def test_every_name_is_ours_and_fits(identity: str, digest: str) -> None:
    instance = instance_tag(identity)
    parts = [template_name(instance, digest, part) for part in ("template", "baseline", "app")]
    names = [*parts, fork_name(instance, digest), build_name(instance, digest)]
    assert all(is_own(name) and len(name.encode()) <= 40 for name in names)
    assert len(set(names)) == 5


def test_forks_of_one_template_have_different_names() -> None:
    assert len({fork_name("abcd", _HASH) for _ in range(1000)}) == 1000


def test_other_part_of_a_template_is_a_bug() -> None:
    with pytest.raises(InternalError):
        template_name("abcd", _HASH, "draft")


@pytest.mark.parametrize(
    "name",
    [
        "postgres",
        "rt_admin",
        "rt_abcd_efghijkl_mnopqrstuvwxyz23x",
        "rt_abcd_efghijkl_mnopqrstuvwxyz2",
        "rtxabcd_efghijkl_template",
        "rt_abcd_efghijkl_template\n",
        "RT_abcd_efghijkl_template",
        "x rt_abcd_efghijkl_template",
        "rt_abc1_efghijkl_template",
    ],
)
def test_foreign_names_are_not_ours(name: str) -> None:
    assert not is_own(name)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=15))
def test_quoted_identifier_reads_back(name: str) -> None:
    quoted = quote_ident(name)
    assert (quoted[0], quoted[-1]) == ('"', '"')
    assert quoted[1:-1].replace('""', '"') == name
    assert quoted[1:-1].count('"') % 2 == 0


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "é" * 32], ids=["empty", "nul", "long", "long-bytes"])
def test_impossible_identifier_is_a_bug(name: str) -> None:
    with pytest.raises(InternalError):
        quote_ident(name)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("", "''"), ("it's", "'it''s'"), ("a\\b", " E'a\\\\b'"), ("\\'; --", " E'\\\\''; --'")],
)
def test_quoted_constant(text: str, quoted: str) -> None:
    assert quote_literal(text) == quoted


def test_public_names_are_there_and_sorted() -> None:
    assert redteam_forker.__all__ == sorted(redteam_forker.__all__)
    assert all(hasattr(redteam_forker, name) for name in redteam_forker.__all__)
