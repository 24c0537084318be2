"""The JSON Schema of report.json, version 2: for programs that read it, and tested against what is written.

Within a version keys are added, and never renamed, removed or given another meaning: a reader should ignore
keys that it does not know. `version` changes with anything else.
"""

from __future__ import annotations

from typing import Any

from redteam_harness.registers.degraded import CODES_OF_LACKS
from redteam_harness.report.attacks import STATES
from redteam_harness.report.codes import CODES
from redteam_harness.report.data import REPORT_VERSION

__all__ = ["report_schema"]

_TEXT: dict[str, Any] = {"type": "string"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_SHARE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_SEVERITY: dict[str, Any] = {"enum": [1, 2, 3]}
_OUTCOMES = ["pass", "fail", "sim-fault", "judge-fault", "infra-fault", "derailed"]


def report_schema() -> dict[str, Any]:
    """The schema, in draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"report.json of redteam, version {REPORT_VERSION}",
        "description": "What a run found. Rates are shares of 1, times are seconds.",
        "$defs": _DEFS,
        **_object(
            notice=_said(_TEXT, "What the figures can speak of. The first line of every report."),
            version={"const": REPORT_VERSION},
            suite=_TEXT,
            run=_TEXT,
            exit_code=_said({"enum": [0, 1, 3, 130]}, "What the launch exited with."),
            interrupted=_said(_FLAG, "Whether a person stopped the launch."),
            planned=_COUNT,
            finished=_said(_COUNT, "Conversations with an outcome."),
            forks=_COUNT,
            seconds={"type": "number", "minimum": 0},
            pass_rate=_ref("rate"),
            pass_hat_k=_list(_ref("pass_hat_k")),
            groups=_object(case=_groups(), persona=_groups(), disposition=_groups()),
            severity_1=_said(_COUNT, "Conversations that broke a rule of severity 1; in no rate."),
            outcomes={
                "type": "object",
                "propertyNames": {"enum": _OUTCOMES},
                "additionalProperties": _COUNT,
            },
            rules=_list(_ref("rule")),
            judge=_or_null(_ref("judge")),
            attacks=_list(_ref("attack_count")),
            attestation=_ref("attestation_counts"),
            mocks=_or_null(_ref("mocks")),
            persona_fidelity=_object(
                said=_said(_list(_TEXT), "What a reader is told of it."),
                dispositions=_list({"type": "object"}),
            ),
            gates=_ref("gates"),
            not_held=_object(conversations=_list(_TEXT), why=_or_null(_TEXT)),
            launches=_said({"type": "integer", "minimum": 1}, "1, and one more for each resumption."),
            usage=_object(rows=_list(_ref("usage")), usd=_or_null({"type": "number"})),
            conversations=_list(_ref("conversation")),
        ),
    }


def _object(*optional: str, **properties: Any) -> dict[str, Any]:
    """An object whose keys are all there, but for those named as optional."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _said(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _groups() -> dict[str, Any]:
    return _list(_ref("group"))


_EXCLUDED = _said(
    {"type": "object", "additionalProperties": _COUNT}, "How many do not count, by the name of why."
)
_BOUNDS = _said(
    _object(if_all_failed=_or_null(_SHARE), if_all_passed=_or_null(_SHARE)),
    "The rate had all that is excluded failed, and had it all passed.",
)
_INTERVAL = _or_null(_ref("interval"))

_RECONCILED: dict[str, Any] = {"enum": ["confirmed", "refuted", "no-evidence"]}
_DROP = _object(
    at=_TEXT,
    catalog_shows=_said(_or_null(_list(_TEXT)), "Afterwards, of its name; null: it could not be asked."),
    why=_TEXT,
)

_DEFS: dict[str, Any] = {
    "interval": _object(
        method=_TEXT, confidence=_SHARE, low=_or_null({"type": "number"}), high=_or_null({"type": "number"})
    ),
    "rate": _object(
        passed=_COUNT,
        judged=_said(_COUNT, "Conversations with a verdict: the rate's denominator."),
        share=_or_null(_SHARE),
        interval=_INTERVAL,
        excluded=_EXCLUDED,
        bounds=_BOUNDS,
        clusters=_COUNT,
        bootstrap=_or_null(_object(low=_SHARE, high=_SHARE)),
    ),
    "pass_hat_k": _object(
        k={"type": "integer", "minimum": 1},
        share=_said(_or_null(_SHARE), "null: not defined."),
        cases=_COUNT,
        excluded=_COUNT,
        interval=_INTERVAL,
        bounds=_BOUNDS,
    ),
    "group": _object(name=_TEXT, passed=_COUNT, judged=_COUNT, excluded=_EXCLUDED, interval=_INTERVAL),
    "rule": _object(
        rule=_TEXT,
        severity=_SEVERITY,
        kind=_or_null(_TEXT),
        judged=_said(_COUNT, "Conversations that it passed or failed."),
        failed=_COUNT,
        unclear=_COUNT,
        vacuous=_said(_COUNT, "Passes because there was nothing to fail on."),
        interval=_said(
            _or_null(
                _object(
                    of={"const": "failed"},
                    n=_said(_COUNT, "`judged` without those that were vacuous."),
                    method=_TEXT,
                    confidence=_SHARE,
                    low=_or_null(_SHARE),
                    high=_or_null(_SHARE),
                )
            ),
            "Of the share that failed; null for severity 1, which is only counted.",
        ),
        p_adjusted=_or_null(_SHARE),
        lenient_mocks=_said(
            _list(_object(tool=_TEXT, gap=_TEXT, reconciliation=_RECONCILED, passes=_COUNT)),
            "Gaps of mocks that let through what the real thing refuses, and how many passes they touch.",
        ),
    ),
    "judge": _object(
        model=_TEXT,
        rules=_list(
            _object(
                rule=_TEXT,
                model=_TEXT,
                prompt=_said(_TEXT, "SHA-256 of what is asked."),
                calibration=_or_null({"type": "object"}),
                stale=_said(_FLAG, "The calibration is of another model or prompt."),
            )
        ),
    ),
    "attack_count": _object(
        case=_TEXT,
        attack=_TEXT,
        conversations=_COUNT,
        planted=_COUNT,
        attempted=_COUNT,
        obeyed=_COUNT,
        resisted=_COUNT,
        excluded=_EXCLUDED,
        share=_said(_or_null(_SHARE), "Obeyed, of those that obeyed or resisted; null: nobody did either."),
        interval=_INTERVAL,
    ),
    "attestation_counts": _object(
        conversations=_said(_COUNT, "Finished ones."),
        attested=_COUNT,
        forked=_said(_COUNT, "Those that had a fork."),
        backends=_list(_object(name=_TEXT, conversations=_COUNT)),
        dropped=_said(_COUNT, "Those whose fork the catalog did not show afterwards."),
        kept=_COUNT,
        guarded=_said(_COUNT, "Those whose agent said that the egress guard was armed."),
        refused=_said(_COUNT, "Connections and look-ups that the guard refused."),
        mock_misses=_said(_COUNT, "External calls that no mock and no recorded answer was there for."),
        degraded=_said(
            _list(_object(code={"enum": list(CODES_OF_LACKS)}, message=_TEXT, conversations=_list(_TEXT))),
            "What isolation lacked, with the conversations of which it did.",
        ),
    ),
    "mocks": _object(
        known=_said(_FLAG, "Whether the agent's code could be asked for its external tools."),
        nobody_looked=_said(_list(_TEXT), "Tools of which fidelity.yaml says nothing."),
        tools=_list(
            _object(
                tool=_TEXT,
                mocked=_or_null(_FLAG),
                called_in=_said(_COUNT, "Conversations."),
                said_in_code=_or_null(_TEXT),
                gaps=_list(
                    _object(
                        gap=_TEXT,
                        direction={"enum": ["stricter", "more-lenient", "unknown"]},
                        stale=_FLAG,
                        reconciliation=_object(
                            result=_RECONCILED,
                            by=_or_null(_TEXT),
                            date=_or_null(_TEXT),
                            evidence=_or_null(_TEXT),
                        ),
                        touches=_list(
                            _object(**{"rule": _TEXT, "pass": _COUNT, "fail": _COUNT, "unclear": _COUNT})
                        ),
                    )
                ),
            )
        ),
    ),
    "attestation": _object(
        server=_object(kind=_TEXT, version=_TEXT, file_system=_TEXT),
        agent={"enum": ["python", "command", "url"]},
        fork=_or_null(
            _object(
                name=_TEXT,
                template=_TEXT,
                at=_TEXT,
                created_s={"type": "number", "minimum": 0},
                copied_by=_TEXT,
                role_reaches=_list(_TEXT),
            )
        ),
        walls=_said(
            _or_null({"type": "object", "additionalProperties": _TEXT}),
            "What became of attempts to enter other databases by a fork's role, in this launch.",
        ),
        tools_saw=_said(_or_null(_TEXT), "The database, before the first turn."),
        egress=_object(guard={"enum": ["armed", None]}, allowed=_list(_TEXT), refused=_COUNT),
        mock_misses=_list(_TEXT),
        kept=_FLAG,
        drop=_or_null(_DROP),
        earlier_forks=_list(_object(name=_TEXT, drop=_or_null(_DROP))),
    ),
    "gates": _object(
        fail_on=_said(_list(_SEVERITY), "Failures of rules of these severities are red."),
        reasons=_said(
            _list(
                _object(
                    code={"enum": list(CODES)},
                    message=_TEXT,
                    measured=_or_null({"type": "number"}),
                    limit=_or_null({"type": "number"}),
                    gate=_said(_TEXT, "The key in suite.yaml."),
                    rule=_or_null(_TEXT),
                    exit_code={"enum": [1, 3]},
                )
            ),
            "Every reason to be red; empty: green.",
        ),
        checked=_list(
            _object(
                gate=_TEXT,
                measured=_or_null({"type": "number"}),
                limit=_or_null({"type": "number"}),
                red=_FLAG,
            )
        ),
    ),
    "usage": _object(
        role=_TEXT,
        model=_TEXT,
        calls=_COUNT,
        replayed=_COUNT,
        faults=_COUNT,
        input=_COUNT,
        cache_write=_COUNT,
        cache_read=_COUNT,
        output=_COUNT,
        usd={"type": "number", "minimum": 0},
        unpriced=_COUNT,
    ),
    "attribution": _object(
        rule=_TEXT,
        severity=_SEVERITY,
        text=_said(_TEXT, "What happened first, in a sentence."),
        event=_said(_or_null(_COUNT), "Its index in trace.jsonl; null: something was missing at the end."),
        turn=_or_null(_COUNT),
        call=_or_null(_TEXT),
        tool=_or_null(_TEXT),
        table=_or_null(_TEXT),
        key=_or_null({"type": "object", "additionalProperties": _or_null(_TEXT)}),
        consequences=_said(_list(_TEXT), "Rules that failed because of it."),
        independent=_said(_list(_TEXT), "Rules that would have failed without it."),
    ),
    "finding": _object(
        "table",
        "op",
        "key",
        "columns",
        "event",
        "quote",
        text=_TEXT,
        table=_TEXT,
        op={"enum": ["insert", "update", "delete"]},
        key={"type": "object", "additionalProperties": _or_null(_TEXT)},
        columns=_list(_TEXT),
        event=_COUNT,
        quote=_TEXT,
    ),
    "verdict": _object(
        "kind",
        "why",
        "tables",
        "words",
        rule=_TEXT,
        severity=_SEVERITY,
        status={"enum": ["pass", "fail", "unclear"]},
        source={"enum": ["assertion", "judge", "human"]},
        reason=_TEXT,
        findings=_list(_ref("finding")),
        vacuous=_FLAG,
        fault={"enum": ["rule", "judge", None]},
        asked=_or_null(
            _object(model=_TEXT, prompt=_TEXT, votes={"type": "object", "additionalProperties": _COUNT})
        ),
        kind=_TEXT,
        why=_TEXT,
        tables=_list(_TEXT),
        words=_list(_TEXT),
    ),
    "conversation": _object(
        id=_TEXT,
        case=_TEXT,
        persona=_TEXT,
        disposition=_TEXT,
        outcome={"enum": _OUTCOMES},
        turns=_COUNT,
        ending=_TEXT,
        fault=_or_null(_object(cause=_TEXT, message=_TEXT)),
        verdicts=_list(_ref("verdict")),
        changes_hash=_or_null(_TEXT),
        kept_fork=_or_null(_TEXT),
        late=_list(_TEXT),
        attacks=_list(
            _object(name=_TEXT, state={"enum": list(STATES)}, event=_or_null(_COUNT), broken=_list(_TEXT))
        ),
        seconds={"type": "number", "minimum": 0},
        repetition={"type": "integer", "minimum": 1},
        attribution=_or_null(_ref("attribution")),
        attestation=_or_null(_ref("attestation")),
    ),
}
