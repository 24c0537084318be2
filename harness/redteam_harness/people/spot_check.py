"""`redteam personas spot-check`: a reviewer looks at simulated people, and what was seen is put on file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from rich.console import Console

from redteam_forker.changes.render import visible
from redteam_harness.evidence.appending import append_line, read_lines
from redteam_harness.evidence.reading import read_facts
from redteam_harness.evidence.run import StoredConversation, open_run, read_conversation
from redteam_harness.evidence.trace import now
from redteam_harness.people.dialogue import Dialogue, check_name
from redteam_harness.people.figures import near, print_fidelity
from redteam_harness.people.labels import evidence_hash
from redteam_harness.people.sampling import MixedLine, blind_mix, manners, read_real_lines, sample, told_in
from redteam_harness.registers.fidelity import Answer, Guess, Played, fidelity_of
from redteam_harness.registers.people import (
    FIDELITY,
    append_fidelity,
    fidelity_checks,
    register_folder,
)
from redteam_harness.report.terminal import print_conversation
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.registers.fidelity import FidelityCheck, Question

__all__ = ["ANSWERS", "SpotCheckCommand", "run_spot_check"]

ANSWERS = "spot-checks.jsonl"

_QUESTIONS: tuple[Question, ...] = ("in-character", "gave-in", "too-soon", "abandoned")
_ASKED: dict[Question, str] = {
    "in-character": "Did the person do what somebody does who is {disposition}?  (y, n, ? cannot say)",
    "gave-in": "In which turn did the person give in to the agent?  (a number, n never, ? cannot say)",
    "too-soon": "Was that too soon for somebody who is {disposition}?  (y, n, ? cannot say)",
    "abandoned": "Was it talked out of what it came for: gone without it, though it could have gone on?"
    "  (y, n, ? cannot say)",
}
_MOVES = {"skip": "skip", "b": "back", "back": "back", "q": "quit", "quit": "quit"}
_MORE = "skip, b back, q quit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotCheckCommand:
    """What `redteam personas spot-check` was asked to do.

    Attributes:
        run: a run's path, name, or `latest`.
        per: how many conversations of each disposition.
        lines: a file of what real people wrote; None: there is no blind mix.
        mix: how many lines of each kind are mixed at most.
        seed: decides which conversations and lines.
        who: the reviewer's name; None: this user's.
        suite: where the suite is now; None: where it was launched from.
        out: where runs are kept.
    """

    run: str
    per: int
    lines: Path | None
    mix: int
    seed: int
    who: str | None
    suite: Path | None
    out: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One question: about a line of the mix, or about a conversation."""

    line: MixedLine | None = None
    conversation: str = ""
    question: Question = "in-character"

    @property
    def key(self) -> tuple[str, str]:
        """Names it in the file of answers."""
        return ("line", self.line.key) if self.line is not None else (self.conversation, self.question)

    def hangs_on(self, other: _Step) -> bool:
        """Whether it makes no sense without an answer to the other."""
        return (
            self.question == "too-soon"
            and other.question == "gave-in"
            and self.conversation == other.conversation
        )


def run_spot_check(
    command: SpotCheckCommand, console: Console | None = None, source: TextIO | None = None
) -> int:
    """Ask a reviewer, keep each answer as it is given, and put the result on file in the end.

    Args:
        command: what to ask about.
        console: where to; default: standard output.
        source: where answers come from; default: standard input.

    Returns:
        The exit code: 0, whatever was found.

    Raises:
        UsageError: there is no such run or suite, nothing to look at, or nobody to ask.
        EnvironmentFault: a file cannot be read or written; answers before it are kept.
    """
    console = console or Console(highlight=False)
    run = open_run(command.run, command.out)
    facts = read_facts(run)
    folder = register_folder(facts, command.suite)
    review = _Review(command, run, facts, folder, console)
    try:
        review.ask_all(source)
    finally:
        review.farewell()
    checks = review.checks()
    fresh = _put_on_file(checks, folder)
    print_fidelity(console, checks)
    review.print_abandoned()
    _say(
        console,
        f"{fresh} of {len(checks)} put on file in {near(folder / FIDELITY)}" if checks else "nothing to keep",
    )
    return 0


