"""`redteam label`: a person's own verdicts, given without seeing those of the judge."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from rich.console import Console

from redteam_forker.changes.render import visible
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import open_run, read_conversation
from redteam_harness.evidence.trace import now
from redteam_harness.people.dialogue import Dialogue, check_name
from redteam_harness.people.judged import latest_verdicts
from redteam_harness.people.labels import (
    LABELS,
    StoredLabel,
    append_label,
    evidence_hash,
    last_said,
    read_labels,
)
from redteam_harness.people.questions import questions_of
from redteam_harness.registers.people import suite_folder_of
from redteam_harness.report.terminal import print_conversation
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.people.judged import LatestVerdict
    from redteam_rubrics import Status

__all__ = ["LabelCommand", "run_label"]

_HELP = "p pass, f fail, u unclear, and why in the same line; s skip, b back, v view again, q quit"
_STATUSES: dict[str, Status] = {
    "p": "pass",
    "pass": "pass",
    "f": "fail",
    "fail": "fail",
    "u": "unclear",
    "unclear": "unclear",
}
_MOVES: dict[str, Literal["skip", "back", "view", "quit", "help"]] = {
    "s": "skip",
    "skip": "skip",
    "b": "back",
    "back": "back",
    "v": "view",
    "view": "view",
    "q": "quit",
    "quit": "quit",
    "?": "help",
    "help": "help",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCommand:
    """What `redteam label` was asked to do.

    Attributes:
        run: a run's path, name, or `latest`.
        conversation: only this one, also where it is labelled already.
        rules: only these; empty: those that a judge decided.
        all: every rule, assertions too.
        who: the person's name; None: this user's.
        order: the seed by which conversations are shuffled.
        verdicts: whether the verdicts are shown; such labels calibrate nothing.
        suite: where the suite is now; None: where it was launched from.
        out: where runs are kept.
    """

    run: str
    conversation: str | None
    rules: tuple[str, ...]
    all: bool
    who: str | None
    order: int
    verdicts: bool
    suite: Path | None
    out: Path


class _Item(NamedTuple):
    """One question: a conversation by a rule."""

    verdict: LatestVerdict
    evidence: str
    before: StoredLabel | None


class _Answer(NamedTuple):
    status: Status
    reason: str


def run_label(command: LabelCommand, console: Console | None = None, source: TextIO | None = None) -> int:
    """Ask a person for verdicts, and keep each as it is given.

    Args:
        command: what to ask.
        console: where to; default: standard output.
        source: where answers come from; default: standard input.

    Returns:
        The exit code: 0, whether or not everything was labelled.

    Raises:
        UsageError: there is no such run, conversation or rule, or nobody to ask.
        EnvironmentFault: a file cannot be read, or a label not be written; those before it are kept.
    """
    console = console or Console(highlight=False)
    run = open_run(command.run, command.out)
    session = _Session(command, run, console)
    items = session.items()
    if not items:
        _say(console, f"{session.who} has labelled all of it; name a conversation to correct a label")
        return 0
    try:
        session.ask_all(items, source)
    finally:
        left = len(items) - len(session.given)
        if session.given:
            console.print()
            _say(console, f"kept {_count(len(session.given), 'label')} in {run.path / LABELS}; {left} to go")
            _say(console, f"next: redteam judge calibrate {run.path}")
    return 0


class _Session:
    """One sitting of one person."""

    def __init__(self, command: LabelCommand, run: RunDirectory, console: Console) -> None:
        self.who = check_name(command.who)
        self.given: set[tuple[str, str]] = set()
        self._command, self._run, self._console = command, run, console
        facts = read_facts(run)
        self._notice = str(facts["notice"])
        self._questions = questions_of(command.suite or suite_folder_of(facts), facts)
        self._shown: str | None = None

    def items(self) -> list[_Item]:
        """What is to be asked, in the order in which it is."""
        verdicts = _chosen(latest_verdicts(self._run), self._command, self._run)
        said = last_said(read_labels(self._run.path / LABELS))
        evidence = {name: evidence_hash(self._run.conversation(name)) for name in _names(verdicts)}
        found = []
        for verdict in verdicts:
            before = said.get((self.who, self._run.id, verdict.conversation, verdict.rule))
            if before is not None and before.evidence != evidence[verdict.conversation]:
                before = None  # it was held again since
            # Whoever names a conversation wants to see it, and to correct what was said of it.
            if before is None or self._command.conversation is not None:
                found.append(_Item(verdict, evidence[verdict.conversation], before))
        place = {name: number for number, name in enumerate(_shuffled(_names(verdicts), self._command.order))}
        return sorted(found, key=lambda item: place[item.verdict.conversation])

    def ask_all(self, items: Sequence[_Item], source: TextIO | None) -> None:
        """Ask until the last item, the end of the input, or `quit`."""
        dialogue = Dialogue(
            self._console, source, wants="lines such as `pass`, or `fail it never asked who calls`"
        )
        if dialogue.terminal:
            _say(self._console, f"labelling as {self.who}: {_HELP}")
        at = 0
        while at < len(items) or self._goes_back(dialogue):
            at = min(at, len(items) - 1)
            item = items[at]
            self._show(item, f"{at + 1} of {len(items)}")
            match self._answer(dialogue):
                case None | "quit":
                    return
                case "skip":
                    at += 1
                case "back":
                    if at == 0:
                        _say(self._console, "this is the first one")
                    at = max(0, at - 1)
                case "view":
                    self._shown = None
                case "help":
                    _say(self._console, _HELP)
                case _Answer(status=status, reason=reason):
                    label = self._keep(item, status, reason)
                    items = [*items[:at], item._replace(before=label), *items[at + 1 :]]
                    at += 1

    def _goes_back(self, dialogue: Dialogue) -> bool:
        """After the last one: whether the person wants to correct it. A pipe has nothing to correct."""
        if not dialogue.terminal:
            return False
        said = dialogue.ask("That was the last one. Enter to finish, b to go back: ")
        return said is not None and said.casefold() in ("b", "back")

    def _answer(self, dialogue: Dialogue) -> _Answer | str | None:
        line = dialogue.ask("> ")
        if line is None:
            return None
        word, _, reason = line.partition(" ")
        if (move := _MOVES.get(word.casefold())) is not None and not reason:
            return move
        if (status := _STATUSES.get(word.casefold().rstrip(":"))) is None:
            dialogue.misheard(line, _HELP)
            return "again"
        reason = reason.strip()
        if not reason and dialogue.terminal:
            reason = dialogue.ask("why, in a few words (Enter: no reason): ") or ""
        return _Answer(status, reason)

    def _keep(self, item: _Item, status: Status, reason: str) -> StoredLabel:
        question = self._questions.get(item.verdict.rule)
        label = StoredLabel(
            at=now(),
            run=self._run.id,
            conversation=item.verdict.conversation,
            rule=item.verdict.rule,
            status=status,
            reason=reason,
            who=self.who,
            evidence=item.evidence,
            question=question.text if question else None,
            prompt=question.prompt if question else None,
            blind=not self._command.verdicts,
        )
        append_label(self._run.path / LABELS, label)
        self.given.add((label.conversation, label.rule))
        return label

    def _show(self, item: _Item, place: str) -> None:
        verdict = item.verdict
        if verdict.conversation != self._shown:
            stored = read_conversation(self._run, verdict.conversation)
            if not self._command.verdicts:
                stored = replace(stored, verdicts=(), rejudged=())
            self._console.print()
            print_conversation(self._console, stored, self._notice)
            self._shown = verdict.conversation
        self._console.print()
        _say(
            self._console, f"[{place}] {verdict.conversation} · {verdict.rule} (severity {verdict.severity})"
        )
        question = self._questions.get(verdict.rule)
        for line in (question.text if question else "", verdict.why):
            if line:
                _say(self._console, f"  {line}")
        if question and verdict.asked and question.prompt != verdict.asked.prompt:
            _say(self._console, "  (the judge was asked in other words; `redteam judge` asks it in these)")
        if item.before is not None:
            why = f": {item.before.reason}" if item.before.reason else ""
            _say(self._console, f"  you said {item.before.status}{why}; s keeps it")


def _chosen(
    verdicts: Sequence[LatestVerdict], command: LabelCommand, run: RunDirectory
) -> list[LatestVerdict]:
    """What a person may be asked about.

    Raises:
        UsageError: nothing is.
    """
    if command.conversation is not None:
        read_conversation(run, command.conversation)  # says which there are
        verdicts = [one for one in verdicts if one.conversation == command.conversation]
        if not verdicts:
            raise UsageError(f"{command.conversation} has no verdict, so there is nothing to label")
    known = sorted({one.rule for one in verdicts})
    unknown = [rule for rule in command.rules if rule not in known]
    if unknown:
        raise UsageError(
            f"no verdict is by rule {unknown[0]!r}; there are verdicts by: {', '.join(known) or 'none'}"
        )
    if command.rules:
        return [one for one in verdicts if one.rule in command.rules]
    chosen = [one for one in verdicts if command.all or one.source == "judge"]
    if not chosen:
        raise UsageError(
            f"run {run.id} has no verdict by a judge; --all labels what assertions decided, too"
            if verdicts
            else f"run {run.id} has no verdict yet, so there is nothing to label"
        )
    return chosen


def _names(verdicts: Sequence[LatestVerdict]) -> list[str]:
    return sorted({one.conversation for one in verdicts})


def _shuffled(names: Sequence[str], seed: int) -> list[str]:
    """The same order for everybody, so that people who stop early labelled the same conversations."""
    return random.Random(f"label {seed}").sample(names, len(names))  # noqa: S311 - a sample, no secret


def _say(console: Console, text: str) -> None:
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
