"""YAML files by people: read with the line of every key, so that an error names file, line and expectation.

The rooms own the pydantic models of what a file may hold; this module owns the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

__all__ = ["Document", "read_document"]

_MAX_SHOWN = 40
_Model = TypeVar("_Model", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, refusing a key that is given twice (the first would be lost in silence)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"key {key!r} is already given on line {seen[key]}; keep one",
                    key_node.start_mark,
                )
            seen[key] = line
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML file: its data, and where in the file each part of it stands.

    Attributes:
        path: the file.
        data: what `yaml.safe_load` gives.
    """

    path: Path
    data: object
    _root: yaml.Node

    def line_of(self, location: Sequence[int | str]) -> int:
        """The line (from 1) of a key or an item; of its nearest parent where it is absent."""
        node, line = self._root, self._root.start_mark.line + 1
        for step in location:
            found = _child(node, step)
            if found is None:
                continue  # pydantic adds steps of its own (a union's branch); the next may still match
            node, line = found
        return line

    def where(self, location: Sequence[int | str] = ()) -> str:
        """`file:line` of a part, for messages."""
        return f"{self.path}:{self.line_of(location)}"

    def validate(self, model: type[_Model], *, context: Mapping[str, object] | None = None) -> _Model:
        """Read the file as `model`.

        Args:
            model: what it should hold.
            context: what the model's own checks need to know.

        Raises:
            UsageError: one line per thing that is wrong: file, line, key, and what was expected.
        """
        try:
            return model.model_validate(self.data, context=dict(context or {}))
        except ValidationError as error:
            raise UsageError(self.explain(error)) from None

    def explain(self, error: ValidationError) -> str:
        """A validation error in words: one line per thing that is wrong, at most ten."""
        details = error.errors(include_url=False)
        lines = [
            f"{self.where(detail['loc'])}: {_key(detail['loc'])}{_expected(detail)}"
            for detail in details[:10]
        ]
        if len(details) > len(lines):
            lines.append(f"... and {len(details) - len(lines)} more")
        return "\n".join(dict.fromkeys(lines))


def read_document(path: Path) -> Document:
    """Read one YAML file.

    Raises:
        UsageError: it is not there, cannot be read, is not YAML, is empty, or gives a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path} is not there") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path} cannot be read: {reason}") from None
    try:
        root = yaml.compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader that is only stricter
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: not valid YAML: {error}") from None
    if root is None:
        raise UsageError(
            f"{path} is empty; `redteam init DIR` writes one that works, with every key explained"
        )
    return Document(path=path, data=data, _root=root)


def _child(node: yaml.Node, step: int | str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item, item.start_mark.line + 1
    return None


def _key(location: Sequence[int | str]) -> str:
    # A step in angle brackets is the name of a branch of ours, not a key that somebody wrote.
    named = ".".join(str(step) for step in location if not str(step).startswith("<"))
    return f"{named}: " if named else ""


def _expected(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "missing":
            return "this key is required"
        case "extra_forbidden":
            return "there is no such key; check its spelling"
        case "value_error" | "assertion_error":
            return str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        case _:
            given = detail["input"]
            short = isinstance(given, str | int | float | bool) and len(str(given)) <= _MAX_SHOWN
            shown = f" (given: {given!r})" if short else ""
            message = str(detail["msg"])
            return f"{message[:1].lower()}{message[1:]}{shown}"
