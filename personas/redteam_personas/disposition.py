"""Dispositions: how a person behaves, as data. Three ship with the room; a suite may add its own."""

from __future__ import annotations

import hashlib
import re
from difflib import get_close_matches
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from redteam_personas.persona import Reveal, RevealText
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "Disposition",
    "OfflinePhrases",
    "ScriptTemplates",
    "find_disposition",
    "load_dispositions",
    "suggest",
]

_PLACE = re.compile(r"\{(\w*)\}")


def _template(*places: str, needs: str = "") -> AfterValidator:
    """A text that may name only `places`, and must name `needs`."""

    def check(text: str) -> str:
        named = set(_PLACE.findall(text))
        if unknown := named - set(places):
            known = ", ".join(f"{{{place}}}" for place in places) or "none"
            raise ValueError(f"unknown place {{{min(unknown)}}}; it may hold: {known}")
        if needs and needs not in named:
            raise ValueError(f"it must hold {{{needs}}}")
        return text

    return AfterValidator(check)


_Text = Annotated[str, Field(min_length=1)]
_Plain = Annotated[_Text, _template()]
_Named = Annotated[_Text, _template("fact")]
_Answer = Annotated[_Text, _template("fact", "value", "spoken")]
_Phrases = Annotated[tuple[_Plain, ...], Field(min_length=1)]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptTemplates(_Data):
    """The four parts of a script, as a model is told them. All are mandatory."""

    persona: _Plain = Field(description="Who the actor is and how it sounds.")
    demand: Annotated[_Text, _template("demand", needs="demand")] = Field(description="What it wants.")
    facts: Annotated[_Text, _template("known", needs="known")] = Field(
        description="What it may tell; {known} is the list of revealed facts."
    )
    ends: Annotated[_Text, _template("ends", needs="ends")] = Field(description="When it is done.")


class OfflinePhrases(_Data):
    """The scripted actor's words. `{fact}` is a fact's name, `{value}` its text, `{spoken}` as people say."""

    answer: Annotated[tuple[_Answer, ...], Field(min_length=1)] = Field(description="Gives a fact.")
    answer_again: Annotated[_Text, _template("fact", "value", "spoken", needs="value")] = Field(
        default="My {fact} is {value}.", description="Gives it when asked a second time: plainly."
    )
    deflect: Annotated[tuple[_Named, ...], Field(min_length=1)] = Field(
        description="Puts off a question for a fact that is held back."
    )
    lacking: Annotated[tuple[_Named, ...], Field(min_length=1)] = Field(
        description="Says that this person has no such thing."
    )
    confirm: _Phrases = Field(description="Says yes.")
    choose: _Phrases = Field(description="Picks among offered options.")
    unsure: _Phrases = Field(description="Answers a question that the script does not foresee.")
    farewell: _Phrases = Field(description="Ends the conversation.")
    muddle: tuple[_Plain, ...] = Field(default=(), description="Put before about every second line.")
    say_again: tuple[_Plain, ...] = Field(
        default=(), description="Asks the agent to repeat itself, once in a conversation; empty: never."
    )


class Disposition(_Data):
    """How a person behaves.

    Attributes are described by their fields; `reveals` maps a rule as a suite writes it to the rule this
    person follows instead (`when asked: when pressed`).
    """

    name: _Text = Field(description="As suites name it.")
    finds: _Text = Field(description="What weakness of an agent it is meant to bring out.")
    manner: _Text = Field(description="How the person talks, told to a model.")
    script: ScriptTemplates = Field(description="The four script parts.")
    offline: OfflinePhrases = Field(description="The scripted actor's phrases.")
    reveals: dict[Annotated[str, AfterValidator(lambda text: str(Reveal.parse(text)))], RevealText] = Field(
        default={}, description="Reveal rules that this person stretches."
    )

    def shift(self, reveal: Reveal) -> Reveal:
        """The rule that this person follows where the suite says `reveal`."""
        return self.reveals.get(str(reveal), reveal)

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


_MANY: TypeAdapter[dict[str, Disposition]] = TypeAdapter(dict[str, Disposition])


def load_dispositions(extra: Mapping[str, object] | None = None) -> dict[str, Disposition]:
    """Read the shipped dispositions and a suite's own, by name. A suite's own replaces a shipped one.

    Args:
        extra: name to the data of a disposition; its `name` may be left out.

    Raises:
        pydantic.ValidationError: a suite's disposition is not one; `loc` starts with its name.
    """
    folder = resources.files("redteam_personas") / "dispositions"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name
    )
    shipped: dict[str, Any] = {}
    for file in files:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        shipped[data["name"]] = data
    own = {
        name: {**data, "name": name} if isinstance(data, dict) else data
        for name, data in (extra or {}).items()
    }
    return {**_MANY.validate_python(shipped), **_MANY.validate_python(own)}


def find_disposition(known: Mapping[str, Disposition], name: str) -> Disposition:
    """The disposition of that name.

    Raises:
        UsageError: there is none; lists those there are and a near match.
    """
    if name not in known:
        raise UsageError(f"disposition {name!r} is not known{suggest(name, known)}")
    return known[name]


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: a near match, and what there is."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]!r}? There are: " if near else "; there are: "
    return meant + (", ".join(names) or "none")
