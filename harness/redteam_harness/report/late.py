"""What was still going on when a conversation was over, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["late_lines"]

_MAX_STATEMENT = 80


def late_lines(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """A sentence for each task and each database session that the trace's `late` events name.

    Args:
        events: the trace, or some of it.
    """
    lines: list[str] = []
    for event in events:
        if event["kind"] != "late":
            continue
        lines += [f"the agent left this running: {task}" for task in event.get("tasks", ())]
        sessions = event.get("sessions", ())
        lines += [_session(session, event["waited_s"]) for session in sessions]
        unnamed = event.get("ended", 0) - sum(session["ended"] for session in sessions)
        if unnamed > 0:
            lines.append(f"{unnamed} more of the fork's sessions held its role locked, and were ended")
    return lines


def _session(session: Mapping[str, Any], waited_s: float) -> str:
    who = f"a session ({session['application']})" if session["application"] else "a session"
    statement = str(session["statement"])
    if len(statement) > _MAX_STATEMENT:
        statement = statement[: _MAX_STATEMENT - 1].rstrip() + "…"
    open_for = "" if session["open_s"] is None else f", its transaction open for {session['open_s']:.1f} s"
    doing = f"{who} was {session['state'] or 'busy'}{open_for}"
    end = (
        f"it was ended after {waited_s:.1f} s, and what it had not committed is lost"
        if session["ended"]
        else "it was waited for, and what it committed is among the changes"
    )
    return f"{doing}: {statement or 'no statement'}; {end}"
