"""docs/pitfalls.md names every pitfall, and what it says of each is there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_TESTS = _ROOT / "tests"
_CODE = _ROOT / "forker/redteam_forker"
_ROW = re.compile(r"^\| (P\d\d) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
_TEST = re.compile(r"`((?:unit|integration|acceptance)/\w+\.py)::(\w+)`")
_FILE = re.compile(r"`([\w/]+\.(?:py|sql))`")
_NOT_YET = re.compile(r"not yet: (?:changes|lifecycle|seeds|servers|tools): \S")


def table() -> list[tuple[str, str, str]]:
    return _ROW.findall((_ROOT / "docs/pitfalls.md").read_text(encoding="utf-8"))


@functools.cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")}


def test_every_pitfall_is_listed_once_and_in_order() -> None:
    assert [number for number, _, _ in table()] == [f"P{number:02}" for number in range(1, 97)]


@pytest.mark.parametrize(("number", "guarantee", "held_by"), table(), ids=[row[0] for row in table()])
def test_what_holds_a_pitfall_is_there(number: str, guarantee: str, held_by: str) -> None:
    tests = _TEST.findall(held_by)
    if not tests:
        assert guarantee.startswith("does not apply: ") or _NOT_YET.match(guarantee)
        assert held_by == ""
        return
    assert not guarantee.startswith(("does not apply", "not yet"))
    files = [_TESTS / file for file, _ in tests] + [_CODE / file for file in _FILE.findall(held_by)]
    missing = [f"{file}::{name}" for file, name in tests if name not in names_in(_TESTS / file)]
    assert missing == []
    assert any(re.search(rf"\b{number}\b", file.read_text(encoding="utf-8")) for file in files)