class _Review:
    """What one reviewer says of one sample."""

    def __init__(
        self,
        command: SpotCheckCommand,
        run: RunDirectory,
        facts: Mapping[str, Any],
        folder: Path,
        console: Console,
    ) -> None:
        self._run, self._facts, self._console = run, facts, console
        self._who, self._seed = check_name(command.who), command.seed
        chosen = sample(run, facts, per=command.per, seed=command.seed)
        self._stored: dict[str, StoredConversation] = {
            name: read_conversation(run, name) for ids in chosen.values() for name in ids
        }
        self._played = [
            Played(id=name, disposition=disposition, told=told_in(self._stored[name]))
            for disposition, ids in chosen.items()
            for name in ids
        ]
        self._manners = manners(folder, facts["comparability"]["dispositions"])
        self._evidence = {name: evidence_hash(run.conversation(name)) for name in self._stored}
        self._mixed = self._mix(command)
        self._said: dict[tuple[str, str], Mapping[str, Any]] = {}
        for number, line in enumerate(read_lines(run.path / ANSWERS), start=1):
            try:
                if (line["who"], line["seed"]) == (self._who, self._seed) and self._holds(line):
                    self._take(line)
            except (KeyError, TypeError, ValueError) as error:
                what = f"{type(error).__name__}: {error}"
                raise EnvironmentFault(
                    f"{run.path / ANSWERS}:{number}: this is no answer ({what}); restore the line"
                ) from None
        self._shown = ""
        self._given = 0

    def _mix(self, command: SpotCheckCommand) -> list[MixedLine]:
        if command.lines is None:
            return []
        spoken = [
            (one.disposition, str(event["text"]))
            for one in self._played
            for event in self._stored[one.id].events
            if event["kind"] == "user"
        ]
        mixed = blind_mix(spoken, read_real_lines(command.lines), most=command.mix, seed=command.seed)
        if not mixed:
            raise UsageError(f"--lines {command.lines} holds no line that the personas did not say, too")
        return mixed

    def _holds(self, line: Mapping[str, Any]) -> bool:
        """Whether an answer is about what there is now: a conversation may have been held again."""
        name = line["about"][0]
        return bool(name == "line" or line["evidence"] == self._evidence.get(name))

    def _take(self, line: Mapping[str, Any]) -> None:
        """An answer counts in place of the one before it, and of what had followed from that."""
        name, question = line["about"]
        if question == "gave-in":
            self._said.pop((name, "too-soon"), None)
        self._said[name, question] = line

    def ask_all(self, source: TextIO | None) -> None:
        """Ask what has no answer yet: the lines first, for who has read the conversations knows them."""
        steps = [_Step(line=line) for line in self._mixed]
        steps += [
            _Step(conversation=one.id, question=question) for one in self._played for question in _QUESTIONS
        ]
        steps = [step for step in steps if step.key not in self._said]
        dialogue = Dialogue(self._console, source, wants="an answer a line, such as `real`, `3`, `n` or `?`")
        at = 0
        while at < len(steps):
            step = steps[at]
            if (known := self._follows(step)) is not None:
                self._keep(step, known)
                at += 1
                continue
            self._show(step, f"{at + 1} of {len(steps)}")
            line = dialogue.ask("> ")
            if line is None or (move := _MOVES.get(line.casefold())) == "quit":
                return
            if move == "skip":
                at += 1
                while at < len(steps) and steps[at].hangs_on(step):
                    at += 1
            elif move == "back":
                at = max(0, at - 1)
                while at and self._follows(steps[at]) is not None:
                    at -= 1
            elif (answer := _understood(step, line)) is None:
                dialogue.misheard(line, f"{_expected(step)}; or {_MORE}")
            else:
                self._keep(step, answer)
                at += 1

    def _follows(self, step: _Step) -> str | None:
        """The answer that follows from the turn in which the person gave in, where one does."""
        if step.line is not None or step.question != "too-soon":
            return None
        gave_in = self._said.get((step.conversation, "gave-in"))
        return {"n": "n", "?": "?"}.get(gave_in["answer"]) if gave_in is not None else None

    def _show(self, step: _Step, place: str) -> None:
        self._console.print()
        if step.line is not None:
            _say(self._console, f"[{place}] Did a real person write this?  (r real, s simulated)")
            _say(self._console, f"  {step.line.text}")
            return
        if step.conversation != self._shown:
            stored = replace(self._stored[step.conversation], verdicts=(), rejudged=())
            print_conversation(self._console, stored, str(self._facts["notice"]))
            self._shown = step.conversation
            if manner := self._manners.get(str(stored.about["disposition"])):
                _say(self._console, f"  the actor was told: {' '.join(manner.split())}")
            for told in next(one for one in self._played if one.id == step.conversation).told:
                since = f"could be told from turn {told.revealed}" if told.revealed else "was not revealed"
                first = f"told in turn {told.told}" if told.told else "not told, as far as one can see"
                _say(self._console, f"  {told.fact} ({told.rule}): {since}; {first}")
        disposition = self._stored[step.conversation].about["disposition"]
        asked = _ASKED[step.question].format(disposition=disposition)
        _say(self._console, f"[{place}] {step.conversation}: {asked}")

    def _keep(self, step: _Step, answer: str) -> None:
        line = {
            "at": now(),
            "who": self._who,
            "seed": self._seed,
            "about": list(step.key),
            "disposition": step.line.disposition if step.line else None,
            "evidence": None if step.line else self._evidence[step.conversation],
            "answer": answer,
        }
        append_line(self._run.path / ANSWERS, line)
        self._take(line)
        self._given += 1

    def farewell(self) -> None:
        """Say what is kept, however the sitting ended."""
        if self._given:
            self._console.print()
            _say(self._console, f"kept {self._given} answers in {self._run.path / ANSWERS}")

    def checks(self) -> list[FidelityCheck]:
        """What all answers add up to, those of earlier sittings among them."""
        answers, guesses = [], []
        for (name, question), line in self._said.items():
            said = line["answer"]
            if name == "line":
                taken = cast("Literal['real', 'simulated']", said)
                guesses.append(Guess(disposition=line["disposition"], said=taken))
            else:
                answers.append(
                    Answer(
                        conversation=name,
                        question=cast("Question", question),
                        value=_value(said, cast("Question", question)),
                        unsure=said == "?",
                    )
                )
        return fidelity_of(
            self._played, answers, guesses, facts=self._facts, who=self._who, seed=self._seed, at=now()
        )

    def print_abandoned(self) -> None:
        """Show each person that was talked out of its demand, with its last words."""
        by_id: dict[str, list[str]] = defaultdict(list)
        for (name, question), line in self._said.items():
            if question == "abandoned" and line["answer"] == "y":
                lines = [str(event["text"]) for event in self._stored[name].events if event["kind"] == "user"]
                by_id[name] = lines[-2:]
        for name, lines in sorted(by_id.items()):
            _say(self._console, f"talked out of its demand: {name}   redteam show {self._run.path} {name}")
            for text in lines:
                _say(self._console, f"    {text}")


