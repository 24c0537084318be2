"""Names in rules and policies that refer to nothing: what a launch refuses, and tools that no code has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_harness.checks.finding import Finding
from redteam_harness.launch.prepare import name_mistakes

if TYPE_CHECKING:
    from redteam_harness.checks.finding import Subject

__all__ = ["check_suite_names"]


async def check_suite_names(subject: Subject) -> list[Finding]:
    """Compare the names in the suite with its templates, its cast and, where known, its agent's code."""
    mistakes = await name_mistakes(
        subject.server,
        subject.suite,
        subject.templates,
        subject.cast.columns,
        tools=subject.tools,
        externals=subject.externals,
    )
    return [
        Finding(
            severity="mistake",
            place=mistake.place,
            message=f"rule {mistake.rule}: {mistake.message}" if mistake.rule else mistake.message,
            about=mistake.rule,
        )
        for mistake in mistakes
    ]
