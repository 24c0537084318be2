"""docs/suites.md explains every key of suite.yaml, and links to pages that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redteam_harness.launch.suite import CaseSpec, SeedSpec, SuiteSpec
from redteam_personas import CastSpec

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "suites.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("model", "heading"),
    [
        pytest.param(SuiteSpec, "## `suite.yaml`", id="suite"),
        pytest.param(SeedSpec, "### `seed`", id="seed"),
        pytest.param(CastSpec, "### `personas`", id="personas"),
        pytest.param(CaseSpec, "### `cases`", id="cases"),
    ],
)
def test_every_key_has_a_row_in_the_table_of_its_part(model: type, heading: str) -> None:
    part = PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    assert set(model.model_fields) == set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))  # type: ignore[attr-defined]


def test_every_page_that_it_links_to_is_there() -> None:
    assert [name for name in re.findall(r"\]\(([\w-]+\.md)", PAGE) if not (DOCS / name).exists()] == []
