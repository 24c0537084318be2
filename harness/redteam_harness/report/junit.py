"""JUnit XML for CI systems: a test case per planned conversation, our faults as errors; and one per gate."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from redteam_harness.report.changed import changed_rows, finding_lines
from redteam_harness.report.codes import AGENT
from redteam_harness.report.failures import first_event
from redteam_harness.report.gates import gates_of
from redteam_harness.report.words import exit_line, world_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.report.summary import Finished, Summary

__all__ = ["junit"]

# What no XML document may hold, not even escaped (XML 1.0, production 2).
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(summary: Summary) -> str:
    """The whole document: the conversations, and beside them the gates that decide the exit code.

    A conversation that was planned but never finished is an error, too. A conversation that failed is a
    failure even where no gate is red for it, so that the totals are those of every other rendering.
    """
    root = Element("testsuites", name=_clean(f"{summary.suite} {summary.run}"))
    suite = SubElement(
        root,
        "testsuite",
        name=_clean(f"{summary.suite} {summary.run}"),
        tests=str(summary.planned),
        failures=str(summary.outcomes.get("fail", 0)),
        errors=str(summary.faults + summary.unfinished + summary.outcomes.get("derailed", 0)),
        time=f"{summary.seconds:.3f}",
    )
    properties = SubElement(suite, "properties")
    for name, value in (
        ("notice", summary.notice),
        ("severity 1", str(summary.severity_1)),
        ("passed", summary.rate.words()),
        ("exit", exit_line(summary)),
        *((name, line) for name, lines in world_lines(summary) for line in lines),
    ):
        SubElement(properties, "property", name=name, value=_clean(value))
    for one in summary.finished:
        _case(suite, one)
    for number in range(summary.unfinished):
        name = summary.not_held[number] if summary.not_held else f"not finished {number + 1}"
        case = SubElement(suite, "testcase", classname=_clean(summary.suite), name=name)
        why = summary.stopped or "the launch ended before this conversation did"
        SubElement(case, "error", type="unfinished", message=_clean(why))
    _gates(root, summary)
    indent(root)
    return (
        f"<?xml version='1.0' encoding='utf-8'?>\n<!-- {_comment(_clean(summary.notice))} -->\n"
        + tostring(root, encoding="unicode")
    )


def _gates(root: Element, summary: Summary) -> None:
    """A case for each gate that was checked; a red one is a failure if the agent broke it, else an error."""
    gates = summary.gates if summary.gates is not None else gates_of(summary)
    red: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for reason in gates["reasons"]:
        red[reason["gate"]].append(reason)
    names = list(dict.fromkeys(gate["gate"] for gate in gates["checked"]))
    reasons = [reason for those in red.values() for reason in those[:1]]
    suite = SubElement(
        root,
        "testsuite",
        name=_clean(f"{summary.suite} {summary.run} gates"),
        tests=str(len(names)),
        failures=str(sum(reason["exit_code"] == AGENT for reason in reasons)),
        errors=str(sum(reason["exit_code"] != AGENT for reason in reasons)),
        time="0.000",
    )
    for name in names:
        case = SubElement(suite, "testcase", classname="gates", name=_clean(name), time="0.000")
        if not red[name]:
            continue
        kind = "failure" if red[name][0]["exit_code"] == AGENT else "error"
        messages = [_clean(str(reason["message"])) for reason in red[name]]
        found = SubElement(case, kind, type=red[name][0]["code"], message=messages[0])
        found.text = "\n".join(messages)


def _case(suite: Element, one: Finished) -> None:
    case = SubElement(
        suite,
        "testcase",
        classname=_clean(one.case),
        name=_clean(f"{one.id} {one.case} persona {one.persona} {one.disposition}"),
        time=f"{one.seconds:.3f}",
    )
    if one.outcome == "pass":
        return
    if one.outcome == "fail":
        message = ", ".join(str(verdict["rule"]) for verdict in one.broken)
        failure = SubElement(case, "failure", type="rule", message=_clean(message))
        lines = [line for verdict in one.broken for line in finding_lines(verdict)]
        first = first_event(one)
        failure.text = _clean("\n".join([*([first] if first else []), *lines, *changed_rows(one.changes)]))
        return
    SubElement(case, "error", type=one.outcome, message=_clean(f"{one.cause}: {one.message}"))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


def _comment(text: str) -> str:
    """What a comment may hold: no two hyphens side by side, none at its end."""
    spaced = re.sub("-(?=-)", "- ", text)
    return f"{spaced} " if spaced.endswith("-") else spaced
