"""The reason codes of red gates: what each means, which key of the suite sets its limit, and whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AGENT", "CODES", "OURS", "Code"]

AGENT, OURS = 1, 3
"""Exit codes: the agent broke a gate; there is not enough to go by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A reason code: stable, so that a pipeline can act on it.

    Attributes:
        exit: what the launch exits with, if nothing graver is red.
        means: in one sentence.
        key: the key under `gates` in suite.yaml that sets its limit; empty: it is always there.
    """

    exit: int
    means: str
    key: str


CODES: Mapping[str, Code] = {
    "rule-failed": Code(
        exit=AGENT,
        key="fail_on",
        means="A rule of a severity that `fail_on` covers failed in a conversation.",
    ),
    "severity-1-over": Code(
        exit=AGENT, key="severity_1", means="More conversations broke a rule of severity 1 than may."
    ),
    "rule-over": Code(exit=AGENT, key="rules", means="A rule failed in more conversations than it may."),
    "pass-rate-low": Code(
        exit=AGENT, key="pass_rate", means="The pass rate, or its interval's lower bound, is below the limit."
    ),
    "cost-over": Code(exit=AGENT, key="cost", means="Models cost more than they may."),
    "nothing-judged": Code(
        exit=OURS, key="", means="No conversation has a verdict, so nothing is known of the agent."
    ),
    "without-verdict": Code(
        exit=OURS,
        key="faults",
        means="More planned conversations have no verdict than may: faults of ours, derailed, or not held.",
    ),
    "too-few-judged": Code(
        exit=OURS, key="min_judged", means="Fewer conversations have a verdict than must."
    ),
    "unclear-over": Code(exit=OURS, key="unclear", means="More verdicts are unclear than may be."),
    "pass-rate-unknown": Code(
        exit=OURS, key="pass_rate", means="There is no pass rate, because no conversation was judged."
    ),
    "rule-unknown": Code(
        exit=OURS, key="rules", means="A rule with a limit was judged in no conversation of the run."
    ),
    "cost-unknown": Code(
        exit=OURS, key="cost", means="A model has no price, so what the run cost is not known."
    ),
    "judge-uncalibrated": Code(
        exit=OURS,
        key="calibration",
        means="A rule was judged by a model, and there is no calibration of it, or too few labels.",
    ),
    "judge-stale": Code(
        exit=OURS,
        key="calibration",
        means="A calibration is of another model or another prompt than those that judged.",
    ),
    "judge-disagrees": Code(
        exit=OURS,
        key="calibration",
        means="A judge agrees with people less than it must, or passed too much.",
    ),
}
"""Every code. One that was published is neither renamed nor given another meaning."""
