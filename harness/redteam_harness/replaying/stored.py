"""Level 1: the rules and reports once more over the evidence of a run, without a model, the same each time.

What comes of it is a run of its own, with the evidence copied into it: it is read, compared and reported as
any other. Its name hangs on what it holds, and its times are the recorded ones, so that a replay of the same
evidence by the same rules is the same directory, byte for byte.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.reading import finished_entries, read_conversations, read_facts
from redteam_harness.evidence.run import RunDirectory, fingerprint
from redteam_harness.evidence.storage import write_json, writing
from redteam_harness.judging.compare import Rejudgement, compare
from redteam_harness.judging.rejudge import NOBODY, Rejudging, rules_for
from redteam_harness.launch.judge import about_rule
from redteam_harness.report.rendering import write_reports
from redteam_harness.report.stored import Ended, read_report
from redteam_rubrics import COLLATERAL, Verdict, outcome_of, prompt_digest
from redteam_rubrics.collateral import COLLATERAL_SEVERITY
from redteam_sdk import __version__
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.evidence.run import StoredConversation
    from redteam_harness.judging.compare import Compared, Left
    from redteam_harness.launch.suite import Suite
    from redteam_harness.report.summary import Summary
    from redteam_rubrics import Rule

__all__ = ["Replayed", "replay_stored"]

_CHAIN = frozenset({"kind", "prev", "hash"})
_APPENDED = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replay of level 1.

    Attributes:
        run: its directory.
        summary: what it found.
        compared: the verdicts beside those of the launch.
        existed: whether it was there before, with the same bytes.
    """

    run: RunDirectory
    summary: Summary
    compared: Compared
    existed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    result: Rejudgement
    lines: Sequence[Mapping[str, Any]]


async def replay_stored(base: RunDirectory, suite: Suite, rejudging: Rejudging, out: Path) -> Replayed:
    """Judge every conversation of a run by the suite's rules, and write what a launch would have.

    Args:
        base: the run; only read.
        suite: whose rules.
        rejudging: judges; asks no model.
        out: the directory that takes the replay's.

    Raises:
        UsageError: nothing of the run was held; or a replay of this name is there, and holds something else.
        EnvironmentFault: the evidence is damaged, or cannot be written.
    """
    facts = read_facts(base)
    if not base.journal.exists():
        raise UsageError(f"run {base.id} never began its first conversation; there is nothing to replay")
    entries = read_journal(base.journal)
    held = finished_entries(entries)
    judged = await _judge_all(base, suite, rejudging, facts, held)
    parts = {**facts["comparability"], **_rule_parts(suite), "redteam": __version__}
    parts["key"] = fingerprint({name: value for name, value in parts.items() if name != "key"})
    lines = [line for name in held for line in (judged[name].lines if name in judged else ())]
    digest = fingerprint([base.id, entries[-1]["hash"], parts["key"], lines])[:6]
    run = RunDirectory(id=f"{base.id}-{digest}", path=out / f".{base.id}-{digest}.part")
    about = {
        **facts,
        "notice": f"replay of {base.id}, level 1; {facts['notice']}",
        "run": run.id,
        "suite_at": str(suite.document.path.absolute()),
        "comparability": parts,
        "replay": {"of": base.id, "level": 1, "escalate": False, "evidence": entries[-1]["hash"]},
    }
    shutil.rmtree(run.path, ignore_errors=True)
    try:
        with writing(run.path):
            run.path.mkdir(parents=True)
            for name in held:
                shutil.copytree(base.conversation(name), run.conversation(name))
        write_json(run.facts, about)
        run.append_verdicts(lines)
        summary = _write_journal(run, entries, held, judged)
        write_reports(run, summary)
        final, existed = _put(run, out / run.id)
    finally:
        shutil.rmtree(run.path, ignore_errors=True)
    compared = compare(run.id, 0, [judged[name].result for name in held if name in judged], ())
    return Replayed(run=final, summary=summary, compared=compared, existed=existed)


async def _judge_all(
    base: RunDirectory,
    suite: Suite,
    rejudging: Rejudging,
    facts: Mapping[str, Any],
    held: Mapping[str, Mapping[str, Any]],
) -> dict[str, _Judged]:
    unchanged = facts["comparability"]["rules"] == _rule_parts(suite)["rules"]
    queue = read_conversations(base, [name for name, entry in held.items() if entry["changes"]])
    judged: dict[str, _Judged] = {}

    async def work() -> None:
        for name, stored in queue:
            rejudging.doing(f"judging {name} ({len(judged) + 1} of {len(held)})")
            judged[name] = await _judge(name, stored, suite, rejudging, unchanged=unchanged)

    async with anyio.create_task_group() as workers:
        for _ in range(rejudging.options.parallel):
            workers.start_soon(work)
    return judged


