"""Checks of a suite against its own data, before a launch: what is wrong, and what could be better.

A check is a function from a `Subject` to `Finding`s; `CHECKS` lists those that `redteam check` runs, and
`examine` makes the subject: it builds the data and holds conversations in which next to nothing happens.
"""

from __future__ import annotations

from redteam_harness.checks.examine import CHECKS, CheckOptions, Examined, examine
from redteam_harness.checks.finding import Finding, Severity, Subject, refusals
from redteam_harness.checks.idle import Satisfied, satisfied

__all__ = [
    "CHECKS",
    "CheckOptions",
    "Examined",
    "Finding",
    "Satisfied",
    "Severity",
    "Subject",
    "examine",
    "refusals",
    "satisfied",
]
