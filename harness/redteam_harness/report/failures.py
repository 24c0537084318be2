"""A failed conversation, as every rendering that is text tells it: what came first, and each broken rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.report.changed import finding_lines, rows_behind
from redteam_rubrics import COLLATERAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.report.summary import Finished

__all__ = ["Broken", "broken_rules", "first_event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that failed.

    Attributes:
        rule: its name.
        severity: its severity.
        why: why the rule is there; may be empty.
        lines: the changed rows behind it, or its findings where there are none.
        follows: whether it failed only because of the first event.
    """

    rule: str
    severity: int
    why: str
    lines: Sequence[str]
    follows: bool


def broken_rules(one: Finished, events: Sequence[Mapping[str, Any]]) -> list[Broken]:
    """Every broken rule, the gravest first and the collateral gate last; each row stands once.

    The gate is left out if each of its rows stands under another rule already.

    Args:
        one: the conversation.
        events: its trace, to name the tool calls behind rows; may be empty.
    """
    after = set(one.attribution["consequences"]) if one.attribution else set()
    found: list[Broken] = []
    shown: set[str] = set()
    for verdict in sorted(one.broken, key=lambda verdict: verdict["rule"] == COLLATERAL):
        rows = [line for line in rows_behind(verdict, one.changes, events) if line not in shown]
        rows += _beside_rows(verdict)
        if verdict["rule"] == COLLATERAL and not rows:
            continue
        shown.update(rows)
        found.append(
            Broken(
                rule=str(verdict["rule"]),
                severity=int(verdict["severity"]),
                why=str(verdict.get("why") or ""),
                lines=rows or finding_lines(verdict),
                follows=str(verdict["rule"]) in after,
            )
        )
    return found


def first_event(one: Finished) -> str | None:
    """What made a conversation fail first, in a sentence; None where nothing did, or nobody looked."""
    return None if one.attribution is None else str(one.attribution["text"])


def _beside_rows(verdict: Mapping[str, Any]) -> list[str]:
    """A verdict's findings about changes without a row to show: objects, writes, rows too many to keep."""
    findings = verdict.get("findings", ())
    if verdict["rule"] != COLLATERAL and not any(finding.get("op") for finding in findings):
        return []
    beside = [finding for finding in findings if not finding.get("op")]
    return finding_lines({**verdict, "findings": beside}) if beside else []
