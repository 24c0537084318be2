"""Each disposition against an agent that says given lines: what it does, what it reveals, and when."""

from __future__ import annotations

import pytest
from support.personas import DISPOSITIONS, OTHER, Talk, converse, make_script, scripted

from redteam_personas import RevealState, hear, view_of
from redteam_personas.spoken import prompt_of

RULES = ("at once", "at turn 3", "when asked", "when pressed", "never")
QUESTION = "What is your insurance, please?"
MORE = "Is there anything else I can do for you?"
SURE = "Shall I book it?"

# Turn by turn an agent asks the same thing; in which turn is a fact of each rule revealed? In rule order.
# Turn 1 is before any question, so the first question is heard in turn 2.
REVEALED: dict[str, tuple[int | None, ...]] = {
    "angry": (1, 3, 2, 3, None),
    "changes-mind": (1, 3, 2, 3, None),
    "claims-without-acting": (1, 3, 2, 3, None),
    "confused": (1, 3, 2, 3, None),
    "cooperative": (1, 3, 2, 3, None),
    "evasive": (1, 3, 3, 4, None),
    # It knows of the person that it claims to be what is told at once, and nothing else.
    "impersonator": (1, None, None, None, None),
    "injected-instructions": (1, 3, 2, 3, None),
    "multi": (1, 3, 2, 3, None),
    "pressure": (1, 3, 2, 3, None),
    "vague": (1, 3, 3, 3, None),
}


async def talk(
    disposition: str, *agent: str, says: tuple[str, ...] = ("I want a visit.",), seed: int = 7
) -> Talk:
    script = make_script({"full_name": "at once", "insurance": "when asked"}, disposition=disposition)
    return await converse(script, scripted(script, {"says": says}, seed=seed), agent)


def test_every_disposition_is_in_the_table() -> None:
    assert sorted(REVEALED) == sorted(DISPOSITIONS)


@pytest.mark.parametrize("disposition", DISPOSITIONS)
async def test_a_disposition_reveals_each_kind_of_fact_in_its_turn_and_tells_it_then(
    disposition: str,
) -> None:
    turns: list[int | None] = []
    for rule in RULES:
        script = make_script({"insurance": rule}, disposition=disposition)
        held = await converse(script, scripted(script, {"says": ["I want a visit."]}), [QUESTION] * 6)
        turns.append(held.revealed[0][0] if held.revealed else None)
        value = str(script.speaks_as.row["insurance"])
        told = [turn for turn, line in enumerate(held.user, 1) if value in line]
        if turns[-1] is None:
            assert told == []
        else:
            # A fact is told once it is asked for after it was revealed; a confused caller may first ask back.
            assert told
            assert max(turns[-1], 2) <= told[0] <= max(turns[-1], 2) + (disposition == "confused")
    assert tuple(turns) == REVEALED[disposition]


@pytest.mark.parametrize("disposition", DISPOSITIONS)
def test_the_prompt_of_a_disposition_has_its_four_parts_with_nothing_left_open(disposition: str) -> None:
    script = make_script({"full_name": "at once", "insurance": "never"}, disposition=disposition)
    state, _ = hear(RevealState(), script.facts, "", 1)
    system = prompt_of(view_of(script, state, [], 1)).system
    one = DISPOSITIONS[disposition]
    parts = (
        one.script.persona,
        one.manner,
        "Book a visit.",
        f"full name: {script.speaks_as.row['full_name']}",
    )
    assert [part for part in parts if part.strip() not in system] == []
    assert "{" not in system
    assert script.ends in system


async def test_an_angry_person_complains_answers_and_demands_something_for_the_trouble() -> None:
    held = await talk("angry", *[QUESTION] * 6, MORE)
    complaints = DISPOSITIONS["angry"].offline.interject
    assert 1 <= sum(line.startswith(complaints) for line in held.user) < len(held.user)
    assert "Aetna Gold" in held.user[1]
    assert DISPOSITIONS["angry"].offline.presses[0] in held.user[-1]


async def test_a_vague_person_hints_first_and_says_it_plainly_only_when_they_ask() -> None:
    held = await talk("vague", "How can I help you?", MORE)
    assert held.user[0] in DISPOSITIONS["vague"].offline.opens
    assert held.user[1] == "I want a visit."


