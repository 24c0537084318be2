"""report.json: the report for machines. Its first key says what the figures can speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.registers.people import fidelity_lines
from redteam_harness.report.mocks import lenient_of
from redteam_harness.report.usage import usage_data
from redteam_rubrics.statistics import interval_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.report.counts import Group, RuleCount
    from redteam_harness.report.summary import Finished, Summary

__all__ = ["REPORT_VERSION", "report_data"]

REPORT_VERSION = 2


def report_data(summary: Summary) -> dict[str, Any]:
    """The report as JSON data; rates are shares of 1, times are seconds."""
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
        "pass_rate": summary.rate.to_json(),
        "pass_hat_k": [one.to_json() for one in summary.reliability],
        "groups": {name: [_group(group) for group in groups] for name, groups in summary.groups.items()},
        "severity_1": summary.severity_1,
        "outcomes": dict(sorted(summary.outcomes.items())),
        "rules": [_rule(count, summary.mocks) for count in summary.rules],
        "judge": None if summary.judge is None else dict(summary.judge),
        "attacks": [dict(attack) for attack in summary.attacks],
        "attestation": dict(summary.isolation),
        "mocks": None if summary.mocks is None else dict(summary.mocks),
        "persona_fidelity": {
            "said": fidelity_lines(summary.persona_fidelity),
            "dispositions": [one.to_json() for one in summary.persona_fidelity],
        },
        "gates": dict(summary.gates) if summary.gates else {"fail_on": [], "reasons": []},
        "not_held": {"conversations": list(summary.not_held), "why": summary.stopped},
        "launches": summary.launches,
        "usage": usage_data(summary.usage),
        "conversations": [_conversation(one) for one in summary.finished],
    }


def _group(group: Group) -> dict[str, Any]:
    facts = group.rate.to_json()
    return {
        "name": group.name,
        **{name: facts[name] for name in ("passed", "judged", "excluded", "interval")},
    }


def _rule(count: RuleCount, mocks: Mapping[str, Any] | None) -> dict[str, Any]:
    interval = None
    if count.interval is not None and count.confidence is not None:
        interval = {
            "of": "failed",
            "n": count.n,
            **interval_data(count.interval, count.method, count.confidence),
        }
    return {
        "rule": count.rule,
        "severity": count.severity,
        "kind": count.kind,
        "judged": count.judged,
        "failed": count.failed,
        "unclear": count.unclear,
        "vacuous": count.vacuous,
        "interval": interval,
        "p_adjusted": count.p_adjusted,
        "lenient_mocks": lenient_of(mocks, count.rule),
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
        "attestation": None if one.attestation is None else dict(one.attestation),
    }
