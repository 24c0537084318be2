"""`python`: a function of the suite's, which is given all that is known and says whether the rule holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from redteam_rubrics.errors import RuleError
from redteam_rubrics.functions import TARGET, target
from redteam_rubrics.relations import plain
from redteam_rubrics.rules.wording import capped, cut
from redteam_rubrics.strict import refusing
from redteam_rubrics.verdict import Finding, Ruling

if TYPE_CHECKING:
    from redteam_rubrics.evidence import Evidence
    from redteam_rubrics.functions import Functions

__all__ = ["FunctionName", "rule_python"]

_MAX_TEXT = 400
_KEYS = ("text", "event", "table", "key")


def _is_target(written: str) -> str:
    target(written)
    return written


FunctionName = Annotated[str, refusing(_is_target, {"string": {"pattern": f"^{TARGET}$"}})]
"""`module:function`, importable from the suite's folder."""


async def rule_python(written: str, evidence: Evidence, functions: Functions | None) -> Ruling:
    """Call the function and read its answer: true, false, a finding, or a list of findings.

    Raises:
        RuleError: it gave no such answer; see `Functions.call`.
    """
    if functions is None:
        raise RuleError(f"{written} cannot be called here: it is not known where it lies")
    answer = await functions.call(written, plain(evidence))
    if answer is True or answer == []:
        return Ruling(status="pass", reason=f"{written} found nothing wrong")
    findings: list[Finding] = []
    if answer is False:
        findings.append(Finding(text=f"{written} says that the rule does not hold."))
    elif isinstance(answer, str | list):
        findings += [
            _finding(written, said, evidence) for said in ([answer] if isinstance(answer, str) else answer)
        ]
    else:
        what = "nothing" if answer is None else f"a value of type {type(answer).__name__}"
        raise RuleError(f"{written} returned {what}; expected true, false, a text or a list of findings")
    return Ruling(status="fail", reason=f"{written} found something wrong", findings=capped(findings))


def _finding(written: str, said: Any, evidence: Evidence) -> Finding:
    facts = {"text": said} if isinstance(said, str) else said
    if not isinstance(facts, dict) or not facts.keys() <= set(_KEYS):
        raise RuleError(
            f"{written} returned a finding that is neither a text nor a mapping of {', '.join(_KEYS)}"
        )
    text, event, table, key = (facts.get(name) for name in _KEYS)
    if not isinstance(text, str) or not text.strip():
        raise RuleError(f"{written} returned a finding without a text")
    if event is not None and (type(event) is not int or not 0 <= event < len(evidence.events)):
        raise RuleError(f"{written} returned a finding about event {event!r}, which there is not")
    if not isinstance(table, str | None) or not isinstance(key, dict | None):
        raise RuleError(f"{written} returned a finding whose table is no name or whose key is no mapping")
    cells = None if key is None else {name: None if cell is None else str(cell) for name, cell in key.items()}
    return Finding(text=cut(text, _MAX_TEXT), event=event, table=table, key=cells)
