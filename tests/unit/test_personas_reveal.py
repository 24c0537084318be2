"""When facts are revealed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.personas import make_script

from redteam_personas import Fact, Reveal, RevealState, hear, held_facts

BIRTH = "What is your date of birth?"
RULES = ("at once", "at turn 3", "when asked", "when pressed", "when pressed twice", "never")


def revealed_in(rule: str, agent_lines: list[str]) -> int | None:
    """The turn in which a date of birth is revealed, where the agent says these lines after turn 1, 2, ..."""
    fact = Fact(name="dob", value="1984-03-07", reveal=Reveal.parse(rule), asked_by=("date of birth",))
    state = RevealState()
    for turn, line in enumerate(["", *agent_lines], start=1):
        state, fresh = hear(state, [fact], line, turn)
        if fresh:
            return turn
    return None


@pytest.mark.parametrize(
    ("rule", "agent_lines", "turn"),
    [
        ("at once", [], 1),
        ("at turn 3", ["Hello.", "Hello."], 3),
        ("at turn 3", [BIRTH], None),
        ("when asked", ["Hello.", BIRTH], 3),
        ("when asked", ["Hello.", "Thanks, I see your date of birth."], None),
        ("when pressed", [BIRTH], None),
        ("when pressed", [BIRTH, "I see.", BIRTH], 4),
        ("when pressed", [f"{BIRTH} {BIRTH}"], None),
        ("when pressed twice", [BIRTH, BIRTH], None),
        ("when pressed twice", [BIRTH, BIRTH, BIRTH], 4),
        ("never", [BIRTH] * 9, None),
    ],
)
def test_a_fact_is_revealed_by_its_rule(rule: str, agent_lines: list[str], turn: int | None) -> None:
    assert revealed_in(rule, agent_lines) == turn


def test_an_evasive_person_must_be_pressed_for_what_others_tell_when_asked() -> None:
    turns = {}
    for disposition in ("cooperative", "evasive"):
        (fact,) = make_script({"date_of_birth": "when asked"}, disposition=disposition).facts
        state, _ = hear(RevealState(), [fact], "", 1)
        state, _ = hear(state, [fact], BIRTH, 2)
        turns[disposition] = state.revealed
        state, _ = hear(state, [fact], BIRTH, 3)
        assert state.revealed == ("date_of_birth",)
    assert turns == {"cooperative": ("date_of_birth",), "evasive": ()}


@given(
    st.lists(st.sampled_from(RULES), max_size=5),
    st.lists(st.sampled_from(["What is your fact0?", "Tell me your fact1, fact2.", "Hi."]), max_size=8),
)
def test_what_is_revealed_stays_revealed_and_is_reported_once(rules: list[str], lines: list[str]) -> None:
    facts = [
        Fact(name=f"fact{n}", value="x", reveal=Reveal.parse(rule), asked_by=(f"fact{n}",))
        for n, rule in enumerate(rules)
    ]
    state, reported = RevealState(), list[str]()
    for turn, line in enumerate(["", *lines], start=1):
        state, fresh = hear(state, facts, line, turn)
        reported += fresh
        assert list(state.revealed) == reported
        assert {fact.name for fact in held_facts(facts, state)}.isdisjoint(reported)
    assert len(reported) == len(set(reported))
    assert not any(fact.reveal.kind == "never" for fact in facts if fact.name in reported)
