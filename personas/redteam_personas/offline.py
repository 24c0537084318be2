"""A case's `offline` block: what the scripted actor says, and its checks at load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from redteam_personas.script import check_text, fill

if TYPE_CHECKING:
    from collections.abc import Collection

    from redteam_personas.persona import Persona
    from redteam_personas.script import CaseParts

__all__ = ["Offline", "OfflineSpec", "Reply", "Says", "check_offline"]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"{text!r} is not a regular expression: {exc}") from exc
    return text


_Text = Annotated[str, Field(min_length=1)]
_Regex = Annotated[_Text, AfterValidator(_pattern)]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Says(_Data):
    """A line that the person says of its own accord, in order."""

    text: _Text = Field(description="The line; {column} stands for the persona's value.")
    when: _Regex | None = Field(
        default=None, description="Waits until a line of the agent matches this (anywhere in it, any case)."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"text": data} if isinstance(data, str) else data


class Reply(_Data):
    """An answer to whatever line of the agent matches."""

    to: _Regex = Field(description="What the agent's line must match (anywhere in it, any case).")
    say: _Text = Field(description="The answer; {column} stands for the persona's value.")
    times: int | None = Field(default=None, ge=1, description="How often it is given; by default always.")


class OfflineSpec(_Data):
    """What the scripted actor says in a case. Without it, it opens with the demand and answers questions."""

    says: tuple[Says, ...] = Field(default=(), description="Lines in order; the first opens.")
    replies: tuple[Reply, ...] = Field(default=(), description="Answers; the first that matches is given.")

    def fill(self, persona: Persona) -> Offline:
        """The lines of one persona. The suite's texts passed `check_offline` before."""
        return Offline(
            says=tuple(line.model_copy(update={"text": fill(line.text, persona)}) for line in self.says),
            replies=tuple(
                reply.model_copy(update={"say": fill(reply.say, persona)}) for reply in self.replies
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """An `offline` block with one persona's values in it: what a `ScriptedActor` speaks from."""

    says: tuple[Says, ...] = ()
    replies: tuple[Reply, ...] = ()


def check_offline(offline: OfflineSpec, case: CaseParts, columns: Collection[str]) -> None:
    """Check that the lines name only columns that are told at once or are no facts.

    Raises:
        UsageError: names the case, the line, and what is wrong with the place in it.
    """
    texts = [(f"offline.says {n}", line.text) for n, line in enumerate(offline.says, start=1)]
    texts += [(f"offline.replies {n}", reply.say) for n, reply in enumerate(offline.replies, start=1)]
    for where, text in texts:
        check_text(text, case.facts, columns, where=f"case {case.id!r}, {where}")
