"""The JSON Schemas of what a suite's author writes, for editors: they complete keys and mark mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.launch.suite import SuiteSpec
from redteam_rubrics import editor_schema, schema

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Written", "schema_of"]

Written = Literal["rules", "suite"]

_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
# What may be written in place of a mapping, which the models turn into one before they look at it.
_SHORT_FORMS: Mapping[str, Mapping[str, Any]] = {"FactSpec": _TEXT, "FaultSpec": _TEXT, "Says": _TEXT}


def schema_of(written: Written) -> dict[str, Any]:
    """The schema of rules.yaml or suite.yaml. What it lets pass may still be refused when a suite is loaded.

    Args:
        written: which of the two.
    """
    return schema() if written == "rules" else _suite()


def _suite() -> dict[str, Any]:
    found = SuiteSpec.model_json_schema()
    parts = found["$defs"]
    for name, short in _SHORT_FORMS.items():
        parts[name] = {"anyOf": [short, parts[name]]}
    names = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
    for agent in ("PythonAgent", "CommandAgent"):
        _or(parts[agent]["properties"], "env", names)
    _or(found["properties"], "agent", {"type": "string", "pattern": "^python:[^:]+:[^:]+$"})
    # An editor reads a bare off as a word, YAML 1.1 as false.
    _or(found["properties"], "collateral", {"enum": ["on", "off"]})
    (faults,) = parts["CaseSpec"]["properties"]["externals"]["patternProperties"].values()
    faults |= {"anyOf": [{"$ref": "#/$defs/FaultSpec"}, {**faults}]}
    for key in ("type", "items", "minItems"):
        del faults[key]
    return editor_schema(found, "suite.yaml")


def _or(properties: dict[str, Any], key: str, other: Mapping[str, Any]) -> None:
    """Let a key also be written in another way; what it means is said once."""
    written = properties[key]
    said = {name: written.pop(name) for name in ("description", "title", "default") if name in written}
    properties[key] = {**said, "anyOf": [other, written]}
