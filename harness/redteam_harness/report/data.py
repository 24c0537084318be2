"""report.json: the report for machines. Its first key says what the figures can speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.report.usage import usage_data

if TYPE_CHECKING:
    from redteam_harness.report.summary import Finished, Summary

__all__ = ["REPORT_VERSION", "report_data"]

REPORT_VERSION = 1


def report_data(summary: Summary) -> dict[str, Any]:
    """The report as JSON data; rates are shares of 1, times are seconds."""
    rate = summary.rate
    return {
        "notice": summary.notice,
        "version": REPORT_VERSION,
        "suite": summary.suite,
        "run": summary.run,
        "exit_code": summary.exit_code,
        "interrupted": summary.interrupted,
        "planned": summary.planned,
        "finished": len(summary.finished),
        "forks": summary.forks,
        "seconds": round(summary.seconds, 3),
        "pass_rate": {
            "passed": rate.passed,
            "judged": rate.judged,
            "share": rate.passed / rate.judged if rate.judged else None,
            "interval": {"method": "wilson", "confidence": 0.95, "low": rate.low, "high": rate.high},
        },
        "severity_1": summary.severity_1,
        "outcomes": dict(sorted(summary.outcomes.items())),
        "rules": [
            {"rule": count.rule, "severity": count.severity, "failed": count.failed, "judged": count.judged}
            for count in summary.rules
        ],
        "attacks": [dict(attack) for attack in summary.attacks],
        "gates": dict(summary.gates) if summary.gates else {"fail_on": [], "reasons": []},
        "not_held": {"conversations": list(summary.not_held), "why": summary.stopped},
        "launches": summary.launches,
        "usage": usage_data(summary.usage),
        "conversations": [_conversation(one) for one in summary.finished],
    }


def _conversation(one: Finished) -> dict[str, Any]:
    return {
        "id": one.id,
        "case": one.case,
        "persona": one.persona,
        "disposition": one.disposition,
        "outcome": one.outcome,
        "turns": one.turns,
        "ending": one.ending,
        "fault": {"cause": one.cause, "message": one.message} if one.cause else None,
        "verdicts": list(one.verdicts),
        "changes_hash": one.changes["hash"] if one.changes else None,
        "kept_fork": one.kept,
        "late": list(one.late),
        "attacks": [dict(attack) for attack in one.attacks],
        "seconds": round(one.seconds, 3),
        "repetition": one.repetition,
        "attribution": dict(one.attribution) if one.attribution else None,
    }