async def _judge(
    name: str, stored: StoredConversation, suite: Suite, rejudging: Rejudging, *, unchanged: bool
) -> _Judged:
    rules = rules_for(suite, stored, rejudging.options.rules)
    ruled = await rejudging.ruled(name, stored)
    found = {verdict.rule: verdict for verdict in ruled.verdicts}
    for left in ruled.left:
        found[left.rule] = _standing(left, stored, rules, unchanged=unchanged)
    verdicts = [found[rule] for rule in (*rules, COLLATERAL) if rule in found]
    about = {"conversation": name, "attempt": stored.about.get("attempt", 1)}
    return _Judged(
        result=Rejudgement(
            conversation=name, before=stored.verdicts, after=tuple(verdicts), left=tuple(ruled.left)
        ),
        lines=[{**about, **verdict.to_json(), **about_rule(verdict.rule, rules)} for verdict in verdicts],
    )


def _standing(
    left: Left, stored: StoredConversation, rules: Mapping[str, Rule], *, unchanged: bool
) -> Verdict:
    """What stands where a rule cannot be judged here: the recorded verdict, if it was of the same rule."""
    rule = rules.get(left.rule)
    judge = None if rule is None else rule.judge
    recorded = [
        Verdict.from_json(verdict)
        for verdict in (*stored.verdicts, *stored.rejudged)
        if verdict["rule"] == left.rule
    ]
    if judge is not None and left.why == NOBODY:
        asked = prompt_digest(judge)
        recorded = [one for one in recorded if one.asked is not None and one.asked.prompt == asked]
        why = "no answer of a judge to what this rule asks now is in the evidence; `redteam judge` asks one"
    else:
        recorded = recorded[:1] if unchanged else []
        why = left.why
    severity = COLLATERAL_SEVERITY if rule is None else rule.severity
    if recorded:
        return replace(recorded[-1], severity=severity)
    return Verdict(
        rule=left.rule,
        severity=severity,
        status="unclear",
        source="assertion",
        reason=why,
        fault="judge" if judge is not None else "rule",
    )


def _rule_parts(suite: Suite) -> dict[str, Any]:
    """The parts of a comparability key that the rules decide, as `launch.facts` has them."""
    parts: dict[str, Any] = {
        "rules": fingerprint(suite.rules_document.data),
        "compare": fingerprint(suite.spec.compare.model_dump(mode="json")),
        "collateral": suite.spec.collateral,
    }
    if suite.questions:
        parts["judge_prompts"] = {name: prompt_digest(spec) for name, spec in sorted(suite.questions.items())}
    return parts


def _write_journal(
    run: RunDirectory,
    entries: Sequence[Mapping[str, Any]],
    held: Mapping[str, Mapping[str, Any]],
    judged: Mapping[str, _Judged],
) -> Summary:
    """The journal anew, with the recorded times and the outcomes of now."""
    with Journal(run.journal) as journal:
        journal.append("run_started", **{**_facts_of(entries[0]), "run": run.id})
        for name, entry in held.items():
            facts = _facts_of(entry)
            if name in judged:
                facts |= _outcome(judged[name].result.after)
            journal.append("conversation_finished", **facts)
        last = entries[-1]
        if last["kind"] != "run_ended" or "forks" not in last:
            return read_report(run)
        summary = read_report(run, Ended.from_json(last))
        journal.append("run_ended", **{**_facts_of(last), "exit_code": summary.exit_code})
        return summary


def _facts_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in _CHAIN}


def _outcome(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    outcome = outcome_of(verdicts)
    unclear = [f"{one.rule}: {one.reason}" for one in verdicts if one.status == "unclear"]
    is_open = outcome == "judge-fault"
    return {
        "outcome": outcome,
        "cause": "undecided" if is_open and unclear else "",
        "message": "; ".join(unclear) if is_open else "",
    }


def _put(run: RunDirectory, final: Path) -> tuple[RunDirectory, bool]:
    """Give the directory its name; one that is there already must hold the same, and may hold more.

    Raises:
        UsageError: it does not.
    """
    placed = RunDirectory(id=run.id, path=final)
    if not final.exists():
        with writing(final):
            run.path.rename(final)
        return placed, False
    for path in sorted(run.path.rglob("*")):
        there = final / path.relative_to(run.path)
        if path.is_file() and not _is_same(path, there):
            raise UsageError(
                f"{there} is not what this replay comes to, although rules and evidence are the same: "
                f"calibrations or the report's form changed since; move {final} away and replay again"
            )
    return placed, True


def _is_same(made: Path, there: Path) -> bool:
    if not there.is_file():
        return False
    now, then = made.read_bytes(), there.read_bytes()
    # To what is append-only a later command may have added.
    return then.startswith(now) if made.suffix == _APPENDED else then == now
