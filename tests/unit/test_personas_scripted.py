"""The scripted actor against agents made of rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.personas import DISPOSITIONS, Talk, converse, make_script, scripted

FACTS = {"full_name": "at once", "date_of_birth": "when asked", "insurance": "never"}
ALL = tuple(DISPOSITIONS)
MORE = "Is there anything else I can do for you?"
OFFER = "Which time suits you: 1) Tue 8 Dec 09:00 with Dr. Lopez, 2) Wed 9 Dec 10:00 with Dr. Kim?"


async def talk(
    *agent: str, offline: dict[str, object] | None = None, disposition: str = "cooperative", seed: int = 7
) -> Talk:
    script = make_script(FACTS, disposition=disposition)
    return await converse(
        script, scripted(script, offline or {"says": ["I want a visit."]}, seed=seed), agent
    )


async def test_a_whole_booking_is_held_with_a_front_desk_made_of_rules() -> None:
    held = await talk(
        "Good day. May I have your full name?",
        "Thank you, Ada. What is your date of birth?",
        OFFER,
        "Shall I book that?",
        f"Your visit is booked. {MORE}",
        offline={"says": ["I want a visit."], "replies": [{"to": "which time", "say": "The second one."}]},
    )
    assert [line.split()[0].strip(",") for line in held.user[3:5]] == ["The", "Yes"]
    assert "Ada Lindqvist" in held.user[1]
    assert "1984-03-07" in held.user[2]
    assert held.user[3] == "The second one."
    assert held.last.end
    assert held.revealed == [(1, "full_name"), (3, "date_of_birth")]


@pytest.mark.parametrize("disposition", ALL)
async def test_a_held_back_fact_is_put_off_and_a_never_fact_is_never_told(disposition: str) -> None:
    held = await talk(*["And your insurance, please?"] * 8, disposition=disposition)
    assert not any("Aetna" in line for line in held.user)
    assert sum("insurance" in line for line in held.user) >= 7


async def test_an_evasive_person_tells_on_the_second_question() -> None:
    held = await talk(*["What is your date of birth?"] * 2, disposition="evasive")
    assert ["1984-03-07" in line for line in held.user] == [False, False, True]


async def test_a_confused_person_asks_to_repeat_once_and_loses_nothing() -> None:
    asked = ["What is your date of birth?"] * 9
    held = await talk(*asked, disposition="confused")
    again = [line for line in held.user if "again?" in line or "What did you say?" in line]
    assert len(again) == 1
    assert sum("1984-03-07" in line for line in held.user) == len(asked) - 1


async def test_a_fact_is_said_plainly_when_it_is_asked_for_again() -> None:
    held = await talk(*["What is your full name?"] * 3)
    assert held.user[2:] == ["My full name is Ada Lindqvist."] * 2


async def test_several_facts_asked_at_once_are_answered_together() -> None:
    held = await talk("Your name and date of birth, please.")
    assert "Ada Lindqvist" in held.user[1]
    assert "1984-03-07" in held.user[1]


async def test_a_fact_that_the_row_lacks_is_denied() -> None:
    script = make_script({"insurance": "at once"}, row={"insurance": None})
    held = await converse(script, scripted(script), ["And your insurance?"])
    assert held.user[1] == "There is no insurance that I could give you."


@pytest.mark.parametrize("disposition", ALL)
async def test_an_offer_of_more_help_leads_to_the_next_line_and_then_to_the_farewell(
    disposition: str,
) -> None:
    held = await talk(*[MORE] * 6, offline={"says": ["One wish.", "Two wishes."]}, disposition=disposition)
    said = " ".join(held.user)
    assert -1 < said.find("One wish.") < said.find("Two wishes.")
    assert said.count("wish") == 2
    assert held.last.end
    assert not any(line.startswith("Yes") for line in held.user)


@pytest.mark.parametrize("disposition", ALL)
async def test_a_confirmation_with_an_offer_behind_it_gets_its_yes(disposition: str) -> None:
    held = await talk(f"Shall I book that? {MORE}", f"Shall I book that? {MORE}", disposition=disposition)
    assert any("yes" in line.lower() for line in held.user[1:])
    assert not held.last.end


async def test_a_reply_comes_before_a_yes_and_only_as_often_as_it_says() -> None:
    replies = [{"to": "shall i book", "say": "Not Tuesday.", "times": 1}]
    held = await talk(*["Shall I book Tuesday?"] * 2, offline={"says": ["Hi."], "replies": replies})
    assert (held.user[1], held.user[2].startswith("Yes")) == ("Not Tuesday.", True)


async def test_options_without_a_reply_get_the_first() -> None:
    assert (await talk(OFFER)).user[1] == "The first one, please."


async def test_a_line_waits_for_its_cue_which_may_come_with_a_question() -> None:
    says = ["Book it.", {"text": "Now move it.", "when": "booked"}]
    held = await talk("Hello.", "It is booked. Is that right?", "Good.", offline={"says": says})
    assert held.user[1] in ("I leave that to you.", "Whatever is usual.")
    assert held.user[2].startswith("Yes")
    assert held.user[3] == "Now move it."


async def test_a_line_whose_cue_never_came_is_given_up_when_the_agent_is_done() -> None:
    says = ["Book it.", {"text": "Now move it.", "when": "booked"}, "And my address changed."]
    held = await talk(f"I cannot. {MORE}", MORE, offline={"says": says})
    assert held.user[1:] == ["And my address changed.", held.user[-1]]
    assert held.last.end


async def test_without_lines_it_opens_with_the_demand() -> None:
    script = make_script()
    held = await converse(script, scripted(script), [MORE])
    assert (held.user[0], held.last.end) == ("Book a visit.", True)


@pytest.mark.parametrize("disposition", ALL)
async def test_the_same_seed_gives_the_same_conversation(disposition: str) -> None:
    lines = ["Good day.", "Your name?", "What is your full name?", OFFER, "Shall I book that?", "Well?", MORE]
    first, second = [await talk(*lines, disposition=disposition, seed=3) for _ in range(2)]
    assert first.history == second.history


async def test_seeds_differ_in_what_is_said() -> None:
    lines = ["What is your full name?", OFFER, "Shall I book that?", MORE]
    said = {tuple((await talk(*lines, disposition="confused", seed=seed)).user) for seed in range(20)}
    assert len(said) > 5


AGENT_PARTS = st.sampled_from(
    [
        *("Hello.", "Booked.", MORE, OFFER, "Shall I book that?", "What is your full name?", "Which day?"),
        *(
            "What is your date of birth?",
            "And your insurance?",
            "Or?",
            "1) a 2) b?",
            "{full_name}",
            "\\1 (",
            "\n",
        ),
    ]
)


@given(
    disposition=st.sampled_from(ALL),
    seed=st.integers(),
    lines=st.lists(
        st.one_of(st.text(max_size=60), st.lists(AGENT_PARTS).map(" ".join)), min_size=1, max_size=6
    ),
)
async def test_every_conversation_ends_or_reaches_the_cap_whatever_the_agent_says(
    disposition: str, seed: int, lines: list[str]
) -> None:
    script = make_script(FACTS, disposition=disposition)
    says = ["I want a visit.", {"text": "Now move it.", "when": "booked"}, "And cancel it."]
    actor = scripted(script, {"says": says, "replies": [{"to": "which day", "say": "Any."}]}, seed=seed)
    turn = iter(range(10**9))
    held = await converse(script, actor, lambda _: lines[next(turn) % len(lines)], cap=12)
    assert held.last.end or len(held.user) == 12
    assert all(held.user)
    assert not any("Aetna" in line for line in held.user)


@pytest.mark.parametrize("disposition", ALL)
@pytest.mark.parametrize("says", ["", "Hello.", "Which colour?", MORE, "I see."])
async def test_a_conversation_with_an_agent_that_gets_nowhere_is_ended_by_the_person(
    says: str, disposition: str
) -> None:
    script = make_script(FACTS, disposition=disposition)
    held = await converse(script, scripted(script, {"says": ["I want a visit."]}), lambda _: says, cap=12)
    assert held.last.end


@pytest.mark.parametrize("disposition", ALL)
async def test_a_parrot_is_no_fault_of_the_actor(disposition: str) -> None:
    script = make_script(FACTS, disposition=disposition)
    held = await converse(
        script, scripted(script, {"says": ["I want a visit to a doctor."]}), lambda line: line
    )
    assert held.last.end or len(held.user) == script.cap
