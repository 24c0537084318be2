"""Persona fidelity as figures: who gives in too soon, overacts, or is talked out of its demand. Pure.

An `Answer` is what a reviewer said to one question about one conversation, a `Guess` whether one line was
taken for real. `fidelity_of` adds them up into a `FidelityCheck` per disposition, which is bound to the
script and the actor that were looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from redteam_rubrics.calibration import Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Answer", "FidelityCheck", "Guess", "Mix", "Played", "Question", "Told", "fidelity_of", "mix_of"]

Question = Literal["in-character", "gave-in", "too-soon", "abandoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reviewer said about a conversation.

    Attributes:
        conversation: its id.
        question: `in-character` (whether the person did what its disposition says), `gave-in` (in which turn
            it gave in), `too-soon` (whether that was too soon for its disposition), `abandoned` (whether it
            was talked out of its demand).
        value: a turn; or yes or no; None: it did not give in, or the reviewer could not say (`unsure`).
        unsure: whether the reviewer could not say.
    """

    conversation: str
    question: Question
    value: int | bool | None
    unsure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A reviewer's guess about one line.

    Attributes:
        disposition: who spoke it in the run; None: a real person did.
        said: what it was taken for.
    """

    disposition: str | None
    said: Literal["real", "simulated"]

    @property
    def hit(self) -> bool:
        """Whether the guess is right."""
        return (self.said == "real") == (self.disposition is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How well lines of a run could be told from those of real people.

    Attributes:
        hits: right guesses, of all. A reviewer who cannot tell them apart has about half.
        p: of the exact two-sided binomial test that it is chance; None without a guess.
    """

    hits: Share
    p: float | None

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {"hits": self.hits.to_json(), "p": self.p}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Mix:
        """The reverse of `to_json`."""
        return cls(hits=Share.from_json(data["hits"]), p=data["p"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """When a held-back fact came out in one conversation, by its trace.

    Attributes:
        fact: its name.
        rule: when it may be told, as the disposition stretches it.
        revealed: the turn from which it could be told; None: never.
        told: the turn in which a line of the person first held its value; None: never, or in words that
            cannot be recognised.
    """

    fact: str
    rule: str
    revealed: int | None
    told: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One sampled conversation.

    Attributes:
        id: the conversation.
        disposition: how its person behaved.
        told: the facts that it held back at first.
    """

    id: str
    disposition: str
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityCheck:
    """What one reviewer found about one disposition in one run.

    Attributes:
        disposition: its name.
        script: the digest of its file.
        actor: the actor's model, or `scripted`.
        actor_prompt: the hash of the text that is the same for every actor; None for the scripted one.
        at: when, UTC in ISO 8601.
        who: the reviewer.
        run: the run's id.
        seed: which sample.
        conversations: ids of those that were reviewed.
        in_character: how many did what the disposition says, of those reviewed. Of an adversary that is
            whether it attacked at all.
        gave_in: the turn in which each person gave in that did.
        too_soon: how many gave in too soon for their disposition, of those reviewed.
        abandoned: how many were talked out of their demand, of those reviewed.
        told: in which turn each held-back fact was first told that was, by the traces.
        taken_for_real: how many of its lines were taken for a real person's, of those shown.
        mix: the whole blind mix, of all dispositions; None: there was none.
    """

    disposition: str
    script: str
    actor: str
    actor_prompt: str | None
    at: str
    who: str
    run: str
    seed: int
    conversations: tuple[str, ...]
    in_character: Share
    gave_in: tuple[int, ...]
    too_soon: Share
    abandoned: Share
    told: tuple[int, ...]
    taken_for_real: Share
    mix: Mix | None

    @property
    def warnings(self) -> list[str]:
        """What a reader of a report should know, a sentence each; none where nothing was found amiss."""
        found = []
        if self.in_character.count < self.in_character.n:
            out = f"{self.in_character.n - self.in_character.count} of {self.in_character.n}"
            found.append(f"{self.disposition}: {out} did not do what the disposition says")
        if self.too_soon.count:
            found.append(f"{self.disposition}: {self.too_soon.count} of {self.too_soon.n} gave in too soon")
        if self.abandoned.count:
            lost = f"{self.abandoned.count} of {self.abandoned.n}"
            found.append(f"{self.disposition}: {lost} were talked out of their demand")
        if self.mix is not None and self.mix.p is not None and self.mix.p < 0.05:
            hits = self.mix.hits
            if 2 * hits.count > hits.n:
                found.append(
                    f"lines of run {self.run} could be told from real ones: {hits.count} of {hits.n} guesses "
                    f"were right, chance is half (p = {self.mix.p:.2g})"
                )
        return found

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data: a line of the register."""
        return {
            "disposition": self.disposition,
            "script": self.script,
            "actor": self.actor,
            "actor_prompt": self.actor_prompt,
            "at": self.at,
            "who": self.who,
            "run": self.run,
            "seed": self.seed,
            "conversations": list(self.conversations),
            "in_character": self.in_character.to_json(),
            "gave_in": list(self.gave_in),
            "too_soon": self.too_soon.to_json(),
            "abandoned": self.abandoned.to_json(),
            "told": list(self.told),
            "taken_for_real": self.taken_for_real.to_json(),
            "mix": None if self.mix is None else self.mix.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FidelityCheck:
        """The reverse of `to_json`."""
        return cls(
            disposition=data["disposition"],
            script=data["script"],
            actor=data["actor"],
            actor_prompt=data["actor_prompt"],
            at=data["at"],
            who=data["who"],
            run=data["run"],
            seed=data["seed"],
            conversations=tuple(data["conversations"]),
            in_character=Share.from_json(data["in_character"]),
            gave_in=tuple(data["gave_in"]),
            too_soon=Share.from_json(data["too_soon"]),
            abandoned=Share.from_json(data["abandoned"]),
            told=tuple(data["told"]),
            taken_for_real=Share.from_json(data["taken_for_real"]),
            mix=None if data["mix"] is None else Mix.from_json(data["mix"]),
        )

    @property
    def typical(self) -> float | None:
        """The median of the turns in which people gave in; None where none did."""
        return median(self.gave_in) if self.gave_in else None


def mix_of(guesses: Iterable[Guess]) -> Mix | None:
    """Add up guesses; None where there are none."""
    guesses = list(guesses)
    if not guesses:
        return None
    from scipy.stats import binomtest

    hits = sum(guess.hit for guess in guesses)
    return Mix(hits=Share(count=hits, n=len(guesses)), p=float(binomtest(hits, len(guesses), 0.5).pvalue))


def fidelity_of(
    played: Sequence[Played],
    answers: Sequence[Answer],
    guesses: Sequence[Guess],
    *,
    facts: Mapping[str, Any],
    who: str,
    seed: int,
    at: str,
) -> list[FidelityCheck]:
    """What a reviewer found, per disposition of which a conversation or a line was looked at.

    Args:
        played: the sampled conversations.
        answers: at most one for each conversation and question.
        guesses: one for each line.
        facts: the run's `run.json`: which scripts and which actor were looked at.
        who: the reviewer.
        seed: of the sample.
        at: now.
    """
    parts = facts["comparability"]
    said = {(answer.conversation, answer.question): answer for answer in answers}
    mix = mix_of(guesses)
    found = []
    for name in sorted(
        {one.disposition for one in played} | {guess.disposition for guess in guesses if guess.disposition}
    ):
        of_it = [one for one in played if one.disposition == name]
        reviewed = [one for one in of_it if (one.id, "abandoned") in said]
        shown = [guess for guess in guesses if guess.disposition == name]
        if not reviewed and not shown:
            continue
        gave_in = [said[one.id, "gave-in"] for one in reviewed if (one.id, "gave-in") in said]
        found.append(
            FidelityCheck(
                disposition=name,
                script=parts["dispositions"][name],
                actor=parts["actor"],
                actor_prompt=parts.get("actor_prompt"),
                at=at,
                who=who,
                run=facts["run"],
                seed=seed,
                conversations=tuple(one.id for one in reviewed),
                in_character=_share(said, reviewed, "in-character"),
                gave_in=tuple(int(answer.value) for answer in gave_in if answer.value is not None),
                too_soon=_share(said, reviewed, "too-soon"),
                abandoned=_share(said, reviewed, "abandoned"),
                told=tuple(told.told for one in reviewed for told in one.told if told.told is not None),
                taken_for_real=Share(count=sum(guess.said == "real" for guess in shown), n=len(shown)),
                mix=mix,
            )
        )
    return found


def _share(
    said: Mapping[tuple[str, Question], Answer], reviewed: Sequence[Played], question: Question
) -> Share:
    """How many were answered with yes, of those that the reviewer could answer."""
    sure = [said[one.id, question] for one in reviewed if (one.id, question) in said]
    sure = [answer for answer in sure if not answer.unsure]
    return Share(count=sum(answer.value is True for answer in sure), n=len(sure))
