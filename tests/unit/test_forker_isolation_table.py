"""docs/security.md lists every attempt that a test makes, and calls open exactly those that succeed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_NAME = re.compile(r"`(\w+)`")


def attempts() -> dict[str, bool]:
    """The tests of isolation, without their prefix: each with whether a case of it is expected to fail."""
    found = {}
    for file in sorted((_ROOT / "tests/integration").glob("test_forker_isolation*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_"):
                fails = any("xfail" in ast.unparse(each) for each in node.decorator_list)
                found[node.name.removeprefix("test_")] = fails
    return found


def listed(heading: str) -> set[str]:
    """The names in the last column of the table under a heading."""
    text = (_ROOT / "docs/security.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return {name for row in rows for name in _NAME.findall(row.rstrip(" |").rpartition("|")[2])}


def test_every_attempt_is_listed_and_every_listed_one_is_made() -> None:
    assert listed("Attempts") | listed("Open") == set(attempts())


def test_open_are_those_that_are_expected_to_fail() -> None:
    assert listed("Open") == {name for name, fails in attempts().items() if fails}
    assert listed("Attempts").isdisjoint(listed("Open"))
