"""What verdicts rest on where mocks answered: the register's gaps beside the rules they touch. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["called_externals", "lenient_of", "mock_counts", "mock_lines"]

_DIRECTIONS = {"more-lenient": "more lenient", "stricter": "stricter", "unknown": "direction unknown"}
_SHOWN = 6

Conversation = tuple["Sequence[str]", "Sequence[Mapping[str, Any]]"]
"""The external tools that it called, and its verdicts."""


def called_externals(events: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The external tools that were called in a conversation, by name, each once."""
    return tuple(sorted({str(event["name"]) for event in events if event["kind"] == "external"}))


def mock_counts(
    register: Mapping[str, Any] | None, conversations: Iterable[Conversation]
) -> dict[str, Any] | None:
    """What `report.json` says under `mocks`; None where nothing is known to be mocked.

    Args:
        register: `mocks` of run.json: the tools, and the rows of fidelity.yaml at the launch; None: the run
            is of an earlier version, and nobody is known to have looked at anything.
        conversations: every finished one.
    """
    held = list(conversations)
    called = Counter(name for names, _ in held for name in names)
    tools = {one["tool"]: one for one in (register or {}).get("tools", ())}
    for name in called:
        tools.setdefault(name, {"tool": name, "mocked": None, "said_in_code": None, "rows": ()})
    if not tools:
        return None
    return {
        "known": bool((register or {}).get("known")),
        "nobody_looked": sorted(
            name for name, one in tools.items() if not one["rows"] and one["mocked"] is not False
        ),
        "tools": [_tool(one, called[name], held) for name, one in sorted(tools.items())],
    }


def _tool(one: Mapping[str, Any], called_in: int, held: Sequence[Conversation]) -> dict[str, Any]:
    return {
        "tool": one["tool"],
        "mocked": one["mocked"],
        "called_in": called_in,
        "said_in_code": one["said_in_code"],
        "gaps": [
            {
                "gap": row["gap"],
                "direction": row["direction"],
                "stale": row["stale"],
                "reconciliation": row["reconciliation"],
                "touches": _touched(one["tool"], row, held),
            }
            for row in one["rows"]
        ],
    }


def _touched(tool: str, row: Mapping[str, Any], held: Sequence[Conversation]) -> list[dict[str, Any]]:
    """The verdicts that a gap may have changed, by rule: of conversations in which the tool was called."""
    counts: dict[str, Counter[str]] = {}
    if row["reconciliation"]["result"] != "refuted":
        for names, verdicts in held:
            for verdict in verdicts if tool in names else ():
                if row["rules"] == "all" or verdict["rule"] in row["rules"]:
                    counts.setdefault(verdict["rule"], Counter())[verdict["status"]] += 1
    return [
        {"rule": rule, **{status: found[status] for status in ("pass", "fail", "unclear")}}
        for rule, found in sorted(counts.items())
    ]


def lenient_of(mocks: Mapping[str, Any] | None, rule: str) -> list[dict[str, Any]]:
    """The lenient gaps that touch verdicts of a rule: each may have let pass what the real thing refuses."""
    return [
        {
            "tool": tool["tool"],
            "gap": gap["gap"],
            "reconciliation": gap["reconciliation"]["result"],
            "passes": touched["pass"],
        }
        for tool in (mocks["tools"] if mocks is not None else ())
        for gap in tool["gaps"]
        if gap["direction"] == "more-lenient"
        for touched in gap["touches"]
        if touched["rule"] == rule
    ]


def mock_lines(mocks: Mapping[str, Any] | None) -> list[str]:
    """What a reader is told of the mocks: a line for those nobody looked at, one for each known gap."""
    if mocks is None:
        return []
    lines = []
    tools = {one["tool"]: one for one in mocks["tools"]}
    if nobody := mocks["nobody_looked"]:
        named = ", ".join(f"{name} (called in {tools[name]['called_in']})" for name in nobody)
        lines.append(f"nobody looked at how these differ from the real thing: {named}")
    for name, one in tools.items():
        lines += [f"{name}: {_gap(gap)}" for gap in one["gaps"]]
    return lines


def _gap(gap: Mapping[str, Any]) -> str:
    found = gap["reconciliation"]
    if found["result"] == "no-evidence":
        known = "no evidence"
    else:
        known = f"{found['result']} {found['date']} by {found['by']}"
    stale = ", stale: the code changed since" if gap["stale"] else ""
    parts = [f"{one['rule']} ({one['pass']} passed, {one['fail']} failed)" for one in gap["touches"][:_SHOWN]]
    if len(gap["touches"]) > _SHOWN:
        parts.append(f"{len(gap['touches']) - _SHOWN} more rules")
    touches = f"; touches {', '.join(parts)}" if parts else "; touches no verdict here"
    return f"{_DIRECTIONS[gap['direction']]}: {gap['gap']} ({known}{stale}){touches}"
