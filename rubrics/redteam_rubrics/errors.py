"""What goes wrong in rubrics, as children of the platform's error tree (`redteam_sdk.errors`)."""

from __future__ import annotations

from redteam_sdk.errors import UsageError

__all__ = ["RuleError"]


class RuleError(UsageError):
    """A rule cannot be evaluated as it is written; it says nothing about the agent.

    `grade` turns it into an unclear verdict, so that it is counted as a fault of the judge and never as a
    failure, nor as a success, of the agent.
    """