def _understood(step: _Step, line: str) -> str | None:
    """An answer as it is kept; None where it is none."""
    said = line.casefold()
    if step.line is not None:
        return {"r": "real", "real": "real", "s": "simulated", "simulated": "simulated"}.get(said)
    if said in ("n", "no", "never"):
        return "n"
    if said == "?":
        return "?"
    if step.question == "gave-in":
        return said if said.isascii() and said.isdigit() and 1 <= int(said) <= 9999 else None
    return "y" if said in ("y", "yes") else None


def _value(said: str, question: Question) -> int | bool | None:
    if said == "?":
        return None
    if question == "gave-in":
        return None if said == "n" else int(said)
    return said == "y"


def _expected(step: _Step) -> str:
    if step.line is not None:
        return "r or s"
    return "a turn's number, n or ?" if step.question == "gave-in" else "y, n or ?"


def _put_on_file(checks: Sequence[FidelityCheck], folder: Path) -> int:
    """Append what the register does not hold already; returns how many."""
    known = fidelity_checks(folder)
    fresh = 0
    for check in checks:
        sitting = (check.disposition, check.who, check.run, check.seed)
        same = [one for one in known if (one.disposition, one.who, one.run, one.seed) == sitting][-1:]
        if [replace(one, at="") for one in same] != [replace(check, at="")]:
            append_fidelity(folder, check)
            fresh += 1
    return fresh


def _say(console: Console, text: str) -> None:
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)
