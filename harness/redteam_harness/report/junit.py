"""JUnit XML: one test case per planned conversation, our faults as errors, for CI systems to show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from redteam_harness.report.changed import changed_rows, finding_lines

if TYPE_CHECKING:
    from redteam_harness.report.summary import Finished, Summary

__all__ = ["junit"]

# What no XML document may hold, not even escaped (XML 1.0, production 2).
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(summary: Summary) -> str:
    """The whole document. A conversation that was planned but never finished is an error, too."""
    suite = Element(
        "testsuite",
        name=f"{summary.suite} {summary.run}",
        tests=str(summary.planned),
        failures=str(summary.outcomes.get("fail", 0)),
        errors=str(summary.faults + summary.unfinished + summary.outcomes.get("derailed", 0)),
        time=f"{summary.seconds:.3f}",
    )
    properties = SubElement(suite, "properties")
    SubElement(properties, "property", name="notice", value=summary.notice)
    for one in summary.finished:
        _case(suite, one)
    for number in range(summary.unfinished):
        name = summary.not_held[number] if summary.not_held else f"not finished {number + 1}"
        case = SubElement(suite, "testcase", classname=summary.suite, name=name)
        why = summary.stopped or "the launch ended before this conversation did"
        SubElement(case, "error", type="unfinished", message=_clean(why))
    indent(suite)
    return f"<?xml version='1.0' encoding='utf-8'?>\n<!-- {_comment(summary.notice)} -->\n" + tostring(
        suite, encoding="unicode"
    )


def _case(suite: Element, one: Finished) -> None:
    case = SubElement(
        suite,
        "testcase",
        classname=one.case,
        name=f"{one.id} {one.case} persona {one.persona} {one.disposition}",
        time=f"{one.seconds:.3f}",
    )
    if one.outcome == "pass":
        return
    if one.outcome == "fail":
        message = ", ".join(str(verdict["rule"]) for verdict in one.broken)
        failure = SubElement(case, "failure", type="rule", message=_clean(message))
        lines = [line for verdict in one.broken for line in finding_lines(verdict)]
        failure.text = _clean("\n".join([*lines, *changed_rows(one.changes)]))
        return
    SubElement(case, "error", type=one.outcome, message=_clean(f"{one.cause}: {one.message}"))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


def _comment(text: str) -> str:
    return text.replace("--", "- -")
