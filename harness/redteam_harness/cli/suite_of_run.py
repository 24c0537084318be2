"""The suite that a run was of, for commands that go back to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from redteam_harness.launch.suite import load_suite
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.suite import Suite

__all__ = ["suite_of_run"]


def suite_of_run(named: Path | None, run: RunDirectory, facts: Mapping[str, Any]) -> Suite:
    """The suite that is named, or else the one at the place that the run remembers.

    Args:
        named: what `--suite` says, or None.
        run: the run.
        facts: its run.json.

    Raises:
        UsageError: it is not there, cannot be read, or is another suite than the run's.
    """
    where = named or facts.get("suite_at")
    if where is None:
        raise UsageError(f"run {run.id} does not say where its suite is; name it with --suite")
    try:
        suite = load_suite(Path(where))
    except UsageError as error:
        if named is not None:
            raise
        raise UsageError(
            f"{error}; if the suite of run {run.id} moved, say where it is with --suite"
        ) from None
    if suite.name != facts["suite"]:
        raise UsageError(
            f"{suite.document.path} is suite {suite.name!r}; run {run.id} is of {facts['suite']!r}"
        )
    return suite
