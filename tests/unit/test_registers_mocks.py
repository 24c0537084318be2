"""fidelity.yaml: what is refused, what is stale, and which verdicts a gap touches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.runs import finished, summary, verdict

from redteam_harness.agents.code import AgentCode, MarkedExternal
from redteam_harness.launch.suite import load_suite
from redteam_harness.registers.mocks import load_fidelity, mock_facts, table_of, unknown_tools
from redteam_harness.registers.words import draft_row
from redteam_harness.report.data import report_data
from redteam_harness.report.mocks import called_externals, mock_counts, mock_lines
from redteam_sdk.errors import UsageError

ROOT = Path(__file__).parents[2]
ROW = """\
mocks:
  - tool: send
    real: It may refuse.
    mock: It never does.
    gap: The mock takes what is refused.
    direction: {direction}
    rules: {rules}
    reviewed: {{by: Ana, date: 2026-11-30}}
"""
AGENT = """\
from fakes import box
from redteam_sdk import external

def unrelated():
    return 1

@external(mock=box.put)
def send(to):
    '''Send it.'''
    raise RuntimeError
"""
FAKES = """\
LIMIT = 10

class Box:
    def put(self, to):
        return LIMIT

box = Box()
"""


def write(folder: Path, text: str) -> Path:
    (folder / "fidelity.yaml").write_text(text)
    (folder / "agent.py").write_text(AGENT)
    (folder / "fakes.py").write_text(FAKES)
    return folder


def code(folder: Path, name: str = "send", *, mocked: bool = True, gap: str | None = None) -> AgentCode:
    line = AGENT.splitlines().index("@external(mock=box.put)") + 1
    one = MarkedExternal(
        name=name, file=str(folder.absolute() / "agent.py"), line=line, mocked=mocked, gap=gap
    )
    return AgentCode(tools=(), externals=(one,))


def row(direction: str = "more-lenient", rules: str = "all", more: str = "") -> str:
    return ROW.format(direction=direction, rules=rules) + more


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (row(direction="softer"), 6, "direction"),
        (row(rules="[nobodys]"), 7, "rule 'nobodys'"),
        (row(rules="[]"), 7, "rules"),
        (row(more="    reconciliation: {result: confirmed}\n"), 9, "needs `by` and `date`"),
        (row(more="    gab: typo\n"), 9, "there is no such key"),
        (row(more="    code: latest\n"), 9, "code"),
        ("mocks:\n  - tool: send\n", 2, "this key is required"),
    ],
)
def test_a_mistake_in_the_register_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    folder = write(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        load_fidelity(folder, ["polite"])
    assert f"fidelity.yaml:{line}: " in str(refused.value)
    assert said in str(refused.value)


def test_a_suite_without_a_register_has_none(tmp_path: Path) -> None:
    assert load_fidelity(tmp_path, ["polite"]) is None


def test_a_row_of_a_tool_that_is_not_there_or_has_no_mock_is_named_with_its_line(tmp_path: Path) -> None:
    fidelity = load_fidelity(write(tmp_path, row()), [])
    assert unknown_tools(fidelity, code(tmp_path)) == []
    (gone,) = unknown_tools(fidelity, code(tmp_path, "post"))
    assert gone.place.endswith("fidelity.yaml:2")
    assert "no external tool 'send'" in gone.message
    (bare,) = unknown_tools(fidelity, code(tmp_path, mocked=False))
    assert "has no mock" in bare.message


@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        pytest.param("agent.py", "return 1", "return 2", False, id="another function"),
        pytest.param("fakes.py", "return LIMIT", "return  LIMIT  # as agreed", False, id="layout"),
        pytest.param("agent.py", "raise RuntimeError", "raise ValueError", True, id="the tool"),
        pytest.param("fakes.py", "return LIMIT", "return None", True, id="its mock"),
        pytest.param("fakes.py", "LIMIT = 10", "LIMIT = 11", True, id="what the mock rests on"),
    ],
)
def test_a_pinned_row_is_stale_once_tool_or_mock_is_another(
    tmp_path: Path, file: str, old: str, new: str, stale: bool
) -> None:
    write(tmp_path, row())
    (entry,) = table_of(None, code(tmp_path), tmp_path)
    assert entry.code is not None
    assert f"code: '{entry.code}'" in draft_row(entry)
    write(tmp_path, row(more=f"    code: '{entry.code}'\n"))
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new))
    (now,) = table_of(load_fidelity(tmp_path, []), code(tmp_path), tmp_path)
    assert [was for _, was in now.rows] == [stale]


def held(name: str, status: str, *externals: str) -> Any:
    verdicts = [verdict("texted", status), verdict("polite", "pass", severity=3)]
    return finished(name, outcome=status, verdicts=verdicts, externals=externals)


def test_a_lenient_gap_stands_beside_the_verdicts_that_it_touches_and_no_others(tmp_path: Path) -> None:
    fidelity = load_fidelity(write(tmp_path, row(rules="[texted]")), ["texted", "polite"])
    run = summary([held("c001", "pass", "send"), held("c002", "fail", "send"), held("c003", "pass")])
    mocks = mock_counts(
        mock_facts(fidelity, code(tmp_path), tmp_path),
        ((one.externals, one.verdicts) for one in run.finished),
    )
    assert mocks is not None
    assert mocks["tools"][0]["gaps"][0]["touches"] == [{"rule": "texted", "pass": 1, "fail": 1, "unclear": 0}]
    (line,) = mock_lines(mocks)
    assert line == (
        "send: more lenient: The mock takes what is refused. (no evidence); "
        "touches texted (1 passed, 1 failed)"
    )


@pytest.mark.parametrize(
    ("direction", "result", "lenient"),
    [("more-lenient", "confirmed", 1), ("more-lenient", "refuted", 0), ("stricter", "confirmed", 0)],
)
def test_the_rules_of_the_report_name_lenient_mocks_only(
    tmp_path: Path, direction: str, result: str, lenient: int
) -> None:
    signed = f"    reconciliation: {{result: {result}, by: Ben, date: 2026-12-01}}\n"
    fidelity = load_fidelity(write(tmp_path, row(direction, "[texted]", signed)), ["texted"])
    facts = mock_facts(fidelity, code(tmp_path), tmp_path)
    held_one = held("c001", "pass", "send")
    run = summary([held_one], mocks=facts)
    rules = {one["rule"]: one["lenient_mocks"] for one in report_data(run)["rules"]}
    assert [gap["passes"] for gap in rules["texted"]] == [1] * lenient
    assert rules["polite"] == []


def test_a_mock_without_a_row_is_one_at_which_nobody_looked_whatever_the_code_says(tmp_path: Path) -> None:
    facts = mock_facts(None, code(tmp_path, gap="It may be late."), tmp_path)
    mocks = mock_counts(facts, [(("send",), ())])
    assert mocks is not None
    assert mocks["nobody_looked"] == ["send"]
    assert mock_lines(mocks) == ["nobody looked at how these differ from the real thing: send (called in 1)"]


def test_an_external_tool_that_only_the_trace_knows_is_one_at_which_nobody_looked() -> None:
    events = [{"kind": "external", "name": "charge"}, {"kind": "external", "name": "charge"}]
    mocks = mock_counts(None, [(called_externals(events), ())])
    assert mocks is not None
    assert (mocks["known"], mocks["nobody_looked"]) == (False, ["charge"])
    assert mock_counts(None, [((), ())]) is None


def test_the_example_of_the_page_is_a_register_of_the_clinic(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "fidelity.md").read_text()
    (example,) = re.findall(r"```yaml\n(# fidelity\.yaml\n[\s\S]*?)```", page)
    (tmp_path / "fidelity.yaml").write_text(example)
    fidelity = load_fidelity(tmp_path, load_suite(ROOT / "seeds" / "clinic").rules)
    assert fidelity is not None
    assert [one.tool for one in fidelity.rows] == ["send_sms"]
