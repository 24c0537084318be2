"""When a conversation has left its recording: unknown calls, replies that the next line does not follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.personas import make_script

from redteam_harness.replaying.derail import Derail, derail_of, waits_for
from redteam_harness.replaying.rate import Derailed, count_derails
from redteam_harness.replaying.recording import Recording, recording_of

if TYPE_CHECKING:
    from redteam_personas import Script

SCRIPT = make_script(
    {"full_name": "at once", "date_of_birth": "when asked", "insurance": "when asked", "phone": "when asked"},
    row={"phone": None},
)
BORN = "I was born on 1984-03-07."
Say = tuple[str, str]


def call(name: str, arguments: dict[str, Any], value: Any = None) -> list[dict[str, Any]]:
    return [
        {"kind": "tool_call", "turn": 1, "call": "call-1", "name": name, "arguments": arguments},
        {"kind": "tool_result", "turn": 1, "call": "call-1", "name": name, "value": value},
    ]


def trace(*turns: Say, calls: list[dict[str, Any]] | None = None, ending: str | None = "ended") -> list[Any]:
    events: list[dict[str, Any]] = []
    for number, (said, replied) in enumerate(turns, start=1):
        events.append({"kind": "user", "turn": number, "text": said})
        events += calls or [] if number == 1 else []
        events.append({"kind": "agent", "turn": number, "text": replied})
    if ending is not None:
        events.append({"kind": "end", "turn": len(turns), "ending": ending, "reason": "it is done"})
    return events


def recorded(*turns: Say, calls: list[dict[str, Any]] | None = None) -> Recording:
    found = recording_of(trace(*turns, calls=calls))
    assert found is not None
    return found


def after(then: str, following: str | None, now: str, script: Script = SCRIPT) -> Derail | None:
    """What comes of another first reply, where the recording goes on with `following`, or ends."""
    more = [(following, "Fine.")] if following is not None else []
    return derail_of(recorded(("Hello.", then), *more), script, trace(("Hello.", now), ending=None))


def with_calls(then: list[dict[str, Any]], now: list[dict[str, Any]], reply: str = "Done.") -> Derail | None:
    recording = recorded(("Hello.", reply), calls=then)
    return derail_of(recording, SCRIPT, trace(("Hello.", reply), calls=now, ending=None))


def test_the_recorded_events_themselves_never_derail() -> None:
    turns = [
        ("Hello.", "What is your date of birth, please?"),
        (BORN, "Shall I book it for you?"),
        ("Yes, please.", "Booked. Is there anything else I can do for you?"),
    ]
    events = trace(*turns, calls=call("find", {"born": "1984-03-07"}, [{"id": 7}]))
    recording = recording_of(events)
    assert recording is not None
    for end in range(1, len(events) + 1):
        assert derail_of(recording, SCRIPT, events[:end]) is None


@pytest.mark.parametrize(
    ("then", "following", "now"),
    [
        pytest.param("What is your date of birth?", BORN, "Your date of birth, please.", id="other-words"),
        pytest.param(
            "Booked.", "Thanks.", "It is booked. Anything else I can do?", id="an-offer-is-no-question"
        ),
        pytest.param("Booked. Anything else I can do?", "Thanks.", "Booked.", id="an-offer-that-is-gone"),
        pytest.param(
            "What is your date of birth?", BORN, "Tell me your date of birth. Shall I go on?", id="asks-more"
        ),
        pytest.param("Shall I book it?", "Yes.", "Would you like me to book it?", id="a-yes-in-other-words"),
        pytest.param(
            "I can offer: 1. Monday 2. Tuesday. Which suits you?",
            "The second one.",
            "There are: 1. Friday 2. Saturday. Which would you like?",
            id="other-options",
        ),
        pytest.param("Which day is it?", BORN, "What is your date of birth?", id="the-line-gives-it-anyway"),
        pytest.param("Done.", None, "It is done. Anything else I can do for you?", id="the-end"),
        pytest.param("Shall I go on?", None, "Done.", id="the-end-needs-no-question"),
    ],
)
def test_a_change_of_words_alone_does_not_derail(then: str, following: str | None, now: str) -> None:
    assert after(then, following, now) is None


@pytest.mark.parametrize(
    ("then", "following", "now", "named"),
    [
        pytest.param("What is your date of birth?", BORN, "Booked.", "date_of_birth", id="question-gone"),
        pytest.param("Shall I book it?", "Yes.", "I cannot do that. Goodbye.", "yes or no", id="refused"),
        pytest.param("Which day is it?", "Friday.", "Goodbye.", "an answer", id="ended"),
        pytest.param("Shall I book it?", "Yes.", "What is your insurance?", "insurance", id="other-question"),
        pytest.param(
            "What is your date of birth?",
            BORN,
            "What is your date of birth? And what is your insurance?",
            "insurance",
            id="asks-for-more-than-is-said",
        ),
        pytest.param("I see.", "Well?", "What is your phone?", "phone", id="a-fact-that-nobody-has"),
        pytest.param("I see.", "I want a visit.", "Shall I cancel it?", "yes or no", id="a-question-instead"),
        pytest.param("Done.", None, "Shall I book it?", "the recording ends here", id="not-done-at-the-end"),
        pytest.param("Done.", None, "What is your insurance?", "the recording ends", id="asks-at-the-end"),
    ],
)
def test_a_reply_that_makes_the_next_line_absurd_derails(
    then: str, following: str | None, now: str, named: str
) -> None:
    found = after(then, following, now)
    assert found is not None
    assert found.cause == "line"
    assert named in found.message


def test_a_call_of_another_tool_derails_and_one_that_is_left_out_or_moved_does_not() -> None:
    look, book = call("look", {}, [1]), call("book", {"day": "monday"}, 4)
    found = with_calls([*look, *book], [*look, *call("cancel", {})])
    assert found == Derail("tool-call", "tool cancel was not called when it was recorded")
    assert with_calls([*look, *book], book) is None
    assert with_calls([*look, *book], [*book, *look]) is None
    assert with_calls([*look, *book], [*look, *look, *book]) is None


@pytest.mark.parametrize(
    ("recorded_value", "value", "then", "now", "derails"),
    [
        pytest.param([{"id": 7}], [{"id": 8}], {"id": 7}, {"id": 8}, False, id="each-from-an-answer"),
        pytest.param([{"id": 7}], [{"id": 8}], {"ids": [7]}, {"ids": [8]}, False, id="deep-in-it"),
        pytest.param([{"id": 7}], [{"id": 8}], {"id": 7}, {"id": 9}, True, id="from-nowhere"),
        pytest.param([{"id": 6}], [{"id": 8}], {"id": 7}, {"id": 8}, True, id="it-was-the-persona's-own"),
        pytest.param([{"id": 7}], [{"id": "7"}], {"id": 7}, {"id": 7, "at": 1}, True, id="one-more"),
        pytest.param([True], [True], {"id": 1}, {"id": True}, True, id="true-is-not-1"),
        pytest.param([{"id": 7}], [{"id": 7}], {"id": [7]}, {"id": [7, 7]}, True, id="a-longer-list"),
        pytest.param(None, None, {"id": {"a": 1}}, {"id": 1}, True, id="another-shape"),
    ],
)
def test_arguments_may_differ_only_in_values_that_earlier_answers_gave(
    recorded_value: Any, value: Any, then: dict[str, Any], now: dict[str, Any], *, derails: bool
) -> None:
    found = with_calls(
        [*call("look", {}, recorded_value), *call("book", then)],
        [*call("look", {}, value), *call("book", now)],
    )
    assert (found is not None) == derails
    if found is not None:
        assert found.cause == "tool-call"
        assert "book" in found.message


def test_a_value_counts_only_once_an_answer_gave_it() -> None:
    late = [*call("book", {"id": 8}), *call("look", {}, [{"id": 8}])]
    assert with_calls([*call("look", {}, [{"id": 7}]), *call("book", {"id": 7})], late) is not None


def test_what_a_reply_waits_for_is_read_by_the_rules_of_the_personas() -> None:
    asked_by = {"insurance": ("insurance",)}
    assert waits_for("Is there anything else I can do for you?", asked_by) == frozenset()
    assert waits_for("What is your insurance?", asked_by) == {"insurance"}
    assert waits_for("Which day would suit you?", asked_by) == {"an answer"}
    assert waits_for("Shall I book it?", asked_by) == {"a yes or no"}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(trace(("Hello.", "Hi."), ending=None), id="ended-by-a-fault"),
        pytest.param(trace(("Hello.", "Hi."))[:1] + trace(("Hello.", "Hi."))[2:], id="no-reply"),
        pytest.param([], id="nothing"),
    ],
)
def test_a_conversation_that_did_not_end_is_no_recording(events: list[Any]) -> None:
    assert recording_of(events) is None


def test_a_recording_says_the_lines_and_ends_as_it_was_ended() -> None:
    ended = recorded(("Hello.", "Hi."), ("Bye.", "Bye."))
    assert [(line.text, line.end, line.reason) for line in ended.lines] == [
        ("Hello.", False, ""),
        ("Bye.", True, "it is done"),
    ]
    capped = recording_of(trace(("Hello.", "Hi."), ending="cap"))
    assert capped is not None
    assert not capped.lines[-1].end


def test_the_derail_rate_leaves_out_what_had_nothing_to_follow() -> None:
    def one(name: str, cause: str) -> Derailed:
        return Derailed(conversation=name, cause=cause, message="why", turn=1, escalated=None)

    found = count_derails("base", 7, [one("c003", "not-recorded"), one("c002", "line"), one("c001", "line")])
    facts = found.to_json()
    assert (facts["derailed"], facts["followed"], facts["share"]) == (2, 9, 2 / 9)
    assert facts["causes"] == {"tool-call": 0, "mock-miss": 0, "line": 2}
    assert [item["id"] for item in facts["conversations"]] == ["c001", "c002", "c003"]
    assert 0 < facts["interval"]["low"] < 2 / 9 < facts["interval"]["high"] < 1
