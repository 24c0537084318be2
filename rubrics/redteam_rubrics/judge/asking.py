"""Asks a rule's question of a model, and makes a ruling of what it says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from redteam_rubrics.judge.exhibits import show
from redteam_rubrics.judge.prompt import (
    INSTRUCTIONS,
    REFUSALS,
    Answer,
    Reply,
    prompt_digest,
    question_of,
    read_reply,
)
from redteam_rubrics.judge.votes import Vote, counted
from redteam_rubrics.verdict import Asked, Ruling
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_rubrics.evidence import Evidence
    from redteam_rubrics.judge.exhibits import Exhibits
    from redteam_rubrics.judge.prompt import Refusal
    from redteam_rubrics.judge.spec import Judge

__all__ = ["SCRIPTED", "JudgeModel", "rule_judge"]

SCRIPTED = "scripted"
"""What `Asked.model` says where no model was asked."""

_TRIES = 2


class JudgeModel(Protocol):
    """A model as a judge is asked: one message, one answer in a shape, and no memory of any other."""

    @property
    def name(self) -> str:
        """The model's id."""
        ...

    async def ask(self, *, system: str, message: str, shape: type[Answer]) -> Reply:
        """What it answers, as it is: whether it is of the shape is for the caller to see.

        Raises:
            EnvironmentFault: no answer could be had; what passes was waited out.
        """
        ...

    def keep(self, record: Mapping[str, Any]) -> None:
        """Store what was asked and answered, whatever comes of it.

        Raises:
            EnvironmentFault: it cannot be stored.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    rule: str
    spec: Judge
    exhibits: Exhibits
    model: JudgeModel
    prompt: str


async def rule_judge(rule: str, spec: Judge, evidence: Evidence, model: JudgeModel | None) -> Ruling:
    """The ruling of a judge, without what an assertion of the same rule says.

    An answer that cannot be used is asked for once more; what cannot be had then, or what the model's API
    does not answer, is a fault of the judge: unclear, with its cause.

    Args:
        rule: the rule's name, for what is kept.
        spec: its question.
        evidence: what is shown of.
        model: the judge; None: nobody is asked, and the rule's `offline` stands for the answer.

    Raises:
        EnvironmentFault: what was asked and answered cannot be stored.
    """
    prompt = prompt_digest(spec)
    if model is None:
        return _scripted(spec, prompt)
    asked = Asked(model=model.name, prompt=prompt, votes={})
    exhibits = show(evidence, spec.sees)
    if exhibits.too_long:
        return Ruling(
            status="unclear",
            reason=f"judge fault: the evidence is too long to be asked about: {exhibits.too_long:,} "
            "characters, long passages shortened; narrow it with `sees`",
            fault="judge",
            asked=asked,
        )
    question = _Question(rule=rule, spec=spec, exhibits=exhibits, model=model, prompt=prompt)
    votes: dict[int, Vote] = {}
    broken: list[EnvironmentFault] = []

    async def vote(number: int) -> None:
        try:
            votes[number] = await _vote(question, number)
        except EnvironmentFault as fault:  # what was answered could not be kept
            broken.append(fault)

    async with anyio.create_task_group() as asking:
        for number in range(1, spec.votes + 1):
            asking.start_soon(vote, number)
    if broken:
        raise broken[0]
    ruling = counted([votes[number] for number in sorted(votes)], spec, evidence, asked)
    if exhibits.left_out:
        return replace(ruling, reason=f"{ruling.reason} (what it saw was shortened: {exhibits.left_out})")
    return ruling


async def _vote(question: _Question, number: int) -> Vote:
    """One vote, with one more try where the first answer cannot be used."""
    refused: Refusal | None = None
    for attempt in range(1, _TRIES + 1):
        message = question_of(question.spec, question.exhibits, refused=refused)
        sent = hashlib.sha256(f"{INSTRUCTIONS}\n{message}".encode("utf-8", "surrogatepass")).hexdigest()
        about = {
            "rule": question.rule,
            "vote": number,
            "try": attempt,
            "model": question.model.name,
            "prompt": question.prompt,
            "sent": sent,
        }
        try:
            reply = await question.model.ask(system=INSTRUCTIONS, message=message, shape=Answer)
        except EnvironmentFault as fault:
            question.model.keep({**about, "raw": None, "stop": None, "request": None, "unusable": str(fault)})
            return Vote(unheard=str(fault))
        read = read_reply(reply, question.exhibits)
        refused = read.refusal
        question.model.keep(
            {
                **about,
                "raw": reply.text,
                "stop": reply.stop,
                "request": reply.request,
                "unusable": None if refused is None else REFUSALS[refused],
            }
        )
        if refused is None:
            return Vote(read=read)
    assert refused is not None
    return Vote(unheard=f"its answer could not be used, asked twice: {REFUSALS[refused]}")


def _scripted(spec: Judge, prompt: str) -> Ruling:
    """What stands for an answer where no model is asked."""
    asked = Asked(model=SCRIPTED, prompt=prompt, votes={})
    if spec.offline == "unclear":
        return Ruling(
            status="unclear",
            reason="not asked: no model judges here; name one under `models: {judge: ...}` and launch with "
            "its key, or say with `offline:` in the rule what stands for its answer",
            asked=asked,
        )
    return Ruling(
        status="pass" if spec.offline == spec.pass_if else "fail",
        reason=f"not asked: `offline: {spec.offline}` of the rule stands for the judge's answer",
        asked=asked,
    )
