"""What a rule says about a conversation, and what the conversation's outcome is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Asked", "Fault", "Finding", "Outcome", "Ruling", "Source", "Status", "Verdict", "outcome_of"]

Status = Literal["pass", "fail", "unclear"]
Source = Literal["assertion", "judge", "human"]
Outcome = Literal["pass", "fail", "judge-fault"]

Fault = Literal["rule", "judge"]
"""Why a rule is unclear though it should not be: it failed itself, or its judge could not be heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation behind a verdict, for a reader who is no engineer, with references to the evidence.

    Attributes:
        text: a short sentence.
        table: the table of the row it is about, as rules write it: `patients`, or `billing.claims`.
        op: what happened to that row: insert, update or delete; None: it is about no row that can be shown.
        key: the key of that row, as text; None without a row, or when its table has no key.
        columns: the columns that changed.
        event: the index of the trace event it is about: a line, a tool call, or the call that wrote the row.
        quote: the words of the evidence that a judge gave for it, as they are there; None: no judge said so.
    """

    text: str
    table: str | None = None
    op: str | None = None
    key: Mapping[str, str | None] | None = None
    columns: tuple[str, ...] = ()
    event: int | None = None
    quote: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data; what is not set is left out."""
        facts: dict[str, Any] = {
            "text": self.text,
            "table": self.table,
            "op": self.op,
            "key": None if self.key is None else dict(self.key),
            "columns": list(self.columns) or None,
            "event": self.event,
            "quote": self.quote,
        }
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """The reverse of `to_json`."""
        return cls(
            text=data["text"],
            table=data.get("table"),
            op=data.get("op"),
            key=data.get("key"),
            columns=tuple(data.get("columns", ())),
            event=data.get("event"),
            quote=data.get("quote"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which judge answered, so that a calibration can say whether it speaks of this one.

    Attributes:
        model: the model's id.
        prompt: SHA-256, in hexadecimal, of all that is asked and is the same for every conversation:
            `judge.prompt_digest` says what that is.
        votes: how often each answer was given: yes, no, unclear, and `unheard` where none could be had.
    """

    model: str
    prompt: str
    votes: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {"model": self.model, "prompt": self.prompt, "votes": dict(self.votes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Asked:
        """The reverse of `to_json`."""
        return cls(model=data["model"], prompt=data["prompt"], votes=dict(data["votes"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The answer of a rule's body, before it has a name and a severity.

    Attributes:
        status: whether the rule holds.
        reason: one sentence.
        findings: what broke the rule, or what left it unclear.
        vacuous: the rule passed because there was nothing it could have failed on (the tool it speaks of was
            never called, no row of its tables changed). It is a pass that supports nothing; count it apart.
        fault: where it is unclear because something of ours failed; None otherwise.
        asked: the judge that answered, where one did.
    """

    status: Status
    reason: str
    findings: tuple[Finding, ...] = ()
    vacuous: bool = False
    fault: Fault | None = None
    asked: Asked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one rule says about one conversation.

    Attributes:
        rule: its name; `collateral` is the gate that is on in every case.
        severity: 1 (worst) to 3.
        source: who said so.

    The rest is described at `Ruling`.
    """

    rule: str
    severity: int
    status: Status
    source: Source
    reason: str
    findings: tuple[Finding, ...] = ()
    vacuous: bool = False
    fault: Fault | None = None
    asked: Asked | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data, for `verdicts.jsonl` and reports."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "status": self.status,
            "source": self.source,
            "reason": self.reason,
            "findings": [finding.to_json() for finding in self.findings],
            "vacuous": self.vacuous,
            "fault": self.fault,
            "asked": None if self.asked is None else self.asked.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """The reverse of `to_json`."""
        return cls(
            rule=data["rule"],
            severity=data["severity"],
            status=data["status"],
            source=data["source"],
            reason=data["reason"],
            findings=tuple(Finding.from_json(finding) for finding in data["findings"]),
            vacuous=data["vacuous"],
            fault=data["fault"],
            asked=None if data["asked"] is None else Asked.from_json(data["asked"]),
        )


def outcome_of(verdicts: Iterable[Verdict]) -> Outcome:
    """The outcome that a conversation's verdicts add up to.

    One failure is a failure, whatever else was said: no further verdict can take it back. Otherwise one
    unclear verdict makes it a fault of the judge, because neither a pass nor a failure was shown. No verdict
    at all is also a fault of the judge: nothing was checked.
    """
    statuses = {verdict.status for verdict in verdicts}
    if "fail" in statuses:
        return "fail"
    return "pass" if statuses == {"pass"} else "judge-fault"
