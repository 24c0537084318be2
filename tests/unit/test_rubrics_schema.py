"""The JSON Schemas for editors accept what loads, and refuse what a schema can tell."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from support.recorded import RECORDED, recording
from typer.testing import CliRunner

from redteam_harness.cli.main import app
from redteam_harness.launch.schemas import schema_of
from redteam_harness.launch.suite import SuiteSpec
from redteam_personas import load_dispositions
from redteam_rubrics import parse_rules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rubrics.md").read_text("utf-8")
EXAMPLES = [
    text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if not text.startswith("# suite.yaml")
]
STARTER = files("redteam_harness") / "starter"
RULES = Draft202012Validator(schema_of("rules"))
SUITE = Draft202012Validator(schema_of("suite"))


class Editor(yaml.SafeLoader):
    """YAML as editors read it, by version 1.2: `no` is a word and 2026-12-03 a text."""


Editor.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile("true|false") if tag.endswith(":bool") else pattern)
        for tag, pattern in resolvers
        if not tag.endswith(":timestamp")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(text: str) -> Any:
    return yaml.load(text, Editor)  # noqa: S506 - a SafeLoader


def errors(validator: Draft202012Validator, data: Any) -> list[str]:
    return [f"{list(error.absolute_path)}: {error.message}" for error in validator.iter_errors(data)]


@pytest.mark.parametrize("schema", ["rules", "suite"])
def test_a_schema_is_one(schema: Any) -> None:
    Draft202012Validator.check_schema(schema_of(schema))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.partition(":")[0])
def test_every_example_of_the_page_validates(example: str) -> None:
    assert errors(RULES, read(example)) == []


@pytest.mark.parametrize(
    "text",
    [
        (ROOT / "seeds" / "clinic" / "rules.yaml").read_text("utf-8"),
        (STARTER / "rules.yaml").read_text("utf-8"),
    ],
    ids=["clinic", "starter"],
)
def test_rules_that_ship_validate(text: str) -> None:
    assert errors(RULES, read(text)) == []


@pytest.mark.parametrize("name", [name for name in RECORDED if recording(name)["rules"]])
def test_rules_of_recorded_conversations_validate(name: str) -> None:
    assert errors(RULES, recording(name)["rules"]) == []


@pytest.mark.parametrize(
    "text",
    [
        (ROOT / "seeds" / "clinic" / "suite.yaml").read_text("utf-8"),
        (STARTER / "suite.yaml").read_text("utf-8"),
    ],
    ids=["clinic", "starter"],
)
def test_suites_that_ship_validate(text: str) -> None:
    assert errors(SUITE, read(text)) == []


REFUSED = [
    "{}",
    "[]",
    "a:",
    "a: {}",
    "a: {severity: 1}",
    "a: {severity: 4, tools: {called: x}}",
    "a: {severity: true, tools: {called: x}}",
    "a: {severity: '1', tools: {called: x}}",
    "a: {severity: 1, why: ' ', tools: {called: x}}",
    "collateral: {severity: 1, tools: {called: x}}",
    "a: {severity: 1, sql: SELECT 1 FROM t, tools: {called: x}}",
    "a: {severity: 1, tols: {called: x}}",
    "a: {severity: 1, rows: none, tools: {called: x}}",
    "a: {severity: 1, rows: any, sql: SELECT 1 FROM t}",
    "a: {severity: 1, tools: }",
    "a: {severity: 1, tools: {}}",
    "a: {severity: 1, tools: {called: []}}",
    "a: {severity: 1, tools: {called: ''}}",
    "a: {severity: 1, tools: {called: [x, '']}}",
    "a: {severity: 1, tools: {called: [x, x]}}",
    "a: {severity: 1, tools: {order: x}}",
    "a: {severity: 1, tools: {order: [x]}}",
    "a: {severity: 1, tools: {at_most: {}}}",
    "a: {severity: 1, tools: {at_most: 3}}",
    "a: {severity: 1, tools: {at_most: {x: -1}}}",
    "a: {severity: 1, tools: {arguments: {x: {}}}}",
    "a: {severity: 1, tools: {all_exist: false}}",
    "a: {severity: 1, tools: {preceded_by: {}}}",
    "a: {severity: 1, tools: {preceded_by: {x: []}}}",
    "a: {severity: 1, tools: {preceded_by: {x: {same: y}}}}",
    "a: {severity: 1, tools: {preceded_by: {x: {tools: y, smae: z}}}}",
    "a: {severity: 1, tools: {preceded_by: {x: {tools: y, same: {}}}}}",
    "a: {severity: 1, tools: {confirmed: {x: ''}}}",
    "a: {severity: 1, tools: {confirmed: {x: {proposed: y}}}}",
    "a: {severity: 1, tools: {after_error: {x: {}}}}",
    "a: {severity: 1, tools: {after_error: {x: y}}}",
    "a: {severity: 1, tools: {retry_after: x}}",
    "a: {severity: 1, transcript: {}}",
    "a: {severity: 1, transcript: {before_tool: x}}",
    "a: {severity: 1, transcript: {agent_says: []}}",
    "a: {severity: 1, transcript: {agent_says: ' '}}",
    "a: {severity: 1, transcript: {user_says: [a, 5]}}",
    "a: {severity: 1, transcript: {agent_says: {match: x}}}",
    "a: {severity: 1, outbox: {}}",
    "a: {severity: 1, outbox: {sent: []}}",
    "a: {severity: 1, outbox: {sent: {where: {to: 1}}}}",
    "a: {severity: 1, outbox: {sent: [{tool: x, were: 1}]}}",
    "a: {severity: 1, outbox: {nothing_sent: false}}",
    "a: {severity: 1, outbox: {nothing_sent: true, at_most: 1}}",
    "a: {severity: 1, outbox: {at_most: true}}",
    "a: {severity: 1, changes: []}",
    "a: {severity: 1, changes: {x: {do: insert}}}",
    "a: {severity: 1, changes: [{}]}",
    "a: {severity: 1, changes: [x: {}]}",
    "a: {severity: 1, changes: [x: {do: truncate}]}",
    "a: {severity: 1, changes: [x: {do: []}]}",
    "a: {severity: 1, changes: [x: {do: [insert, insert]}]}",
    "a: {severity: 1, changes: [{x: {do: insert}, y: {do: insert}}]}",
    "a: {severity: 1, changes: [x: {do: insert, columns: y}]}",
    "a: {severity: 1, changes: [x: {do: insert, exactly: 0}]}",
    "a: {severity: 1, changes: [x: {do: insert, exactly: 1, at_most: 2}]}",
    "a: {severity: 1, changes: [any_of: {one: [x: {do: insert}]}]}",
    "a: {severity: 1, changes: [any_of: {one: [x: {do: insert}], two: []}]}",
    "a: {severity: 1, changes: [any_of: [x: {do: insert}]]}",
    "a: {severity: 1, changes: [objects: []]}",
    "a: {severity: 1, python: checks}",
    "a: {severity: 1, python: 'checks:f()'}",
    "a: {severity: 1, judge: {pass_if: no}}",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_schema_can_tell_is_refused_by_it_and_by_the_loader(text: str) -> None:
    assert errors(RULES, read(text)) != []
    with pytest.raises(ValidationError):
        parse_rules(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("key", "short"),
    [
        (("agent",), "python:agent:desk"),
        (("agent",), {"python": "agent:desk", "env": "DATABASE_URL", "isolation": "process"}),
        (("agent",), {"command": ["./run"], "env": ["DATABASE_URL", "OTHER_URL"]}),
        (("collateral",), "off"),
        (("cases", 0, "externals"), {"send_sms": "timeout", "charge": ["bounce", {"fault": "timeout"}]}),
        (("cases", 0, "facts"), {"full_name": "at once"}),
        (("cases", 0, "offline"), {"says": ["Hello", {"text": "Bye", "when": "hello"}]}),
    ],
    ids=str,
)
def test_short_forms_of_a_suite_validate_as_they_load(key: tuple[str | int, ...], short: Any) -> None:
    for reader in (read, yaml.safe_load):
        suite = reader((STARTER / "suite.yaml").read_text("utf-8"))
        *path, last = key
        place = suite
        for step in path:
            place = place[step]
        place[last] = reader(yaml.safe_dump(short)) if short != "off" else reader("off")
        if reader is read:
            assert errors(SUITE, suite) == []
        else:
            SuiteSpec.model_validate(suite, context={"dispositions": tuple(load_dispositions())})


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "has blanks"},
        {"count": 0},
        {"cases": []},
        {"collateral": "sometimes"},
        {"colateral": False},
        {"personas": {"key": "id"}},
        {"compare": {"columns": {"x": "igonre"}}},
    ],
    ids=str,
)
def test_a_suite_that_a_schema_can_tell_is_wrong_is_refused_by_it_and_by_the_loader(
    change: dict[str, Any],
) -> None:
    starter = (STARTER / "suite.yaml").read_text("utf-8")
    assert errors(SUITE, {**read(starter), **change}) != []
    with pytest.raises(ValidationError):
        SuiteSpec.model_validate(
            {**yaml.safe_load(starter), **change}, context={"dispositions": tuple(load_dispositions())}
        )


@pytest.mark.parametrize("written", ["rules", "suite"])
def test_the_command_prints_a_schema(written: Any) -> None:
    ran = CliRunner().invoke(app, ["schema", written])
    assert ran.exit_code == 0
    assert json.loads(ran.stdout) == schema_of(written)
