"""The prompt of a model that plays a persona."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from support.personas import make_script

from redteam_personas import Line, RevealState, SpokenActor, hear, prompt_digest, view_of
from redteam_personas.spoken import prompt_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_personas import View
    from redteam_personas.actor import Role


class Recorder:
    """A model that answers one line and keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[Mapping[str, str]]]] = []

    async def complete(self, *, system: str, messages: Sequence[Mapping[str, str]]) -> Line:
        self.sent.append((system, list(messages)))
        return Line(text="Bye.", end=True, reason="it is done")


def view_after(agent_line: str) -> View:
    script = make_script(
        {"full_name": "at once", "date_of_birth": "when asked", "insurance": "at once"},
        row={"insurance": None},
        ends="when the visit is booked",
    )
    state, _ = hear(RevealState(), script.facts, agent_line, 2)
    return view_of(script, state, [("user", "Hello."), ("agent", agent_line)], 2)


async def test_the_model_is_sent_the_prompt_and_its_line_is_the_actors() -> None:
    model, view = Recorder(), view_after("Good day.")
    assert await SpokenActor(model).speak(view) == Line(text="Bye.", end=True, reason="it is done")
    assert model.sent == [(prompt_of(view).system, list(prompt_of(view).messages))]


def test_the_prompt_holds_the_four_parts_of_the_script() -> None:
    system = prompt_of(view_after("Good day.")).system
    parts = (
        "Friendly and to the point",
        "Book a visit.",
        "- full name: Ada Lindqvist",
        "when the visit is booked",
    )
    assert [part for part in parts if part not in system] == []
    assert "{" not in system


def test_a_held_back_fact_is_named_without_its_value_until_it_is_asked_for() -> None:
    before, after = prompt_of(view_after("Good day.")), prompt_of(view_after("When were you born?"))
    assert "rather not say for now: date of birth." in before.system
    assert "1984" not in before.system
    assert "- date of birth: 1984-03-07" in after.system
    assert "rather not say" not in after.system


def test_a_fact_that_the_row_lacks_is_said_to_be_lacking() -> None:
    assert "You do not have, and can say so: insurance." in prompt_of(view_after("Good day.")).system


def test_a_refused_line_is_told_with_its_reason() -> None:
    script = make_script()
    view = view_of(script, RevealState(), [], 1)
    assert "not sent" not in prompt_of(view).system
    assert "was not sent: it is empty." in prompt_of(replace(view, refused="it is empty")).system


@given(st.lists(st.tuples(st.sampled_from(["user", "agent"]), st.text(max_size=20)), max_size=8))
def test_messages_alternate_from_user_to_user_and_lose_no_line(history: list[tuple[Role, str]]) -> None:
    messages = prompt_of(view_of(make_script(), RevealState(), history, 3)).messages
    assert [message["role"] for message in messages] == [
        ("user", "assistant")[n % 2] for n in range(len(messages))
    ]
    assert messages[-1]["role"] == "user"
    assert all(message["content"].strip() for message in messages)
    whole = "\n".join(message["content"] for message in messages)
    assert all(text.strip() in whole for _, text in history)


def test_the_digest_of_the_prompt_is_stable() -> None:
    assert prompt_digest() == prompt_digest()
    assert len(prompt_digest()) == 64
