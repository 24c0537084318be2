"""Sentences on mocks that commands and reports share. Plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redteam_harness.registers.mocks import FidelityRow, MockEntry

__all__ = ["draft_row", "reconciled", "touched"]


def touched(row: FidelityRow) -> str:
    """Which rules' verdicts a gap may change."""
    return "every rule" if row.rules == "all" else ", ".join(row.rules)


def reconciled(row: FidelityRow) -> str:
    """Whether the gap was compared with the real thing."""
    found = row.reconciliation
    if found.result == "no-evidence":
        return "no evidence: nobody compared it with the real thing"
    by = f": {found.evidence}" if found.evidence else ""
    return f"{found.result} {found.date} by {found.by}{by}"


def draft_row(entry: MockEntry) -> str:
    """A row to fill in, for a mock that has none."""
    gap = entry.said or "..."
    lines = [
        f"- tool: {entry.tool}",
        "  real: ...",
        "  mock: ...",
        f"  gap: {_quoted(gap)}",
        "  direction: unknown          # stricter, more-lenient, unknown",
        "  rules: all                  # or names of rules whose verdicts it may change",
        *([f"  code: '{entry.code}'"] if entry.code is not None else []),
        "  reviewed: {by: ..., date: YYYY-MM-DD}",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
