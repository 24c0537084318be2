"""The judge: closed questions that a model answers from fenced evidence, with quotes that are looked up.

`spec` is the rule's body, `exhibits` what a judge may see of the evidence, `fencing` how it becomes data in a
prompt, `prompt` what is asked, `quotes` and `votes` what is made of the answers, `asking` the whole.
"""

from __future__ import annotations

from redteam_rubrics.judge.asking import SCRIPTED, JudgeModel, rule_judge
from redteam_rubrics.judge.prompt import Answer, Reply, prompt_digest
from redteam_rubrics.judge.spec import Judge, JudgeBody
from redteam_rubrics.judge.votes import combined

__all__ = [
    "SCRIPTED",
    "Answer",
    "Judge",
    "JudgeBody",
    "JudgeModel",
    "Reply",
    "combined",
    "prompt_digest",
    "rule_judge",
]
