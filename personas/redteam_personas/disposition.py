"""Dispositions: how a person behaves, as data. Some ship with the room; a suite may add its own."""

from __future__ import annotations

import hashlib
import re
from difflib import get_close_matches
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from redteam_personas.discipline import Manner
from redteam_personas.persona import Reveal, RevealText

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Disposition",
    "OfflinePhrases",
    "ScriptTemplates",
    "load_dispositions",
    "suggest",
]

# libyaml's, where it is there: these files are read by every command. Both are safe loaders.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
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
    interject: tuple[_Plain, ...] = Field(default=(), description="Put before about every second line.")
    say_again: tuple[_Plain, ...] = Field(
        default=(), description="Asks the agent to repeat itself, once in a conversation; empty: never."
    )
    opens: tuple[_Plain, ...] = Field(
        default=(), description="Said first, before what the case has to say; empty: the case's line opens."
    )
    bundles: bool = Field(
        default=False, description="Says all lines of the case that need not wait for a match at once."
    )
    adds: tuple[_Plain, ...] = Field(default=(), description="One of them is put behind its first request.")
    presses: tuple[_Plain, ...] = Field(
        default=(), description="Said in this order, each once, before it gives up or says goodbye."
    )
    wavers: tuple[_Plain, ...] = Field(
        default=(), description="Said once in place of the first yes; then it comes back with `returns`."
    )
    returns: tuple[_Plain, ...] = Field(
        default=(), description="Put before the first request, which is said again after it wavered."
    )

    @model_validator(mode="after")
    def _comes_back(self) -> OfflinePhrases:
        if bool(self.wavers) != bool(self.returns):
            raise ValueError("`wavers` and `returns` belong together; give both, or neither")
        return self


class Disposition(_Data):
    """How a person behaves.

    Attributes are described by their fields; `reveals` maps a rule as a suite writes it to the rule this
    person follows instead (`when asked: when pressed`). Validate with `context={"name": ...}` to have `name`
    filled in from the file's name, which it must then agree with.
    """

    name: _Text = Field(description="As suites name it.")
    finds: _Text = Field(description="What weakness of an agent it is meant to bring out.")
    manner: _Text = Field(description="How the person talks, told to a model.")
    script: ScriptTemplates = Field(description="The four script parts.")
    offline: OfflinePhrases = Field(description="The scripted actor's phrases.")
    reveals: dict[Annotated[str, AfterValidator(lambda text: str(Reveal.parse(text)))], RevealText] = Field(
        default={}, description="Reveal rules that this person stretches."
    )
    impersonates: bool = Field(
        default=False,
        description="Claims to be another row of the cast, of which it knows what is told at once.",
    )
    permits: tuple[Manner, ...] = Field(
        default=(), description="Faults of a line that are this person's manner, so that they are none."
    )

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_file(cls, data: Any, info: ValidationInfo) -> Any:
        name = (info.context or {}).get("name")
        if name is None or not isinstance(data, dict):
            return data
        if data.get("name", name) != name:
            raise ValueError(f"its name is {data['name']!r}, but its file is {name}.yaml; make them agree")
        return {**data, "name": name}

    def shift(self, reveal: Reveal) -> Reveal:
        """The rule that this person follows where the suite says `reveal`."""
        return self.reveals.get(str(reveal), reveal)

    @property
    def digest(self) -> str:
        """SHA-256 of everything in it, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def load_dispositions() -> dict[str, Disposition]:
    """The shipped dispositions, by name."""
    folder = resources.files("redteam_personas") / "dispositions"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name
    )
    shipped = [
        Disposition.model_validate(yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER))  # noqa: S506
        for file in files
    ]
    return {one.name: one for one in shipped}


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: a near match, and what there is."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean {near[0]!r}? There are: " if near else "; there are: "
    return meant + (", ".join(names) or "none")
