from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_harness.launch.conversation import (
    AskActor,
    AskAgent,
    Event,
    Faulted,
    Finish,
    Replied,
    Spoke,
    begin,
    step,
)
from redteam_sdk.errors import InternalError


def test_the_actor_opens() -> None:
    assert begin(3)[1] == AskActor(turn=1)


def test_a_last_line_is_answered_before_the_conversation_ends() -> None:
    state, _ = begin(9)
    state, command = step(state, Spoke(text="yes, do it", end=True, reason="all done"))
    assert command == AskAgent(turn=1, text="yes, do it")
    _, command = step(state, Replied(text="done"))
    assert isinstance(command, Finish)
    assert (command.ending.kind, command.ending.reason) == ("ended", "all done")


def test_the_cap_ends_a_conversation_after_the_agents_answer() -> None:
    state, command = begin(2)
    for turn in (1, 2):
        assert command == AskActor(turn=turn)
        state, command = step(state, Spoke(text="again"))
        assert command == AskAgent(turn=turn, text="again")
        state, command = step(state, Replied(text="again?"))
    assert isinstance(command, Finish)
    assert command.ending.kind == "cap"
    assert command.ending.fault is None


@pytest.mark.parametrize("asked", ["actor", "agent"])
def test_a_fault_ends_a_conversation_at_once_and_says_whose_it_is(asked: str) -> None:
    state, _ = begin(5)
    if asked == "agent":
        state, _ = step(state, Spoke(text="hello"))
    fault = Faulted(whose="infra", cause="hang", message="no answer within 60 s")
    _, command = step(state, fault)
    assert isinstance(command, Finish)
    assert (command.ending.kind, command.ending.fault) == ("fault", fault)


def test_an_event_out_of_turn_is_a_bug_and_not_a_turn() -> None:
    state, _ = begin(5)
    with pytest.raises(InternalError, match="actor had the word"):
        step(state, Replied(text="nobody asked"))


@given(
    cap=st.integers(1, 12),
    lines=st.lists(st.tuples(st.text(max_size=5), st.booleans()), min_size=12, max_size=12),
)
def test_every_conversation_ends_within_its_cap_and_every_line_is_answered(
    cap: int, lines: list[tuple[str, bool]]
) -> None:
    state, command = begin(cap)
    answered = 0
    for text, end in lines:
        if isinstance(command, Finish):
            break
        event: Event = Spoke(text=text, end=end)
        state, command = step(state, event)
        assert isinstance(command, AskAgent)
        state, command = step(state, Replied(text="ok"))
        answered += 1
    assert isinstance(command, Finish)
    assert answered <= cap
    assert command.ending.kind == ("ended" if lines[answered - 1][1] else "cap")
