"""Rejudging: the rules once more over the evidence of a run. New verdicts are added, none is replaced.

    journal, locked ─► end states, where a rule asks for one ─► each conversation ─► verdicts.jsonl ─► journal

A rejudging that the journal does not tell of was cut off: its verdicts are there, and no comparison is.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.reading import finished_entries, read_conversations
from redteam_harness.evidence.run import fingerprint, rejudgings
from redteam_harness.evidence.trace import now
from redteam_harness.judging.compare import Compared, Left, Rejudgement, compare
from redteam_harness.judging.rebuild import NotRebuilt
from redteam_harness.launch.judge import about_rule
from redteam_harness.models.judge import ConversationJudge
from redteam_rubrics import COLLATERAL, Evidence, Functions, assert_rules, prompt_digest
from redteam_sdk.errors import EnvironmentFault, InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from redteam_harness.evidence.run import RunDirectory, StoredConversation
    from redteam_harness.judging.rebuild import EndStates
    from redteam_harness.launch.suite import Suite
    from redteam_harness.models.calls import ModelCalls
    from redteam_harness.models.judge import JudgeEndpoint
    from redteam_rubrics import Asserted, Gate, Rule, Verdict, World

__all__ = ["NOBODY", "RejudgeOptions", "Rejudging", "Ruled", "rejudge", "rules_for", "wants"]

_LONG_WAIT_S = 10.0
NOBODY = (
    "no model judges here: name one under `models: {judge: ...}` of the suite and set its key, "
    "or let the rules' `offline` answers stand with --offline"
)
"""Why a rule that asks a judge was not judged again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejudgeOptions:
    """What is judged again, and by whom.

    Attributes:
        rules: the rules by name, of the suite or of another file.
        only: names of rules to keep to; empty: all.
        offline: whether a rule's `offline` stands for the answer of a judge that is not there.
        parallel: how many conversations at once, at most.
    """

    rules: Mapping[str, Rule]
    only: frozenset[str]
    offline: bool
    parallel: int


async def rejudge(
    run: RunDirectory,
    suite: Suite,
    options: RejudgeOptions,
    *,
    calls: ModelCalls,
    model: JudgeEndpoint | None,
    end_states: EndStates | NotRebuilt,
    doing: Callable[[str], None],
) -> Compared:
    """Judge every conversation of a run again that was judged when it was held.

    Args:
        run: its evidence.
        suite: names the rules of each case, and what differences count.
        options: what is judged.
        calls: makes all calls of models.
        model: the judge; None: nobody is asked.
        end_states: rebuilds databases; or why none can be.
        doing: told what is being done.

    Raises:
        UsageError: a launcher is writing the run, nothing of it was judged, or `only` names a rule that
            there is not.
        EnvironmentFault: the evidence is damaged, cannot be written, or the database failed.
    """
    with Journal(run.journal, resume=True) as journal:
        entries = finished_entries(read_journal(run.journal))
        held = sorted(name for name, entry in entries.items() if entry["changes"])
        if not held:
            raise UsageError(f"run {run.id} has no conversation that was judged, so none to judge again")
        number = 1 + max(rejudgings(run), default=0)
        _check_only(suite, options)
        one = Rejudging(
            run=run,
            suite=suite,
            options=options,
            calls=calls,
            model=model,
            end_states=end_states,
            number=number,
            doing=doing,
        )
        results: dict[str, Rejudgement] = {}
        queue = read_conversations(run, held)

        async def work() -> None:
            for name, stored in queue:
                if calls.stopped is not None:
                    results[name] = one.not_begun(name, stored, calls.stopped)
                    continue
                doing(f"judging {name} ({len(results) + 1} of {len(held)})")
                results[name] = await one.of(name, stored)

        async with anyio.create_task_group() as workers:
            for _ in range(min(options.parallel, len(held))):
                workers.start_soon(work)
        compared = compare(run.id, number, [results[name] for name in held], calls.ledger.all)
        journal.append(
            "run_rejudged",
            rejudging=number,
            rules=fingerprint({name: rule.model_dump(mode="json") for name, rule in options.rules.items()}),
            only=sorted(options.only),
            judge=None if model is None else model.name,
            judge_prompts={
                name: prompt_digest(rule.judge)
                for name, rule in sorted(options.rules.items())
                if rule.judge is not None
            },
            verdicts=sum(len(result.after) for result in results.values()),
            changed=compared.changes,
            usage=[spent.to_json() for spent in calls.ledger.all],
        )
        return compared


