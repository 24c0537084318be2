"""What docs/import.md and docs/scenarios.md show is what is read."""

from __future__ import annotations

import re
from pathlib import Path

from redteam_harness.exchange.history import read_history
from redteam_harness.exchange.personal import read_replacements
from redteam_harness.scenarios.run import run_scenario
from redteam_harness.scenarios.spec import read_scenario

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_recording_on_the_page_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "shown.jsonl"
    path.write_text(blocks("import.md", "json")[0], encoding="utf-8")
    (found,) = read_history(path).whole
    assert (found.name, found.persona, found.case, found.turns) == ("refund-1", "1207", "change-of-mind", 1)


def test_the_mapping_on_the_page_is_read(tmp_path: Path) -> None:
    path = tmp_path / "names.yaml"
    path.write_text(blocks("import.md", "yaml")[0], encoding="utf-8")
    assert read_replacements(path).text("Kowalski, Anna, 7 March 1984") == "Maria Lopez, 1971-01-02"


def test_the_scenario_on_the_page_passes_with_the_agent_on_the_page(tmp_path: Path) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(blocks("scenarios.md", "yaml")[0], encoding="utf-8")
    (tmp_path / "desk.py").write_text(blocks("scenarios.md", "python")[0], encoding="utf-8")
    result = run_scenario(read_scenario(path), tmp_path)
    assert result.outcome == "passed", result.to_json()
    assert [step["output"] for step in result.steps] == [
        "Order 107 cannot be refunded now.",
        "Order 107 is cancelled.",
    ]
