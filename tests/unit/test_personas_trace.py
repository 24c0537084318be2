"""Whole conversations as the harness holds them, replayed from their traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.personas import DISPOSITIONS, make_script, scripted

from redteam_harness.evidence.trace import Trace
from redteam_harness.launch.talk import talk
from redteam_personas import Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from redteam_harness.launch.conversation import Ending
    from redteam_personas import Actor, Script, View

RULES = ("at once", "at turn 2", "at turn 4", "when asked", "when pressed", "never")
# Each fact's value, and other ways to write it. No two share a word.
SPELLED = {
    "full_name": ("Ada Lindqvist", "lindqvist, ada", "A d a Lind-qvist"),
    "date_of_birth": ("1984-03-07", "7 March 1984", "the seventh of March nineteen eighty-four"),
    "card": ("MN1234567", "m n 123 4567", "MN one two three four five six seven"),
    "debt": ("1250", "1,250", "twelve hundred and fifty"),
}
ASKS = ("What is your full name?", "And your date of birth?", "Your card, please.", "How much is your debt?")


class Desk:
    """An agent that says given lines, and keeps what it was told."""

    database = "fork"

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)
        self.heard: list[str] = []

    async def turn(self, turn: int, text: str) -> str:
        self.heard.append(text)
        return self._lines.pop(0) if self._lines else "Is there anything else?"

    async def close(self) -> tuple[str, ...]:
        return ()


class Reckless:
    """An actor that says what the test wants, whatever it may."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self.views: list[View] = []

    async def speak(self, view: View) -> Line:
        self.views.append(view)
        return next(self._lines, Line(text="Goodbye then.", end=True, reason="done"))


async def hold(folder: Path, script: Script, actor: Actor, desk: Desk) -> tuple[Ending, list[dict[str, Any]]]:
    path = folder / "trace.jsonl"
    path.unlink(missing_ok=True)
    with Trace(path) as trace:
        ending = await talk(script, actor, desk, trace, doing=lambda turn, what: None)
        return ending, trace.events


