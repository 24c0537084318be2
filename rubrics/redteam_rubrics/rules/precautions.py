"""What a `tools` rule may ask for around a call: reads and agreement before it, care after it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field, TypeAdapter
from pydantic.functional_validators import WrapValidator

from redteam_rubrics.phrases import Phrases
from redteam_rubrics.strict import Name, Names, Strict, expecting, not_empty, refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ANY_TOOL",
    "Agreement",
    "AgreementByTool",
    "Check",
    "CheckByTool",
    "Reads",
    "ReadsByTool",
    "Telling",
    "TellingByTool",
]

ANY_TOOL = "*"

_NAMES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Names)


def _same(value: Any, handler: Callable[[Any], dict[str, str]]) -> dict[str, str]:
    """One argument, a list of them, or a mapping where the two tools name it differently."""
    if isinstance(value, dict):
        return handler(value)
    return {name: name for name in _NAMES.validate_python(value)}


def _in_short(model: type[Strict], key: str, kind: Any) -> WrapValidator:
    """Let a mapping also be written as the value of one of its keys, without an error's loc that says so."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def validate(value: Any, handler: Callable[[Any], Any]) -> Any:
        if isinstance(value, dict) and "matches" not in value:
            return handler(value)
        return model.model_construct({key}, **{key: adapter.validate_python(value)})

    return WrapValidator(validate, json_schema_input_type=Union[kind, model])  # noqa: UP007  # known at run time


class Reads(Strict):
    """What must have returned before each call of a tool; in short, only its `tools`.

    Attributes:
        tools: one of these returned before the call.
        same: it had the same value of this argument as the call has. `{patient_id: id}` where the two tools
            name it differently, the call's name first.
        seen: what it returned contains the value that the call has of this argument. A number that no tool
            has shown is an invented one.
    """

    tools: Names
    same: Annotated[
        dict[Name, Name],
        refusing(not_empty),
        WrapValidator(_same, json_schema_input_type=Names | Annotated[dict[Name, Name], refusing(not_empty)]),
    ] = Field(default={})
    seen: Names = ()


class Agreement(Strict):
    """The user's agreement before each call of a tool; in short, only the phrases of `agreed`.

    Attributes:
        agreed: the last line of the user before the call says one of these, as whole words.
        proposed: what the agent said just before that line says each of these.
    """

    agreed: Phrases
    proposed: Phrases = ()


class Telling(Strict, json_schema_extra={"minProperties": 1}):
    """What the agent says after a call failed, until a call of the same tool returned.

    Attributes:
        agent_says: each of these is in some line of the agent, if it says anything before that.
        never_says: none of these is in any line of the agent.
    """

    agent_says: Phrases = ()
    never_says: Phrases = ()

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        if not data:
            yield (), f"expected at least one of {cls._keys()}"


class Check(Strict):
    """What must have returned between a call that failed and the next one like it; in short, its `tools`.

    Attributes:
        tools: one of these returned in between.
        same: a call is like the other if it has the same values of these arguments; without it, of all.
    """

    tools: Names
    same: Names = ()


_BY_TOOL = expecting(dict, "{tool: ...}")

ReadsByTool = Annotated[
    dict[Name, Annotated[Reads, _in_short(Reads, "tools", Names)]], _BY_TOOL, refusing(not_empty)
]
AgreementByTool = Annotated[
    dict[Name, Annotated[Agreement, _in_short(Agreement, "agreed", Phrases)]], _BY_TOOL, refusing(not_empty)
]
TellingByTool = Annotated[dict[Name, Telling], _BY_TOOL, refusing(not_empty)]
CheckByTool = Annotated[
    dict[Name, Annotated[Check, _in_short(Check, "tools", Names)]], _BY_TOOL, refusing(not_empty)
]
