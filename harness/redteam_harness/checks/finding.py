"""What a check is given, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_forker import Server, Template
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast

__all__ = ["Finding", "Severity", "Subject"]

Severity = Literal["mistake", "suggestion", "note"]
"""A launch would stop at it, or mean something else than it says; better so; good to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check has to say.

    Attributes:
        severity: how much it matters.
        place: `file:line`, as far as there is one.
        message: what it is.
        details: what shows it, a line each.
        advice: what to do about it; may be several lines, to be pasted.
    """

    severity: Severity
    place: str
    message: str
    details: tuple[str, ...] = ()
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "severity": self.severity,
            "place": self.place,
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
    """

    suite: Suite
    server: Server
    templates: Mapping[str, Template]
    cast: Cast

    @property
    def distinct_templates(self) -> tuple[Template, ...]:
        """Each template once."""
        return tuple({template.name: template for template in self.templates.values()}.values())
