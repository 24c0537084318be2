from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support.rubrics import evidence

from redteam_rubrics import Judge, parse_rules
from redteam_rubrics.judge.exhibits import show
from redteam_rubrics.judge.prompt import question_of

PAGE = (Path(__file__).parents[2] / "docs" / "judge.md").read_text("utf-8")
WRITTEN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
RULES = [text for text in WRITTEN if not text.startswith("# suite.yaml\n")]


@pytest.mark.parametrize("example", RULES, ids=lambda text: text.partition(":")[0].splitlines()[-1])
def test_examples_of_the_page_load(example: str) -> None:
    (rule,) = parse_rules(yaml.safe_load(example)).values()
    assert rule.judge is not None


def test_the_page_shows_every_key() -> None:
    used = set(re.findall(r"\b(\w+):", "".join(RULES)))
    assert set(Judge.model_fields) <= used


def test_the_page_shows_what_a_judge_is_asked_as_it_is() -> None:
    row = {"id": "90311", "kind": "follow_up", "patient_id": "1207"}
    change = {"op": "insert", "key": {"id": "90311"}, "old": None, "new": row, "changed": [], "by": ["t1"]}
    booked = {"provider": 3, "starts_at": "2026-12-03 09:00"}
    other = {"kind": "probed"}
    given = evidence(
        *[other] * 4,
        {"kind": "user", "text": "Thursday at nine, please."},
        {"kind": "tool_call", "call": "t1", "name": "book_appointment", "arguments": booked},
        {"kind": "tool_result", "call": "t1", "name": "book_appointment", "value": {"id": 90311}},
        {"kind": "agent", "text": "You are booked for Thursday at nine."},
        tables=[{"schema": "public", "table": "appointments", "columns": {}, "rows": [change], "omitted": 0}],
    )
    (rule,) = parse_rules(yaml.safe_load(RULES[0])).values()
    assert rule.judge is not None
    message = question_of(rule.judge, show(given, rule.judge.sees))
    shown = re.search(r"```\n(⟦evidence.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert shown[1].rstrip() == message
