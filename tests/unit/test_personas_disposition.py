"""Dispositions as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from redteam_personas import (
    CastSpec,
    Disposition,
    FactSpec,
    OfflineSpec,
    Reveal,
    load_dispositions,
)
from redteam_personas.discipline import FAULTS
from redteam_personas.disposition import OfflinePhrases, suggest

SHIPPED = (
    *("angry", "changes-mind", "claims-without-acting", "confused", "cooperative", "evasive"),
    *("impersonator", "injected-instructions", "multi", "pressure", "vague"),
)


def grumpy() -> dict[str, Any]:
    shipped = load_dispositions()["cooperative"].model_dump(mode="json")
    return {**shipped, "name": "grumpy", "manner": "You grumble."}


def test_the_shipped_dispositions_are_there_under_their_own_names() -> None:
    shipped = load_dispositions()
    assert tuple(sorted(shipped)) == SHIPPED
    assert [name for name, found in shipped.items() if found.name != name] == []


def test_every_disposition_differs_from_every_other_in_what_a_model_and_the_stand_in_are_told() -> None:
    shipped = load_dispositions().values()
    for part in ("finds", "manner", "script", "offline"):
        assert len({str(getattr(one, part)) for one in shipped}) == len(SHIPPED)


def test_any_change_of_a_disposition_changes_its_digest() -> None:
    one = Disposition.model_validate(grumpy())
    changes: list[dict[str, Any]] = [
        {"manner": "You grumble a lot."},
        {"reveals": {"when asked": "never"}},
        {"impersonates": True},
        {"permits": ["meta-text"]},
        {"offline": {**grumpy()["offline"], "adds": ["And hurry."]}},
    ]
    digests = {Disposition.model_validate(grumpy() | change).digest for change in changes}
    assert len(digests | {one.digest}) == len(changes) + 1


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"finds": ""}, ("finds",)),
        ({"mood": "bad"}, ("mood",)),
        ({"reveals": {"when asked": "sometimes"}}, ("reveals", "when asked")),
        ({"script": {}}, ("script", "persona")),
        ({"permits": ["rudeness"]}, ("permits", 0)),
        ({"permits": ["leak"]}, ("permits", 0)),
        ({"offline": {**grumpy()["offline"], "wavers": ["No."]}}, ("offline",)),
        ({"offline": {**grumpy()["offline"], "adds": ["And {fact}."]}}, ("offline", "adds", 0)),
    ],
)
def test_a_wrong_disposition_is_refused_at_its_key(change: dict[str, object], loc: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as refusal:
        Disposition.model_validate(grumpy() | change)
    assert refusal.value.errors()[0]["loc"] == loc


@pytest.mark.parametrize(
    ("part", "text", "says"),
    [
        ("demand", "Get what you want.", r"must hold \{demand\}"),
        ("facts", "You know {known} and {secret}.", r"unknown place \{secret\}"),
    ],
)
def test_a_script_part_must_use_its_own_place_and_no_other(part: str, text: str, says: str) -> None:
    script = grumpy()["script"] | {part: text}
    with pytest.raises(ValidationError, match=says):
        Disposition.model_validate(grumpy() | {"script": script})


PAGE = (Path(__file__).parents[2] / "docs" / "personas.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_page_says_what_each_disposition_is_meant_to_find(name: str) -> None:
    section = PAGE.split(f"\n### {name}\n\n")[1].split("\n### ")[0]
    assert section.startswith("Finds ")
    assert f"| [`{name}`](#{name}) |" in PAGE


def test_the_disposition_that_the_page_shows_can_be_used_as_it_is() -> None:
    (example,) = re.findall(r"```yaml\n# dispositions/hurried.yaml\n(.*?)```", PAGE, re.DOTALL)
    hurried = Disposition.model_validate(yaml.safe_load(example), context={"name": "hurried"})
    assert (hurried.name, str(hurried.shift(Reveal.parse("when asked")))) == ("hurried", "when pressed")


def test_the_page_explains_every_key_of_a_disposition_and_every_fault() -> None:
    section = PAGE.split("### Your own")[1]
    keys = {*Disposition.model_fields, *OfflinePhrases.model_fields}
    assert [key for key in sorted(keys) if f"`{key}`" not in section and f"  {key}:" not in section] == []
    assert [kind for kind in FAULTS if f"| `{kind}` |" not in PAGE] == []


def test_an_unknown_name_without_a_near_match_lists_the_known_ones() -> None:
    assert suggest("zzz", ["b", "a"]) == "; there are: a, b"


@pytest.mark.parametrize("model", [CastSpec, Disposition, FactSpec, OfflineSpec])
def test_every_key_of_a_suite_has_a_meaning_in_its_schema(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    assert [
        key for part in parts for key, about in part["properties"].items() if "description" not in about
    ] == []


@pytest.mark.parametrize(
    ("name", "written", "followed"),
    [
        ("cooperative", "when asked", "when asked"),
        ("evasive", "when asked", "when pressed"),
        ("evasive", "when pressed", "when pressed 2 times"),
        ("evasive", "at once", "at once"),
        ("evasive", "never", "never"),
        ("vague", "when asked", "when pressed"),
        ("vague", "when pressed", "when pressed"),
    ],
)
def test_a_disposition_stretches_reveal_rules(name: str, written: str, followed: str) -> None:
    assert str(load_dispositions()[name].shift(Reveal.parse(written))) == followed
