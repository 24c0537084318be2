from __future__ import annotations

import dataclasses
import itertools
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.rubrics import NoWorld, evidence, rules

import redteam_rubrics
from redteam_harness.launch.suite import SuiteSpec
from redteam_personas import load_dispositions
from redteam_rubrics import Functions, Rule, grade, parse_rules, schema
from redteam_rubrics.relations import RELATIONS
from redteam_rubrics.rubric import KINDS
from redteam_rubrics.rules.outbox import Outbox
from redteam_rubrics.rules.permission import Entry, Permission
from redteam_rubrics.rules.precautions import Agreement, Check, Reads, Telling
from redteam_rubrics.rules.tools import Tools
from redteam_rubrics.rules.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text("utf-8")
WRITTEN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
OF_SUITE = [text for text in WRITTEN if text.startswith("# suite.yaml\n")]
EXAMPLES = [text for text in WRITTEN if text not in OF_SUITE]
STARTER = files("redteam_harness") / "starter" / "suite.yaml"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.partition(":")[0])
def test_examples_of_the_page_load(example: str) -> None:
    assert parse_rules(yaml.safe_load(example))


@pytest.mark.parametrize("example", OF_SUITE, ids=lambda text: text.splitlines()[1])
def test_examples_of_a_suite_load_as_part_of_one(example: str) -> None:
    starter = yaml.safe_load(STARTER.read_text("utf-8"))
    context = {"dispositions": tuple(load_dispositions())}
    spec = SuiteSpec.model_validate({**starter, **yaml.safe_load(example)}, context=context)
    assert spec.collateral == "writes" or spec.compare


def test_the_page_shows_every_policy() -> None:
    shown = "".join(OF_SUITE)
    assert [word for word in ("ignore", "any", "set", "tolerance") if word not in shown] == []
    assert {"columns", "types"} <= set(re.findall(r"\b(\w+):", shown))


def test_the_page_shows_every_kind() -> None:
    shown = {rule.kind for example in EXAMPLES for rule in parse_rules(yaml.safe_load(example)).values()}
    assert shown == set(KINDS)


@pytest.mark.parametrize(
    "model", [Rule, Permission, Entry, Transcript, Tools, Reads, Agreement, Telling, Check, Outbox]
)
def test_the_page_shows_every_key_in_an_example(model: type[Any]) -> None:
    used = set(re.findall(r"\b(\w+):", "".join(EXAMPLES)))
    assert set(model.model_fields) <= used


FUNCTIONS = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL)


async def test_the_function_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    ((module, code),) = FUNCTIONS
    (tmp_path / f"{module}.py").write_text(code)
    call = {"kind": "tool_call", "call": "a", "name": "refund", "arguments": {"amount": 50}}
    given = evidence(call, {"kind": "tool_result", "call": "a", "name": "refund"}, persona={"paid": "40"})
    text = "a: {severity: 1, python: 'checks:refund_follows_policy'}"
    for paid, said in (("40", ["50 was refunded, 40 was paid"]), ("50", [])):
        given = dataclasses.replace(given, persona={"paid": paid})
        (verdict,) = await grade(
            rules(text), given, NoWorld(), gate="off", functions=Functions(folder=tmp_path)
        )
        assert [finding.text for finding in verdict.findings] == said


def test_the_page_names_every_relation_and_column_of_the_evidence() -> None:
    shown = {
        relation: set(re.findall(r"`(\w+)`", columns))
        for relation, columns in re.findall(r"^\| `evidence\.(\w+)` \|[^|]*\|(.*)\|$", PAGE, re.MULTILINE)
    }
    assert shown == {relation: set(columns) for relation, columns in RELATIONS.items()}


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(child)


def test_every_key_of_the_schema_has_its_line() -> None:
    found = schema()
    missing = [
        (definition, name)
        for definition, model in found["$defs"].items()
        for name, value in model.get("properties", {}).items()
        if "description" not in value
    ]
    assert missing == []


def test_the_schema_allows_no_null_and_one_body_only() -> None:
    found = schema()
    assert not [node for node in nodes(found) if node.get("type") == "null"]
    bodies = {"oneOf": found["$defs"]["Rule"]["oneOf"]}
    allowed = [
        given
        for size in range(len(KINDS) + 1)
        for given in itertools.combinations(KINDS, size)
        if Draft202012Validator(bodies).is_valid(dict.fromkeys(given, ""))
    ]
    # One body, or a judge beside one.
    assert allowed == [(kind,) for kind in KINDS] + [(kind, "judge") for kind in KINDS if kind != "judge"]
    assert found["$defs"]["Entry"]["maxProperties"] == 1
    assert found["$defs"]["Permission"]["required"] == ["do"]


def test_exports_are_there() -> None:
    names = redteam_rubrics.__all__
    assert [name for name in names if not hasattr(redteam_rubrics, name)] == []
