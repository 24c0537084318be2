"""The pydantic base of everything in rules.yaml: nothing unknown, nothing empty, errors where they are.

An error's `loc` is the path in the YAML text, so that the harness can name the line: no element of it comes
from how the models are built (a union's branch, a list that a single value was wrapped in).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError

from redteam_sdk.errors import UsageError

__all__ = [
    "Count",
    "Name",
    "Names",
    "Positive",
    "Severity",
    "Strict",
    "distinct",
    "expecting",
    "not_empty",
    "one_or_many",
    "refusing",
]

_T = TypeVar("_T")
_Sized = TypeVar("_Sized", bound=Sized)


class Strict(BaseModel):
    """A mapping with known keys, each with a value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise PydanticCustomError("mapping", "expected a mapping with {keys}", {"keys": cls._keys()})
        is_open = cls.model_config.get("extra") == "allow"
        problems = [
            _error((key,), value, cls._unknown(key))
            for key, value in data.items()
            if key not in cls.model_fields and not (is_open and isinstance(key, str))
        ]
        problems += [
            _error((key,), None, "no value is given; write one or leave the key out")
            for key, value in data.items()
            if value is None
        ]
        # At the mapping and not at the key, which is a place that the text does not have.
        problems += [
            _error((), data, f"`{name}` is missing")
            for name, field in cls.model_fields.items()
            if field.is_required() and name not in data
        ]
        if not problems:
            problems = [_error(loc, data, message) for loc, message in cls._complaints(data)]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return data

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        """What else is wrong with keys that are each known, and where: for models that say more."""
        yield from ()

    @classmethod
    def _keys(cls) -> str:
        return ", ".join(cls.model_fields)

    @classmethod
    def _unknown(cls, key: object) -> str:
        close = difflib.get_close_matches(str(key), cls.model_fields, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"unknown key {key!s}, expected one of: {cls._keys()}{hint}"


@dataclass(frozen=True, slots=True, eq=False)
class _Refusing(AfterValidator):
    """A check, and what a JSON Schema says of it by the type of the value: editors refuse the same.

    Attributes:
        says: by JSON type, the keywords to add.
    """

    says: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        found = handler(core)
        return {**found, **self.says.get(found.get("type", ""), {})}


def refusing(
    check: Callable[[_T], _T], says: Mapping[str, Mapping[str, Any]] | None = None
) -> AfterValidator:
    """A check that raises `UsageError`, as a pydantic validator with the same message.

    Args:
        check: returns the value that it takes.
        says: what a JSON Schema can say of it, by the JSON type of the value; by default, that of the checks
            in this module.
    """

    def validate(value: _T) -> _T:
        try:
            return check(value)
        except UsageError as exc:
            raise PydanticCustomError("rule", "{message}", {"message": str(exc)}) from exc

    return _Refusing(validate, _SAID.get(check, {}) if says is None else says)


def one_or_many(item: Any, *also: AfterValidator) -> WrapValidator:
    """Let a tuple of items also be written as one item: no list, and no index in an error's loc.

    Args:
        item: the type of an item.
        also: what else holds of a list of them, for the JSON Schema.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(item)

    def validate(value: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(value) if isinstance(value, list | tuple) else (adapter.validate_python(value),)

    many = Annotated[list[item], *also, refusing(not_empty)]
    either = Union[item, many]  # noqa: UP007  # items are types that are known at run time only
    return WrapValidator(validate, json_schema_input_type=either)


def expecting(kind: type, name: str) -> BeforeValidator:
    """Refuse a value that is not of a kind of YAML node, in the words of YAML and not of Python."""

    def validate(value: Any) -> Any:
        if not isinstance(value, kind):
            raise PydanticCustomError("kind", "expected {name}", {"name": name})
        return value

    return BeforeValidator(validate)


def _error(loc: tuple[str | int, ...], value: object, message: str) -> InitErrorDetails:
    error = PydanticCustomError("rule", "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=loc, input=value)


def not_empty(values: _Sized) -> _Sized:
    """Refuse an empty list or mapping: a rule that names nothing would hold of everything."""
    if not values:
        raise UsageError("expected at least one, found none")
    return values


def distinct(values: tuple[_T, ...]) -> tuple[_T, ...]:
    """Refuse a list that names something twice."""
    twice = dict.fromkeys(str(value) for value in values if values.count(value) > 1)
    if twice:
        raise UsageError(f"named twice: {', '.join(twice)}")
    return values


def _not_blank(text: str) -> str:
    if not text.strip():
        raise UsageError("expected some text, found none")
    return text


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("count", "expected a whole number, found true or false")
    return value


# What a JSON Schema can say of the checks above.
_SAID: Mapping[Callable[[Any], Any], Mapping[str, Mapping[str, Any]]] = {
    not_empty: {"array": {"minItems": 1}, "object": {"minProperties": 1}},
    distinct: {"array": {"uniqueItems": True}},
    _not_blank: {"string": {"pattern": r"\S"}},
}

Name = Annotated[str, refusing(_not_blank)]
"""The name of a tool, a table, a column: text that is not blank."""

Names = Annotated[
    tuple[Name, ...], refusing(distinct), refusing(not_empty), one_or_many(Name, refusing(distinct))
]
"""One name, or a list of different ones."""

Count = Annotated[int, Field(ge=0, strict=True)]
"""How often something may happen."""

Positive = Annotated[int, Field(ge=1, strict=True)]
"""How often something must happen."""

Severity = Annotated[Literal[1, 2, 3], BeforeValidator(_no_bool)]
"""1 is the worst."""
