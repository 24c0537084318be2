"""Checks of a suite against its own data, before a launch: what is wrong, and what could be better.

A check is a function from a `Subject` to `Finding`s; `CHECKS` lists those that `redteam check` runs.
"""

from __future__ import annotations

from redteam_harness.checks.finding import Finding, Severity, Subject
from redteam_harness.checks.names import check_suite_names
from redteam_harness.checks.volatile import check_volatile

__all__ = ["CHECKS", "Finding", "Severity", "Subject", "check_suite_names", "check_volatile"]

CHECKS = (check_suite_names, check_volatile)
"""In the order in which their findings are shown."""