def wants(only: frozenset[str], name: str, rule: Rule) -> bool:
    """Whether a rule has to be looked at: for its own verdict, or because it allows the gate something."""
    return not only or name in only or (COLLATERAL in only and rule.changes is not None)


def rules_for(suite: Suite, stored: StoredConversation, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules that apply to a conversation: those of its case, and those that no case names at all."""
    known = {case.id: case.rubric for case in suite.spec.cases}
    own = known.get(str(stored.about["case"]), stored.about["rubric"])
    elsewhere = {name for rubric in known.values() for name in rubric}
    return {name: rule for name, rule in rules.items() if name in own or name not in elsewhere}


def _check_only(suite: Suite, options: RejudgeOptions) -> None:
    known = {*options.rules, *([] if suite.gate == "off" else [COLLATERAL])}
    unknown = sorted(options.only - known)
    if unknown:
        raise UsageError(f"no rule {unknown[0]!r}; there are: {', '.join(sorted(known))}")


class _NoWorld:
    """The end state for rules that do not ask for it."""

    async def fetch(self, sql: str, args: Sequence[object]) -> list[Mapping[str, object]]:
        raise InternalError(f"a rule asked a database that is not there: {sql}")


class Ruled(NamedTuple):
    """What the rules say of a conversation, and those that could not say it."""

    verdicts: tuple[Verdict, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudging:
    """Judges the conversations of a run once more.

    Attributes:
        run: its evidence.
        suite: names the rules of each case, and what differences count.
        options: what is judged.
        calls: makes all calls of models.
        model: the judge; None: nobody is asked.
        end_states: rebuilds databases; or why none can be.
        number: of the rejudging in the run.
        doing: told what is being done.
    """

    run: RunDirectory
    suite: Suite
    options: RejudgeOptions
    calls: ModelCalls
    model: JudgeEndpoint | None
    end_states: EndStates | NotRebuilt
    number: int
    doing: Callable[[str], None]

    async def of(self, name: str, stored: StoredConversation) -> Rejudgement:
        """Judge one conversation, store the verdicts, and say what became of each."""
        rules = rules_for(self.suite, stored, self.options.rules)
        ruled = await self.ruled(name, stored)
        about = {"conversation": name, "attempt": stored.about.get("attempt", 1), "rejudging": self.number}
        self.run.append_verdicts(
            {**about, **verdict.to_json(), **about_rule(verdict.rule, rules)} for verdict in ruled.verdicts
        )
        return Rejudgement(conversation=name, before=stored.verdicts, after=ruled.verdicts, left=ruled.left)

    async def ruled(self, name: str, stored: StoredConversation) -> Ruled:
        """Judge one conversation; nothing is stored but what a judge is asked and answers."""
        rules = rules_for(self.suite, stored, self.options.rules)
        asking = {rule for rule, body in rules.items() if body.asks_database and self._wants(rule, rules)}
        left: list[Left] = []
        if asking:
            try:
                async with self._end_state(name, stored, rules, asking) as world:
                    asserted = await self._asserted(name, stored, rules, world)
            except (NotRebuilt, EnvironmentFault) as why:
                left = [Left(rule=rule, why=str(why)) for rule in rules if rule in asking]
                asserted = await self._without(name, stored, rules, asking, left)
        else:
            asserted = await self._asserted(name, stored, rules, _NoWorld())
        kept = []
        for verdict in await self._judged(name, asserted):
            if self._is_unasked(verdict):
                left.append(Left(rule=verdict.rule, why=NOBODY))
            elif not self.options.only or verdict.rule in self.options.only:
                kept.append(verdict)
        only = self.options.only
        return Ruled(tuple(kept), tuple(one for one in left if not only or one.rule in only))

    def not_begun(self, name: str, stored: StoredConversation, why: str) -> Rejudgement:
        """A conversation that is not judged again, because something of ours stopped that."""
        rules = [*rules_for(self.suite, stored, self.options.rules), COLLATERAL]
        only = self.options.only
        left = [Left(rule=rule, why=why) for rule in rules if not only or rule in only]
        return Rejudgement(conversation=name, before=stored.verdicts, after=(), left=tuple(left))

    def _wants(self, name: str, rules: Mapping[str, Rule]) -> bool:
        return wants(self.options.only, name, rules[name])

    def _is_unasked(self, verdict: Verdict) -> bool:
        """Whether a judge's verdict is only what stands for one."""
        return self.model is None and not self.options.offline and verdict.source == "judge"

    @asynccontextmanager
    async def _end_state(
        self, name: str, stored: StoredConversation, rules: Mapping[str, Rule], asking: set[str]
    ) -> AsyncIterator[World]:
        if isinstance(self.end_states, NotRebuilt):
            raise NotRebuilt(str(self.end_states))
        assert stored.changes is not None
        async with self.end_states.of(
            str(stored.about["case"]),
            stored.changes,
            label=f"{self.run.id}/{name}",
            before=any(rules[rule].looks_back for rule in asking),
        ) as world:
            yield world

    async def _without(
        self,
        name: str,
        stored: StoredConversation,
        rules: Mapping[str, Rule],
        asking: set[str],
        left: list[Left],
    ) -> Asserted:
        """What rules assert that need no end state; what the others allow is not known to the gate."""
        gate = self.suite.gate
        unknown = sorted(rule for rule in asking if rules[rule].changes is not None)
        if gate != "off" and unknown:
            gate = "off"
            left.append(Left(rule=COLLATERAL, why=f"what {', '.join(unknown)} allows is not known"))
        rest = {rule: body for rule, body in rules.items() if rule not in asking}
        return await self._asserted(name, stored, rest, _NoWorld(), gate=gate)

    async def _asserted(
        self,
        name: str,
        stored: StoredConversation,
        rules: Mapping[str, Rule],
        world: World,
        *,
        gate: Gate | None = None,
    ) -> Asserted:
        only = self.options.only
        wanted = {
            # Of a rule that is only looked at for the gate, nobody is asked.
            rule: body if not only or rule in only else body.model_copy(update={"judge": None})
            for rule, body in rules.items()
            if self._wants(rule, rules)
        }
        assert stored.changes is not None
        evidence = Evidence.from_json(
            conversation=name,
            persona=stored.about["row"],
            disposition=stored.about["disposition"],
            events=stored.events,
            changes=stored.changes,
            claimed=stored.about.get("claimed"),
        )
        no_gate = bool(only) and COLLATERAL not in only
        return await assert_rules(
            wanted,
            evidence,
            world,
            policies=self.suite.spec.compare,
            gate="off" if no_gate else gate or self.suite.gate,
            functions=Functions(folder=self.suite.folder),
        )

    async def _judged(self, name: str, asserted: Asserted) -> Sequence[Verdict]:
        judge = None
        if self.model is not None:
            judge = ConversationJudge(
                endpoint=self.model,
                run=self.run,
                conversation=name,
                asking=lambda: None,
                facts={"rejudging": self.number},
            )
        with self.calls.conversation(
            name, sink=partial(self._book, name), waiting=partial(self._waits, name)
        ):
            return await asserted.judged(judge)

    def _waits(self, name: str, what: str, seconds: float) -> None:
        if seconds >= _LONG_WAIT_S:
            self.doing(f"waiting {name}: {what}, {seconds:.0f} s")

    def _book(self, name: str, event: Mapping[str, Any]) -> None:
        self.run.append_judged(name, {"at": now(), "rejudging": self.number, **event})
