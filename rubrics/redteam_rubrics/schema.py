"""The JSON Schema of rules.yaml, for editors: they complete keys, show what they mean, mark mistakes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redteam_rubrics.rubric import rules_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["editor_schema", "schema"]

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8,}.+)*)", re.MULTILINE)


def schema() -> dict[str, Any]:
    """The schema. SQL, conditions and regular expressions are only text to it; `parse_rules` reads them."""
    return editor_schema(rules_schema(), "rules.yaml")


def editor_schema(generated: Mapping[str, Any], title: str) -> dict[str, Any]:
    """A schema that pydantic generated, fit for editors.

    Args:
        generated: the schema of a model.
        title: the file that it is of.
    """
    plain = _plain(dict(generated))
    assert isinstance(plain, dict)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **plain, "title": title}


def _plain(node: Any) -> Any:
    """A schema without what only Python has: defaults, generated titles, null for an absent key."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {name: _plain(value) for name, value in node.items() if name not in ("default", "title", "anyOf")}
    branches = [_plain(branch) for branch in node.get("anyOf", ()) if branch != {"type": "null"}]
    if len(branches) == 1:
        kept = {**branches[0], **kept}
    elif branches:
        kept["anyOf"] = branches
    if "patternProperties" in kept:  # the names that a mapping may have; it has no others
        kept.setdefault("additionalProperties", False)
    return _described(kept)


def _described(node: dict[str, Any]) -> dict[str, Any]:
    """Gives each property the line that its model's docstring has on it."""
    text, _, attributes = node.get("description", "").partition("Attributes:\n")
    if not attributes or "properties" not in node:
        return node
    lines = {name: " ".join(line.split()) for name, line in _ATTRIBUTE.findall(attributes)}
    properties = {
        name: {**value, "description": lines[name]} if name in lines else value
        for name, value in node["properties"].items()
    }
    return {**node, "description": text.strip(), "properties": properties}
