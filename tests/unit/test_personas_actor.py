"""What an actor gets, and which of its lines are taken."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.personas import DISPOSITIONS, ROW, make_script

from redteam_personas import (
    ActorFault,
    Line,
    Refusal,
    RevealState,
    Taken,
    hear,
    held_facts,
    take_line,
    view_of,
)
from redteam_personas.leaks import says_value
from redteam_personas.spoken import prompt_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redteam_personas import Fact, Script, View
    from redteam_personas.actor import Role

RULES = ("at once", "at turn 2", "when asked", "when pressed", "when pressed twice", "never")
ASKS = ("What is your full name?", "What is your date of birth?", "And your insurance?", "Hello.")
FACTS = ("full_name", "date_of_birth", "insurance")
# Like what a cast holds, and unlike anything that a disposition, a demand or a rule of ours says.
DISTINCT = st.one_of(
    st.dates(min_value=dt.date(1900, 1, 1), max_value=dt.date(2099, 12, 31)),
    st.from_regex(r"[A-Z]{2}[0-9]{6}", fullmatch=True),
    st.integers(min_value=10**6),
    st.from_regex(r"Q[xz]{3,8} Q[xz]{3,8}", fullmatch=True),
)


class Told:
    """An actor that says given lines and keeps the views it got."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.views: list[View] = []

    async def speak(self, view: View) -> Line:
        self.views.append(view)
        return Line(text=self.lines.pop(0))


def views(
    row: dict[str, object], rules: Sequence[str], disposition: str, asks: Sequence[str]
) -> Iterator[tuple[Script, RevealState, View]]:
    """What an actor gets, turn by turn, of an agent that asks these things."""
    script = make_script(dict(zip(FACTS, rules, strict=True)), row=row, disposition=disposition)
    state, history = RevealState(), list[tuple["Role", str]]()
    for turn, line in enumerate(["", *asks], start=1):
        state, _ = hear(state, script.facts, line, turn)
        history += [("agent", line), ("user", "Well.")] if line else []
        yield script, state, view_of(script, state, history, turn)


TALKS = {
    "rules": st.tuples(*[st.sampled_from(RULES)] * 3),
    "disposition": st.sampled_from([name for name, one in DISPOSITIONS.items() if not one.impersonates]),
    "asks": st.lists(st.sampled_from(ASKS), max_size=5),
}


@given(values=st.tuples(DISTINCT, DISTINCT, DISTINCT), **TALKS)
def test_no_view_and_no_prompt_holds_a_value_that_is_not_revealed(
    values: tuple[object, ...], rules: Sequence[str], disposition: str, asks: Sequence[str]
) -> None:
    for script, state, view in views(dict(zip(FACTS, values, strict=True)), rules, disposition, asks):
        prompt = prompt_of(view)
        shown = json.dumps([asdict(view), prompt], default=lambda data: data.model_dump(mode="json"))
        revealed = [fact.value for fact in script.facts if fact.name in state.revealed]
        for fact in held_facts(script.facts, state):
            if not any(fact.value in value or says_value(value, fact.value) for value in revealed):
                assert fact.value not in shown
                assert not says_value(shown, fact.value)
        assert all(value in prompt.system for value in revealed)


@given(values=st.tuples(*[st.text(min_size=1, max_size=20)] * 3), **TALKS)
def test_nothing_that_an_actor_gets_depends_on_a_held_back_value(
    values: tuple[object, ...], rules: Sequence[str], disposition: str, asks: Sequence[str]
) -> None:
    for script, state, view in views(dict(zip(FACTS, values, strict=True)), rules, disposition, asks):
        held = held_facts(script.facts, state)
        facts = tuple(replace(fact, value="?") if fact in held else fact for fact in script.facts)
        other = view_of(replace(script, facts=facts), state, view.history, view.turn)
        assert (view, prompt_of(view)) == (other, prompt_of(other))


def test_a_view_tells_what_is_revealed_held_and_missing() -> None:
    script = make_script(
        {"full_name": "at once", "date_of_birth": "when asked", "insurance": "never"}, row={"insurance": None}
    )
    state, _ = hear(RevealState(), script.facts, "", 1)
    view = view_of(script, state, [], 1)
    assert (dict(view.revealed), view.script.held, view.script.missing) == (
        {"full_name": "Ada Lindqvist"},
        ("date_of_birth",),
        ("insurance",),
    )


def secretive() -> tuple[View, Sequence[Fact]]:
    script = make_script({"full_name": "at once", "insurance": "never"})
    state, _ = hear(RevealState(), script.facts, "", 1)
    return view_of(
        script, state, [("user", "Hi."), ("agent", "Please wait here for a moment.")], 2
    ), script.facts[1:]


async def test_a_good_line_is_taken_at_once() -> None:
    view, held = secretive()
    actor = Told("Fine.")
    assert await take_line(actor, view, held) == Taken(line=Line(text="Fine."))
    assert actor.views == [view]


async def test_a_leak_is_asked_for_once_more_and_kept_as_evidence() -> None:
    view, held = secretive()
    actor = Told("I am with Aetna Gold.", "Fine.")
    refusal = Refusal(
        kind="leak",
        reason="it tells what must not be told yet: insurance",
        text="I am with Aetna Gold.",
        leaks=("insurance",),
    )
    assert await take_line(actor, view, held) == Taken(line=Line(text="Fine."), refusal=refusal)
    assert [seen.refused for seen in actor.views] == ["", refusal.reason]


async def test_a_second_bad_line_is_a_fault_of_the_actor_with_both_lines_and_no_value_in_the_message() -> (
    None
):
    view, held = secretive()
    actor = Told("", "Aetna Gold, why?")
    with pytest.raises(ActorFault, match="refused twice") as fault:
        await take_line(actor, view, held)
    first, second = fault.value.refusals
    assert (first.kind, first.text, first.leaks) == ("empty", "", ())
    assert (second.kind, second.text, second.leaks) == ("leak", "Aetna Gold, why?", ("insurance",))
    assert str(ROW["insurance"]) not in str(fault.value)


async def test_a_third_line_is_never_asked_for() -> None:
    view, held = secretive()
    actor = Told("", "", "Fine.")
    with pytest.raises(ActorFault):
        await take_line(actor, view, held)
    assert actor.lines == ["Fine."]


async def test_the_person_may_repeat_a_value_that_the_agent_read_out() -> None:
    script = make_script({"insurance": "never"})
    view = view_of(script, RevealState(), [("user", "Hi."), ("agent", "I see Aetna Gold here.")], 2)
    taken = await take_line(Told("Yes, Aetna Gold."), view, script.facts)
    assert taken.refusal is None


async def test_the_person_may_say_again_what_an_agent_parroted() -> None:
    line = "I would like to book a visit."
    view = view_of(make_script(), RevealState(), [("user", line), ("agent", line)], 2)
    assert (await take_line(Told(line), view, ())).refusal is None