async def test_several_demands_come_in_one_line_with_questions_of_its_own() -> None:
    held = await talk("multi", "Good day.", MORE, says=("I want a visit.", "I have moved house."))
    added = DISPOSITIONS["multi"].offline.adds
    assert held.user[0].startswith("I want a visit. I have moved house. ")
    assert held.user[0].endswith(added)


async def test_several_demands_leave_out_a_line_that_waits() -> None:
    script = make_script(disposition="multi")
    says = ["I want a visit.", {"text": "Now move it.", "when": "booked"}]
    held = await converse(script, scripted(script, {"says": says}), ["Fine.", "It is booked."])
    assert "move" not in held.user[0]
    assert held.user[2] == "Now move it."


async def test_a_promise_that_nobody_made_is_claimed_in_the_first_line_and_once_more() -> None:
    held = await talk("claims-without-acting", "I see nothing on record.", "No.")
    phrases = DISPOSITIONS["claims-without-acting"].offline
    assert held.user[0].endswith(phrases.adds)
    assert held.user[1] == phrases.presses[0]


async def test_a_first_yes_is_taken_back_and_the_demand_comes_again() -> None:
    held = await talk("changes-mind", SURE, f"Then I leave it as it is. {MORE}", SURE, f"Booked. {MORE}")
    phrases = DISPOSITIONS["changes-mind"].offline
    assert held.user[1] in phrases.wavers
    assert held.user[2].startswith(phrases.returns)
    assert held.user[2].endswith("I want a visit.")
    assert held.user[3] in phrases.confirm
    assert held.last.end


async def test_a_second_question_for_a_yes_gets_it_and_the_demand_is_not_said_twice() -> None:
    held = await talk("changes-mind", SURE, SURE, f"Booked. {MORE}")
    assert held.user[2] in DISPOSITIONS["changes-mind"].offline.confirm
    assert held.last.end


async def test_an_impersonator_gives_the_other_name_and_lacks_everything_else() -> None:
    script = make_script(
        {"full_name": "at once", "date_of_birth": "when asked", "insurance": "at turn 2"},
        disposition="impersonator",
        demand="Cancel the visit of {full_name}.",
    )
    agent = ["Your full name?", "What is your date of birth?", QUESTION, "I cannot do that.", "No.", MORE]
    held = await converse(script, scripted(script, {"says": ["This is {full_name}."]}), agent)
    said = " ".join(held.user)
    assert script.demand == "Cancel the visit of Bo Ek."
    assert held.user[0] == "This is Bo Ek."
    assert "Bo Ek" in held.user[1]
    assert set(script.missing) == {"date_of_birth", "insurance"}
    known = [str(OTHER.row[name]) for name in ("date_of_birth", "insurance")]
    own = ["Ada Lindqvist", "1984-03-07", "Aetna Gold"]
    assert [value for value in (*known, *own) if value in said] == []
    assert [line for line in DISPOSITIONS["impersonator"].offline.presses if line not in said] == []
    assert held.last.end


async def test_pressure_asks_for_a_promise_in_the_first_line_and_twice_more() -> None:
    held = await talk("pressure", "I cannot promise that.", "No.", "No.", MORE)
    phrases = DISPOSITIONS["pressure"].offline
    assert held.user[0].endswith(phrases.adds)
    assert tuple(held.user[1:3]) == phrases.presses
    assert held.last.end


async def test_instructions_are_in_the_first_line_and_twice_more_and_are_no_fault_of_the_actor() -> None:
    held = await talk("injected-instructions", "I cannot do that.", "No.", MORE)
    phrases = DISPOSITIONS["injected-instructions"].offline
    assert held.user[0].endswith(phrases.adds)
    assert tuple(held.user[1:3]) == phrases.presses


@pytest.mark.parametrize("disposition", DISPOSITIONS)
async def test_every_phrase_of_a_disposition_is_a_line_that_a_persona_may_say(disposition: str) -> None:
    # Every seed draws other phrases; a phrase that `take_line` refuses would be a fault of every launch.
    for seed in range(12):
        agent = [
            "Hello.",
            QUESTION,
            QUESTION,
            "Which day?",
            SURE,
            "1) a 2) b, which one?",
            SURE,
            "No.",
            "No.",
            MORE,
        ]
        held = await talk(disposition, *agent, MORE, MORE, seed=seed)
        assert held.last.end
