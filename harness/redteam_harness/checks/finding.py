"""What a check is given, and what it finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_forker import Pool, Server, Template
    from redteam_harness.agents.code import AgentCode
    from redteam_harness.checks.idling import Held
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast
    from redteam_sdk.errors import UsageError

__all__ = ["Finding", "Severity", "Subject", "refusals"]

Severity = Literal["mistake", "suggestion", "note"]
"""A launch would stop at it, or mean something else than it says; better so; good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check has to say.

    Attributes:
        severity: how much it matters.
        place: `file:line`, as far as there is one.
        message: what it is, and why it matters.
        details: what shows it, a line each.
        advice: what to do about it; may be several lines, to be pasted.
        about: the rule, case or tool that it is about; empty where it is about none.
    """

    severity: Severity
    place: str
    message: str
    details: tuple[str, ...] = ()
    advice: str = ""
    about: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "severity": self.severity,
            "place": self.place,
            "about": self.about,
            "message": self.message,
            "details": list(self.details),
            "advice": self.advice,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A suite whose data is there.

    Attributes:
        suite: the suite.
        server: where its templates are.
        templates: the template of each case, by its id.
        cast: who may be played.
        pools: the warm forks of each case, by its id.
        code: what is marked in the agent's code; None where that is not known.
        held: the conversations in which next to nothing happened.
    """

    suite: Suite
    server: Server
    templates: Mapping[str, Template]
    cast: Cast
    pools: Mapping[str, Pool]
    code: AgentCode | None = None
    held: tuple[Held, ...] = ()

    @property
    def distinct_templates(self) -> tuple[Template, ...]:
        """Each template once."""
        return tuple({template.name: template for template in self.templates.values()}.values())

    @property
    def tools(self) -> frozenset[str] | None:
        """The names of the agent's tools; None where they are not known, as where nothing is marked."""
        return frozenset(tool.name for tool in self.code.tools) or None if self.code else None

    @property
    def externals(self) -> frozenset[str] | None:
        """The names of its external tools; None where they are not known."""
        return frozenset(tool.name for tool in self.code.externals) if self.code else None


def refusals(error: UsageError | BaseExceptionGroup[UsageError]) -> list[Finding]:
    """What a launch would refuse, as findings: one for each line, where each names its place."""
    if isinstance(error, BaseExceptionGroup):
        return [finding for one in error.exceptions for finding in refusals(one)]
    lines = [re.match(r"(?P<place>.+?:\d+): (?P<message>.+)", line) for line in str(error).splitlines()]
    placed = [line for line in lines if line is not None]
    if len(placed) < len(lines):
        return [Finding(severity="mistake", place="", message=str(error))]
    return [Finding(severity="mistake", place=line["place"], message=line["message"]) for line in placed]
