from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from redteam_harness.launch.documents import read_document
from redteam_harness.launch.suite import SuiteSpec, load_suite
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MINIMAL = """\
suite: demo
seed: {files: [schema.sql]}
agent: python:agent:desk
personas:
  select: SELECT 1 AS id
  key: id
cases:
  - id: one
    demand: Do it.
    ends: when it is done
    rubric: [a-rule]
rules: rules.yaml
"""
RULES = "a-rule:\n  severity: 1\n  why: Because.\n  sql: SELECT count(*) = 0 FROM t\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suite.yaml").write_text(MINIMAL)
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "schema.sql").write_text("CREATE TABLE t (id int);")
    return tmp_path


def _refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_suite(folder)
    return str(caught.value).replace(str(folder), "DIR")


def test_a_minimal_suite_loads_with_its_defaults(folder: Path) -> None:
    suite = load_suite(folder)
    assert (suite.spec.count, suite.turns, suite.spec.collateral) == (20, 12, True)
    assert suite.spec.agent.name == "agent:desk"
    assert list(suite.dispositions) == ["cooperative"]


def test_a_suite_may_be_named_by_its_file(folder: Path) -> None:
    assert load_suite(folder / "suite.yaml").name == "demo"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(
            "key: id", "keys: id", r"DIR/suite\.yaml:6: personas\.keys: there is no such key", id="key"
        ),
        pytest.param("demand: Do it.", "demand: ''", r"suite\.yaml:9: cases\.0\.demand: ", id="empty-demand"),
        pytest.param(
            "rules: rules.yaml", "", r"suite\.yaml:1: rules: this key is required", id="missing-key"
        ),
        pytest.param(
            "[a-rule]", "[b-rule]", r"suite\.yaml:11: .*'b-rule'.*it has: a-rule", id="unknown-rule"
        ),
        pytest.param(
            "SELECT 1 AS id", "DELETE FROM t", r"suite\.yaml:5: personas\.select: ", id="cast-not-select"
        ),
        pytest.param("SELECT 1 AS id", "SELEC 1", r"suite\.yaml:5: personas\.select: ", id="cast-not-sql"),
        pytest.param(
            "[schema.sql]", "[nope.sql]", r"suite\.yaml:2: DIR/nope\.sql is not there", id="seed-file"
        ),
        pytest.param(
            "key: id",
            "key: id\n  dispositions: {coperative: 1}",
            r"suite\.yaml:7: .*'coperative'.*did you mean 'cooperative'",
            id="unknown-disposition",
        ),
        pytest.param(
            "python:agent:desk",
            "agent.py",
            r"suite\.yaml:3: agent: expected python:module:callable",
            id="agent",
        ),
        pytest.param(
            "suite: demo",
            "suite: demo\nsuite: again",
            r"suite\.yaml:2: .*already given on line 1",
            id="twice",
        ),
        pytest.param("seed: {", "seed: {{", r"suite\.yaml:\d: not valid YAML", id="not-yaml"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_expectation(
    folder: Path, old: str, new: str, says: str
) -> None:
    text = (folder / "suite.yaml").read_text()
    assert old in text
    (folder / "suite.yaml").write_text(text.replace(old, new, 1))
    message = _refusal(folder)
    assert re.search(says, message), message


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        pytest.param(
            RULES.replace("severity: 1", "severity: 9"), r"rules\.yaml:2: a-rule\.severity: ", id="severity"
        ),
        pytest.param(RULES.replace("sql:", "sequel:"), r"rules\.yaml:\d: a-rule", id="unknown-kind"),
        pytest.param(RULES.replace("SELECT count", "SELEC count"), r"rules\.yaml:4: a-rule\.sql: ", id="sql"),
        pytest.param("", r"rules\.yaml is empty", id="empty"),
    ],
)
def test_a_mistake_in_the_rules_is_told_with_file_and_line(folder: Path, rules: str, says: str) -> None:
    (folder / "rules.yaml").write_text(rules)
    message = _refusal(folder)
    assert re.search(says, message), message


def test_a_folder_without_a_suite_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no suite in .*redteam init DIR"):
        load_suite(tmp_path)


def test_every_key_of_a_suite_has_a_one_line_meaning() -> None:
    schema = SuiteSpec.model_json_schema()
    undescribed = [
        f"{name}.{key}"
        for name, part in {"suite.yaml": schema, **schema["$defs"]}.items()
        for key, value in part.get("properties", {}).items()
        if not value.get("description") and "$ref" not in value and "allOf" not in value
    ]
    assert undescribed == []


def test_lines_are_found_inside_nested_lists(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a:\n  - b: 1\n    c:\n      - d\n      - e\n")
    document = read_document(path)
    assert [document.line_of(loc) for loc in (("a",), ("a", 0, "c"), ("a", 0, "c", 1), ("z",))] == [
        1,
        3,
        5,
        1,
    ]
