"""What a suite's judge rules ask now, and whether a label and a verdict answer the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from redteam_harness.launch.documents import read_document
from redteam_rubrics.judge import Judge, JudgeBody, prompt_digest
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.people.labels import StoredLabel
    from redteam_rubrics import Asked

__all__ = ["Question", "answers_the_same", "questions_of"]

_BODY: TypeAdapter[Judge] = TypeAdapter(JudgeBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A judge rule's question.

    Attributes:
        text: the question, and which answer lets the rule hold.
        prompt: the hash of what a judge is asked by it now (`Asked.prompt`).
    """

    text: str
    prompt: str


def questions_of(suite_folder: Path | None, facts: Mapping[str, Any]) -> dict[str, Question]:
    """What the judge rules of a suite ask, by rule; nothing where the suite cannot be read any more.

    Args:
        suite_folder: where the suite is, or None.
        facts: the `run.json` of a run of it.
    """
    if suite_folder is None:
        return {}
    try:
        suite = read_document(suite_folder / Path(facts.get("suite_at") or "suite.yaml").name).data
        name = suite.get("rules") if isinstance(suite, dict) else None
        rules = read_document(suite_folder / str(name)).data if name else None
    except UsageError:
        return {}
    found = {}
    for rule, body in rules.items() if isinstance(rules, dict) else ():
        if isinstance(body, dict) and "judge" in body and (question := _question(body["judge"])) is not None:
            found[str(rule)] = question
    return found


def answers_the_same(label: StoredLabel, asked: Asked | None, now: Question | None) -> bool:
    """Whether a person and a judge answered the same question.

    They did where the judge was asked by the prompt that the person's question made at the time; or where
    that question still reads the same, and the judge was asked by the prompt that it makes now. What cannot
    be known, because the person was shown no question, or the judge does not say, is believed.

    Args:
        label: what the person said.
        asked: the judge.
        now: the rule's question, where the suite can be read.
    """
    if label.prompt is None or asked is None:
        return True
    if label.prompt == asked.prompt:
        return True
    return now is not None and (label.question, asked.prompt) == (now.text, now.prompt)


def _question(body: Any) -> Question | None:
    try:
        spec = _BODY.validate_python(body)
    except ValidationError:
        return None
    text = f"{' '.join(spec.question.split())} (pass if {spec.pass_if})"
    return Question(text=text, prompt=prompt_digest(spec))
