"""What an agent's line asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_personas.persona import default_asked_by
from redteam_personas.questions import (
    asks_confirmation,
    asks_for,
    asks_question,
    offers_choice,
    offers_more,
    sentences,
)

NAME, BIRTH, INSURANCE = map(default_asked_by, ("full_name", "date_of_birth", "insurance"))


@pytest.mark.parametrize(
    ("line", "asked_by"),
    [
        ("May I have your full name?", NAME),
        ("Good day. What's your name?", NAME),
        ("What\u2019s your name?", NAME),
        ("Your name and date of birth, please.", NAME),
        ("Your name and date of birth, please.", BIRTH),
        ("Who am I speaking with?", NAME),
        ("What is your date of birth?", BIRTH),
        ("When were you born?", BIRTH),
        ("Thank you. I still need your date of birth to open the record.", BIRTH),
        ("Could you please confirm your date of birth?", BIRTH),
        ("I cannot go on without your date of birth.", BIRTH),
        ("And your insurance?", INSURANCE),
        ("Please tell me which insurance you have.", INSURANCE),
    ],
)
def test_a_request_for_a_fact_is_heard(line: str, asked_by: tuple[str, ...]) -> None:
    assert asks_for(line, asked_by)


@pytest.mark.parametrize(
    ("line", "asked_by"),
    [
        ("Thanks, I have your date of birth.", BIRTH),
        ("Your insurance was updated.", INSURANCE),
        ("Shall I book that under your full name?", NAME),
        ("Is Aetna still your insurance, yes or no?", INSURANCE),
        ("Is State Medical Assistance still your insurance, yes or no?", INSURANCE),
        ("Would you like me to change your insurance?", INSURANCE),
        ("Which date suits you?", BIRTH),
        ("What is the name of your new insurance company, please?", NAME),
        ("I have your date of birth. Which day suits you?", BIRTH),
        ("", NAME),
    ],
)
def test_a_mention_of_a_fact_is_not_a_request_for_it(line: str, asked_by: tuple[str, ...]) -> None:
    assert not asks_for(line, asked_by)


@pytest.mark.parametrize(
    "line",
    [
        "Shall I book that?",
        "I have Tue 8 Dec 09:00 with Dr. Lopez. Is that right?",
        "Would you like me to move it?",
        "Do you want the visit on Thursday?",
        "So, Thursday at nine, correct?",
        "Can I go ahead?",
        "Does Thursday at nine work for you?",
        "How does that sound?",
        "Please reply with yes to book.",
        "Shall I book that, or is there anything else you need?",
        "Is that right, and is there anything else I can do?",
        "Booked. Is everything all correct? Is there anything else I can do for you?",
    ],
)
def test_a_question_that_waits_for_a_yes_is_a_confirmation(line: str) -> None:
    assert asks_confirmation(line)


@pytest.mark.parametrize(
    "line",
    [
        "Is there anything else I can do for you?",
        "Would you like anything else?",
        "Do you want to ask anything else?",
        "Shall I do anything else for you?",
        "May I have your full name?",
        "What would you like me to do?",
        "At what time would you like to come?",
        "Thank you, Ada, which day would you prefer?",
        "How can I help you?",
        "Your visit is booked.",
        "",
    ],
)
def test_an_offer_or_an_open_question_is_no_confirmation(line: str) -> None:
    assert not asks_confirmation(line)


@pytest.mark.parametrize(
    ("line", "is_choice"),
    [
        ("Which time suits you: 1) Tue 8 Dec 09:00 with Dr. Lopez, 2) Wed 9 Dec 10:00 with Dr. Kim?", True),
        ("I can offer you:\n1) Tuesday at 9\n2) Wednesday at 10\nWhich one suits you?", True),
        ("Would you like the morning or the afternoon?", True),
        ("Is Aetna still your insurance, yes or no?", False),
        ("Shall I book that, or is there anything else?", False),
        ("Your visits: 1) Tuesday 2) Wednesday", False),
        ("See you at 9:00.", False),
    ],
)
def test_options_are_told_from_a_yes_or_no(line: str, is_choice: bool) -> None:
    assert offers_choice(line) is is_choice


@pytest.mark.parametrize(
    "line",
    ["Is there anything else I can do for you?", "How can I help you?", "Anything else?", "What else?"],
)
def test_an_offer_of_more_help_is_heard(line: str) -> None:
    assert offers_more(line)


def test_a_title_ends_no_sentence() -> None:
    assert sentences("I have Dr. Lopez at 9. Is that right?") == ("I have Dr Lopez at 9.", "Is that right?")


@given(st.text(max_size=300))
def test_any_text_can_be_heard(line: str) -> None:
    assert asks_question(line) in (True, False)
    assert not (asks_for(line, NAME) and not asks_question(line))
    assert not (offers_choice(line) and not (asks_question(line) or asks_confirmation(line)))