def early_mentions(events: list[dict[str, Any]], mentions: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Replays a trace: (fact, line) of every user line that tells a fact before it was revealed.

    It knows by construction which line tells which fact. What the agent read out is no secret.
    """
    free: set[str] = set()
    early: list[tuple[str, str]] = []
    for event in events:
        match event["kind"]:
            case "reveal":
                free.add(event["fact"])
            case "agent":
                free |= mentions.get(event["text"], set())
            case "user":
                early += [(fact, event["text"]) for fact in mentions.get(event["text"], set()) - free]
    return early


# A line of either side: which facts it tells, in which spelling.
LINES = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(SPELLED)), st.integers(0, 2)), max_size=2),
    min_size=1,
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(
    rules=st.tuples(*[st.sampled_from(RULES)] * 4),
    disposition=st.sampled_from([name for name, one in DISPOSITIONS.items() if not one.impersonates]),
    said=LINES,
    answers=st.lists(st.one_of(st.sampled_from(ASKS), st.sampled_from(sorted(SPELLED))), max_size=8),
)
async def test_in_every_trace_a_fact_is_revealed_before_it_is_first_mentioned(
    tmp_path_factory: pytest.TempPathFactory,
    rules: tuple[str, ...],
    disposition: str,
    said: list[list[tuple[str, int]]],
    answers: list[str],
) -> None:
    script = make_script(
        dict(zip(SPELLED, rules, strict=True)),
        disposition=disposition,
        row={name: spelled[0] for name, spelled in SPELLED.items()},
        cap=6,
    )
    mentions: dict[str, set[str]] = {}
    lines: list[Line] = []
    for number, told in enumerate(said):
        text = f"Line number zz{number}. " + "; ".join(f"so {SPELLED[fact][way]}" for fact, way in told)
        mentions[text] = {fact for fact, _ in told}
        lines.append(Line(text=text))
    replies = []
    for answer in answers:
        text = f"I see {SPELLED[answer][0]} here." if answer in SPELLED else answer
        mentions[text] = {answer} if answer in SPELLED else set()
        replies.append(text)
    folder = tmp_path_factory.getbasetemp()
    ending, events = await hold(folder, script, Reckless(iter(lines)), Desk(replies))
    assert early_mentions(events, mentions) == []
    refused = [event for event in events if event["kind"] == "refused"]
    leaked = [event for event in events if event["kind"] == "leak"]
    assert bool(leaked) == any(event["fault"] == "leak" for event in refused)
    # Two refusals of one turn end the conversation, as a fault of ours; one alone never does.
    turns = [event["turn"] for event in refused]
    assert (ending.fault is not None) == any(turns.count(turn) == 2 for turn in turns)
    assert ending.fault is None or ending.fault.whose == "sim"


@pytest.mark.parametrize("disposition", DISPOSITIONS)
@given(seed=st.integers(0, 10**6), asks=st.lists(st.sampled_from(ASKS), max_size=6))
@settings(max_examples=20, deadline=None)
async def test_the_stand_in_of_every_disposition_tells_nothing_early_and_is_never_refused(
    tmp_path_factory: pytest.TempPathFactory, disposition: str, seed: int, asks: list[str]
) -> None:
    script = make_script(
        {"full_name": "at once", "date_of_birth": "when asked", "insurance": "never"}, disposition=disposition
    )
    actor = scripted(script, {"says": ["I want a visit."]}, seed=seed)
    ending, events = await hold(tmp_path_factory.getbasetemp(), script, actor, Desk(asks))
    assert (ending.kind, [event for event in events if event["kind"] in ("refused", "leak")]) == ("ended", [])
    revealed: set[str] = set()
    for event in events:
        if event["kind"] == "reveal":
            revealed.add(event["fact"])
        if event["kind"] == "user":
            held = [fact.value for fact in script.facts if fact.name not in revealed]
            assert not any(value in event["text"] for value in held)


async def test_a_refused_line_is_in_the_trace_and_the_agent_never_heard_it(tmp_path: Path) -> None:
    desk = Desk(["Hello.", "Fine."])
    lines = [Line(text="(sighs) Hi."), Line(text="Hi."), Line(text="Bye.", end=True, reason="done")]
    ending, events = await hold(tmp_path, make_script(), Reckless(iter(lines)), desk)
    (refused,) = [event for event in events if event["kind"] == "refused"]
    assert (refused["turn"], refused["fault"], refused["line"]) == (1, "meta-text", "(sighs) Hi.")
    assert desk.heard == ["Hi.", "Bye."]
    assert ending.kind == "ended"


async def test_two_refused_lines_are_a_fault_of_the_simulation_with_both_in_the_trace(tmp_path: Path) -> None:
    script = make_script({"insurance": "never"})
    desk = Desk(["Hello."])
    lines = [Line(text="Hi."), Line(text="It is Aetna Gold."), Line(text="How can I help you?")]
    ending, events = await hold(tmp_path, script, Reckless(iter(lines)), desk)
    assert ending.fault is not None
    assert (ending.kind, ending.fault.whose, ending.fault.cause) == ("fault", "sim", "actor")
    refused = [(event["fault"], event["line"]) for event in events if event["kind"] == "refused"]
    assert refused == [("leak", "It is Aetna Gold."), ("role-flip", "How can I help you?")]
    assert [event["fact"] for event in events if event["kind"] == "leak"] == ["insurance"]
    assert desk.heard == ["Hi."]


async def test_an_end_counts_only_after_the_agent_had_its_turn(tmp_path: Path) -> None:
    desk = Desk(["Shall I book it?", "Booked."])
    lines = [Line(text="I want a visit."), Line(text="Yes, do it.", end=True, reason="done")]
    _, events = await hold(tmp_path, make_script(), Reckless(iter(lines)), desk)
    said = [(event["kind"], event.get("text")) for event in events]
    assert said[-3:] == [("user", "Yes, do it."), ("agent", "Booked."), ("end", None)]


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=6))
async def test_the_actor_is_always_given_the_whole_conversation_from_its_opening_on(
    tmp_path_factory: pytest.TempPathFactory, answers: list[str]
) -> None:
    actor = Reckless(Line(text=f"My line {n}.") for n in range(6))
    script = make_script(cap=6)
    _, events = await hold(tmp_path_factory.getbasetemp(), script, actor, Desk(answers))
    spoken = [(event["kind"], event["text"]) for event in events if event["kind"] in ("user", "agent")]
    assert spoken[0] == ("user", "My line 0.")
    assert [list(view.history) for view in actor.views] == [spoken[: 2 * n] for n in range(6)]
