"""The README is what a stranger believes first: what it shows is what happens."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from support.cli import ROOT
from support.terminal import shown_at_a_terminal

if TYPE_CHECKING:
    from pathlib import Path

README = (ROOT / "README.md").read_text(encoding="utf-8")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What may differ from one run to the next: the run's name, times and dates, and whether it is the first.
_VARIES = [
    (re.compile(r"\.redteam/runs/\w+|/\S+/runs/\w+"), "RUN"),
    (re.compile(r"built in \d+\.\d s\b|kept from before"), "READY"),
    (re.compile(r"\b\d:\d\d\b"), "T"),
    (re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?(\+\d\d)?)?"), "DATE"),
    (re.compile(r", dates moved by -?\d+ weeks"), ""),
    (re.compile(r"\s+"), " "),
]


def _normal(line: str) -> str:
    for pattern, word in _VARIES:
        line = pattern.sub(word, line)
    return line.strip()


def _on_a_terminal(arguments: list[str], cwd: Path) -> list[str]:
    """What a person sees in the end: the lines that a launch with failures wrote to a terminal."""
    code, written = shown_at_a_terminal(*arguments, cwd=cwd, TERM="xterm", COLUMNS="200", LINES="60")
    assert code == 1
    return _ANSI.sub("", written).replace("\r", "\n").splitlines()


def test_the_readme_shows_what_a_launch_really_prints(tmp_path: Path) -> None:
    block = README.split("```console\n$ scripts/launch\n")[1].split("```")[0]
    promised = [_normal(line) for line in block.splitlines() if line.strip() not in ("", "...")]
    arguments = [
        "launch",
        str(ROOT / "seeds" / "clinic"),
        "--parallel",
        "20",
        "--out",
        str(tmp_path / "runs"),
    ]
    printed = iter([_normal(line) for line in _on_a_terminal(arguments, tmp_path)])
    missing = [line for line in promised if line not in printed]  # `in` moves on: the order must hold, too
    assert missing == []


def test_the_launch_script_runs_what_the_readme_says() -> None:
    script = (ROOT / "scripts" / "launch").read_text()
    assert 'exec .venv/bin/redteam launch seeds/clinic --parallel 20 "$@"' in script


def test_the_readmes_python_parses_and_imports_names_that_there_are() -> None:
    import redteam_sdk

    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (imported,) = [node for node in ast.parse(block).body if isinstance(node, ast.ImportFrom)]
    assert imported.module == "redteam_sdk"
    assert [name.name for name in imported.names if name.name not in redteam_sdk.__all__] == []


def test_every_link_of_every_document_leads_somewhere() -> None:
    dangling = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if not target.startswith("http") and not (path.parent / target).exists()
    ]
    assert dangling == []
