"""Finished conversations and summaries for tests of what is reckoned from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.report.summary import Finished, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.report.summary import Summary

__all__ = ["finished", "summary", "verdict"]


def verdict(rule: str, status: str, *, severity: int = 1) -> dict[str, Any]:
    """A verdict's JSON form."""
    findings = [{"text": f"{rule} found something."}] if status == "fail" else []
    return {
        "rule": rule,
        "severity": severity,
        "status": status,
        "source": "assertion",
        "reason": "because",
        "findings": findings,
        "vacuous": False,
        "fault": None,
        "asked": None,
    }


def finished(name: str, **parts: Any) -> Finished:
    """A conversation; parts replace the defaults."""
    facts: dict[str, Any] = {
        "case": "only",
        "persona": "1",
        "disposition": "cooperative",
        "outcome": "pass",
        "turns": 2,
        "ending": "done",
        "seconds": 0.1,
    }
    return Finished(id=name, **{**facts, **parts})


def summary(
    held: Sequence[Finished],
    *,
    planned: int | None = None,
    run: str = "run234",
    mocks: Mapping[str, Any] | None = None,
) -> Summary:
    """What a run of these conversations found."""
    return summarise(
        held,
        notice="offline",
        suite="s",
        run=run,
        planned=len(held) if planned is None else planned,
        forks=len(held),
        interrupted=False,
        seconds=1.0,
        mocks=mocks,
    )
