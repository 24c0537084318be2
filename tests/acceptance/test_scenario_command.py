"""`redteam scenario` as a person or a pipeline runs it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.cli import redteam

if TYPE_CHECKING:
    from pathlib import Path

AGENT = """
from redteam_sdk import tool

@tool
def find(name): ...

def answer(message, session):
    return f"{find(message)}"
"""
SCENARIO = """
scenario: {name}
agent: desk:answer
steps: [{{say: {say}, expected: found}}]
mocks: [{{tool: find, arguments: {{name: Ada}}, answer: found}}]
scorer: {scorer}
"""


def scenario(folder: Path, name: str, *, say: str = "Ada", scorer: str = "exact") -> Path:
    (folder / "desk.py").write_text(AGENT)
    path = folder / f"{name}.yaml"
    path.write_text(SCENARIO.format(name=name, say=say, scorer=scorer))
    return path


def test_the_exit_code_says_how_it_came_out(tmp_path: Path) -> None:
    good = scenario(tmp_path, "good")
    done = redteam("scenario", good, "--out", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("passed  good  1 of 1 step")
    kept = json.loads((tmp_path / "kept" / "good.json").read_text())
    assert kept["steps"][0]["output"] == "found"
    assert kept["confined_by"]["landlock"] >= 1
    bad = redteam("scenario", good, scenario(tmp_path, "bad", say="Bo"), "--json")
    assert bad.returncode == 1
    first, second = json.loads(bad.stdout)
    assert (first["outcome"], second["outcome"]) == ("passed", "failed")
    assert (first["hash"], second["steps"][0]["errors"][0]["resource"]) == (kept["hash"], "find")
    absent = redteam("scenario", scenario(tmp_path, "absent", scorer="llm"))
    assert absent.returncode == 3
    assert "not scored" in absent.stdout


def test_a_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    path = scenario(tmp_path, "wrong")
    path.write_text(path.read_text() + "colour: red\n")
    done = redteam("scenario", path)
    assert done.returncode == 2
    assert "wrong.yaml:7" in done.stderr
    assert redteam("scenario", tmp_path / "absent.yaml").returncode == 2
