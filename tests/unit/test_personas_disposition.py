"""Dispositions as data."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from redteam_personas import (
    CastSpec,
    Disposition,
    FactSpec,
    OfflineSpec,
    Reveal,
    find_disposition,
    load_dispositions,
)
from redteam_personas.disposition import suggest
from redteam_sdk.errors import UsageError


def grumpy() -> dict[str, object]:
    shipped = load_dispositions()["cooperative"].model_dump(mode="json")
    return {key: value for key, value in shipped.items() if key != "name"} | {"manner": "You grumble."}


def test_three_dispositions_ship_and_each_is_complete() -> None:
    shipped = load_dispositions()
    assert sorted(shipped) == ["confused", "cooperative", "evasive"]
    assert [name for name, found in shipped.items() if found.name != name] == []


def test_a_suite_adds_its_own_disposition_and_may_replace_a_shipped_one() -> None:
    loaded = load_dispositions({"grumpy": grumpy(), "evasive": grumpy()})
    assert (loaded["grumpy"].name, loaded["evasive"].manner) == ("grumpy", "You grumble.")
    assert loaded["evasive"].digest != load_dispositions()["evasive"].digest


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"finds": ""}, ("grumpy", "finds")),
        ({"mood": "bad"}, ("grumpy", "mood")),
        ({"reveals": {"when asked": "sometimes"}}, ("grumpy", "reveals", "when asked")),
        ({"script": {}}, ("grumpy", "script", "persona")),
    ],
)
def test_a_wrong_disposition_is_refused_at_its_key(change: dict[str, object], loc: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError) as refusal:
        load_dispositions({"grumpy": grumpy() | change})
    assert refusal.value.errors()[0]["loc"] == loc


@pytest.mark.parametrize(
    ("part", "text", "says"),
    [
        ("demand", "Get what you want.", r"must hold \{demand\}"),
        ("facts", "You know {known} and {secret}.", r"unknown place \{secret\}"),
    ],
)
def test_a_script_part_must_use_its_own_place_and_no_other(part: str, text: str, says: str) -> None:
    data = grumpy()
    script = dict(load_dispositions()["cooperative"].script) | {part: text}
    with pytest.raises(ValidationError, match=says):
        load_dispositions({"grumpy": data | {"script": script}})


def test_an_unknown_disposition_is_refused_with_a_near_match_and_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"'evasve' is not known; did you mean 'evasive'\? There are: confused, cooperative"
    ):
        find_disposition(load_dispositions(), "evasve")


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
    ],
)
def test_a_disposition_stretches_reveal_rules(name: str, written: str, followed: str) -> None:
    assert str(load_dispositions()[name].shift(Reveal.parse(written))) == followed
