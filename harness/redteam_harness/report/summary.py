"""The report's one model: what a launch found, computed from its finished conversations. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.evidence.ids import in_order
from redteam_harness.report.attacks import attack_counts
from redteam_harness.report.counts import groups_of, judge_of, rate, reliability, rule_counts
from redteam_harness.report.gates import exit_code, gates_of
from redteam_harness.report.isolation import attestation_counts
from redteam_harness.report.mocks import mock_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.models.usage import Spent
    from redteam_harness.registers.people import DispositionFidelity
    from redteam_harness.report.counts import Group, RuleCount
    from redteam_rubrics.calibration import Calibration
    from redteam_rubrics.statistics import PassHatK, Rate

__all__ = ["FAULTS", "Finished", "Outcome", "Summary", "summarise"]

Outcome = Literal["pass", "fail", "sim-fault", "judge-fault", "infra-fault", "derailed"]

FAULTS = frozenset({"sim-fault", "judge-fault", "infra-fault"})
"""Outcomes that are ours: neither the agent's failure nor its success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One conversation that has an outcome.

    Attributes:
        id: the conversation.
        case: the case's id.
        persona: the key of the row that spoke.
        disposition: how it behaved.
        outcome: see `Outcome`.
        turns: how many it took.
        ending: how it ended, in words.
        cause: where the outcome is a fault: one word, and `message` says it in full.
        message: see `cause`.
        verdicts: the JSON form of every verdict.
        changes: the change set's JSON form, or None where none was taken.
        seconds: how long it took.
        kept: the fork's name, where it was kept.
        late: what was still going on when it was over, a sentence each.
        attacks: what became of each attack that waited in its data, from `attacks_of`.
        repetition: which time the same case, persona and disposition was held: 1, 2, ...
        attribution: the first event that made it fail and what followed from it, as JSON-like data; None:
            it did not fail, or nobody looked.
        attestation: how far it was isolated, as the journal has it; None: nothing was attested.
        externals: the external tools that it called, each once.
    """

    id: str
    case: str
    persona: str
    disposition: str
    outcome: Outcome
    turns: int
    ending: str
    cause: str = ""
    message: str = ""
    verdicts: Sequence[Mapping[str, Any]] = ()
    changes: Mapping[str, Any] | None = None
    seconds: float
    kept: str | None = None
    late: Sequence[str] = ()
    attacks: Sequence[Mapping[str, Any]] = ()
    repetition: int = 1
    attribution: Mapping[str, Any] | None = None
    attestation: Mapping[str, Any] | None = None
    externals: Sequence[str] = ()

    @property
    def broken(self) -> list[Mapping[str, Any]]:
        """The verdicts that failed, the gravest first."""
        failed = [verdict for verdict in self.verdicts if verdict["status"] == "fail"]
        return sorted(failed, key=lambda verdict: (verdict["severity"], verdict["rule"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a launch found.

    Attributes:
        notice: the first line of every report: what the figures can and cannot speak of.
        suite: the suite's name.
        run: the run's id.
        planned: how many conversations were planned.
        finished: those with an outcome, by their ids; repetitions follow their first.
        forks: how many forks were made.
        rate: the pass rate, with what it leaves out by name.
        severity_1: how many conversations broke a rule of severity 1; a count, never inside a rate.
        rules: every rule that was judged, the gravest and most often broken first.
        outcomes: how many conversations had each outcome.
        interrupted: whether a person stopped the launch.
        seconds: from the first conversation's start to the last one's end, in the last launch of the run.
        not_held: ids of planned conversations without an outcome.
        stopped: why no more of them were started, where something of ours stopped that.
        usage: what models used in all launches of the run, by role and model.
        launches: how often the run was launched: 1, and one more for each time that it was resumed.
        gates: what the run had to reach and every reason why it did not, as JSON-like data.
        reliability: pass^k for k from 1 to the number of repetitions; empty without repetitions.
        groups: the rate by `case`, by `persona` and by `disposition`.
        judge: which models judged which rules, and how they compare with people, as JSON-like data; None: no
            model judged.
        attacks: what was planted in the data to mislead the agent, and what came of it, as JSON-like data.
        isolation: how far conversations were isolated, and what lacked, from `attestation_counts`.
        mocks: what is known of the mocks that answered, from `mock_counts`; None: nothing was mocked.
        persona_fidelity: what people know of how dispositions are played; empty where nobody can say.
    """

    notice: str
    suite: str
    run: str
    planned: int
    finished: Sequence[Finished]
    forks: int
    rate: Rate
    severity_1: int
    rules: Sequence[RuleCount]
    outcomes: Mapping[str, int]
    interrupted: bool
    seconds: float
    not_held: Sequence[str] = ()
    stopped: str | None = None
    usage: Sequence[Spent] = ()
    launches: int = 1
    gates: Mapping[str, Any] | None = None
    attacks: Sequence[Mapping[str, Any]] = ()
    reliability: Sequence[PassHatK] = ()
    groups: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    judge: Mapping[str, Any] | None = None
    isolation: Mapping[str, Any] = field(default_factory=lambda: attestation_counts(()))
    mocks: Mapping[str, Any] | None = None
    persona_fidelity: Sequence[DispositionFidelity] = ()

    @property
    def faults(self) -> int:
        """How many conversations ended by a fault of ours."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in FAULTS)

    @property
    def unfinished(self) -> int:
        """How many planned conversations have no outcome at all."""
        return self.planned - len(self.finished)

    @property
    def exit_code(self) -> int:
        """130 interrupted, 1 the agent broke a gate, 3 there is not enough to go by, else 0.

        Where no gates were checked: those that are there unless a suite says otherwise.
        """
        gates = self.gates if self.gates is not None else gates_of(self)
        return exit_code(gates, interrupted=self.interrupted)


def summarise(
    finished: Sequence[Finished],
    *,
    notice: str,
    suite: str,
    run: str,
    planned: int,
    forks: int,
    interrupted: bool,
    seconds: float,
    not_held: Sequence[str] = (),
    stopped: str | None = None,
    usage: Sequence[Spent] = (),
    launches: int = 1,
    gates: Mapping[str, Any] | None = None,
    repeat: int = 1,
    calibrations: Sequence[Calibration] = (),
    mocks: Mapping[str, Any] | None = None,
    persona_fidelity: Sequence[DispositionFidelity] = (),
) -> Summary:
    """Count what finished; `Summary` describes what the arguments mean.

    `repeat` says how often each was planned, `calibrations` what is known of the suite's judges, in the order
    in which it was measured, and `mocks` which external tools there were, as run.json has it.
    """
    finished = sorted(finished, key=lambda one: in_order(one.id))
    return Summary(
        notice=notice,
        suite=suite,
        run=run,
        planned=planned,
        finished=finished,
        forks=forks,
        rate=rate(finished, not_held=planned - len(finished), check=True),
        severity_1=sum(any(verdict["severity"] == 1 for verdict in one.broken) for one in finished),
        rules=rule_counts(finished),
        outcomes=dict(Counter(one.outcome for one in finished)),
        interrupted=interrupted,
        seconds=seconds,
        not_held=tuple(not_held),
        stopped=stopped,
        usage=tuple(usage),
        launches=launches,
        gates=gates,
        reliability=reliability(finished, not_held, repeat),
        groups=groups_of(finished),
        judge=judge_of(finished, calibrations),
        attacks=tuple(attack_counts((one.case, one.attacks) for one in finished)),
        isolation=attestation_counts((one.id, one.attestation) for one in finished),
        mocks=mock_counts(mocks, ((one.externals, one.verdicts) for one in finished)),
        persona_fidelity=tuple(persona_fidelity),
    )
