"""What goes wrong in the forker, as children of the platform's error tree (`redteam_sdk.errors`)."""

from __future__ import annotations

from redteam_sdk.errors import EnvironmentFault, UsageError

__all__ = ["DropFailed", "ForkUnavailable", "SeedError", "ServerUnavailable"]


class SeedError(UsageError):
    """A seed cannot be loaded as it is: names the file, the line, the reason and the way out."""


class ServerUnavailable(EnvironmentFault):
    """A Postgres server cannot be started, reached, or lacks a right that forking needs."""


class ForkUnavailable(EnvironmentFault):
    """A fork could not be made. It is our fault, never the agent's."""


class DropFailed(EnvironmentFault):
    """A fork could not be dropped, or the catalog still shows it."""
