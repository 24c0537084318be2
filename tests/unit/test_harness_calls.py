from __future__ import annotations

from typing import Any

from redteam_forker.changes import CallSpan
from redteam_harness.launch.judge import call_spans
from redteam_harness.report.late import late_lines


def _event(kind: str, call: str, xid: int | None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "call": call, "name": "book", "xid": xid, **more}


def test_a_call_spans_the_ids_before_and_after_it() -> None:
    events = [
        {"kind": "user", "text": "Hello"},
        _event("tool_call", "1", 10),
        _event("tool_call", "2", 11),
        _event("tool_error", "2", 12),
        _event("tool_result", "1", 14),
        _event("tool_call", "3", 14),
    ]
    assert call_spans(events) == [
        CallSpan(call="1", first=10, end=14),
        CallSpan(call="2", first=11, end=12),
        CallSpan(call="3", first=14, end=None),
    ]


def test_a_model_may_use_an_id_again() -> None:
    events = [
        _event(kind, "1", xid)
        for kind, xid in (("tool_call", 1), ("tool_result", 2), ("tool_call", 5), ("tool_result", 7))
    ]
    assert call_spans(events) == [
        CallSpan(call="1", first=1, end=2),
        CallSpan(call="1", first=5, end=7),
    ]


def test_a_call_of_a_tool_that_there_is_not_leaves_no_doubt_about_other_rows() -> None:
    events = [
        _event("tool_call", "1", None),
        _event("tool_error", "1", None, type="UnknownTool"),
        _event("tool_call", "2", None),
        _event("tool_error", "2", None, type="CancelledError"),
    ]
    assert call_spans(events) == [CallSpan(call="2", first=None, end=None)]


def test_what_was_late_is_told_in_sentences() -> None:
    session = {"application": "", "state": "idle in transaction", "statement": "UPDATE t", "open_s": 7.25}
    events: list[dict[str, Any]] = [
        {"kind": "late", "tasks": ["audit", "thread of turn 1"]},
        {"kind": "late", "sessions": [{**session, "ended": True}], "ended": 2, "waited_s": 5.0},
        {"kind": "end"},
    ]
    assert late_lines(events) == [
        "the agent left this running: audit",
        "the agent left this running: thread of turn 1",
        "a session was idle in transaction, its transaction open for 7.2 s: UPDATE t; "
        "it was ended after 5.0 s, and what it had not committed is lost",
        "1 more of the fork's sessions held its role locked, and were ended",
    ]
