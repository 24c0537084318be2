"""Recorded answers of external tools: they stand, whatever the mock says now; a call without one voids."""

from __future__ import annotations

import dataclasses
import secrets
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel
from support.sdk import Minter, armed, context_for

from redteam_sdk import external
from redteam_sdk.context import bound
from redteam_sdk.errors import AnswerNotRecorded, EnvironmentFault, InvalidContext, UnmockedExternalCall
from redteam_sdk.faults import cause_of
from redteam_sdk.frozen import Answers
from redteam_sdk.record import recording
from redteam_sdk.scripted import ScriptedFault
from redteam_sdk.values import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINTER = Minter()


class Events(list[dict[str, Any]]):
    def emit(self, event: dict[str, Any]) -> None:
        event.pop("at")
        self.append(event)

    @property
    def outbox(self) -> list[dict[str, Any]]:
        return [event for event in self if event["kind"] == "external"]


@contextmanager
def replay(*answers: dict[str, Any], faults: tuple[ScriptedFault, ...] = ()) -> Iterator[Events]:
    """A conversation in which external tools have these recorded answers."""
    events = Events()
    fork = f"c001_{secrets.token_hex(4)}"
    context = context_for(conversation="c001", database=fork, user=fork, faults=faults)
    recorded = Answers.from_json(list(answers))
    with armed(MINTER, "/nowhere"), bound(context), recording(events, answers=recorded):
        yield events


def answer(name: str, *, of: dict[str, Any], **came: Any) -> dict[str, Any]:
    return {"name": name, "arguments": of, **came}


class CardDeclined(Exception):
    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(text)
        self.code = code


def test_the_recorded_answer_stands_and_the_mock_still_runs_for_what_it_does() -> None:
    ran: list[int] = []

    def mock(cents: int) -> str:
        ran.append(cents)
        return "from the mock of now"

    @external(mock=mock)
    def pay(cents: int) -> str:
        raise SystemError("real")

    with replay(answer("pay", of={"cents": 5}, result="recorded")) as events:
        assert pay(5) == "recorded"
    assert ran == [5]
    assert [(event["result"], event["recorded"]) for event in events.outbox] == [("recorded", True)]


async def test_it_stands_for_every_kind_of_function() -> None:
    async def amock(n: int) -> str:
        return f"now {n}"

    @external(mock=amock)
    async def aask(n: int) -> str:
        raise SystemError("real")

    def broken(n: int) -> str:
        raise ValueError(f"the mock of now fails at {n}")

    @external(mock=broken)
    def ask(n: int) -> str:
        raise SystemError("real")

    with replay(answer("aask", of={"n": 1}, result="then"), answer("ask", of={"n": 1}, result="too")):
        assert await aask(1) == "then"
        assert ask(1) == "too"


def test_equal_calls_get_their_answers_in_order_and_one_too_many_gets_none() -> None:
    @external(mock=lambda n: "now")
    def ask(n: int) -> str:
        raise SystemError("real")

    recorded = [answer("ask", of={"n": n}, result=text) for n, text in ((1, "a"), (2, "b"), (1, "c"))]
    with replay(*recorded) as events:
        assert [ask(1), ask(1), ask(2)] == ["a", "c", "b"]
        with pytest.raises(AnswerNotRecorded, match="ask was called as it was not recorded: no further call"):
            ask(1)
    # Noticed also where the agent catches it.
    assert [(event["cause"], event["whose"]) for event in events if event["kind"] == "fault"] == [
        ("mock-miss", "infra")
    ]


def test_a_miss_names_the_arguments_that_differ_and_no_value() -> None:
    ran = []

    @external(mock=lambda to, text: ran.append(to))
    def sms(to: str, text: str) -> None:
        raise SystemError("real")

    recorded = answer("sms", of={"to": "+1", "text": "secret"}, result=None)
    with replay(recorded), pytest.raises(AnswerNotRecorded, match=r"differs in text$") as caught:
        sms("+1", "other")
    assert cause_of(caught.value) == "mock-miss"
    assert "secret" not in str(caught.value)
    assert "other" not in str(caught.value)
    assert ran == []


def test_an_error_is_raised_again_as_the_agent_saw_it() -> None:
    @external(mock=lambda: "now it works")
    def pay() -> str:
        raise SystemError("real")

    with replay(answer("pay", of={}, error="CardDeclined: no money"), answer("pay", of={}, error="KeyError")):
        with pytest.raises(CardDeclined, match="no money"):
            pay()
        with pytest.raises(KeyError):
            pay()


def test_an_error_that_cannot_be_raised_again_is_a_miss() -> None:
    @external(mock=lambda: "now it works")
    def pay() -> str:
        raise SystemError("real")

    recorded = answer("pay", of={}, error="NoSuchErrorAnywhere: text")
    with replay(recorded), pytest.raises(AnswerNotRecorded, match="raised NoSuchErrorAnywhere when it was"):
        pay()


def test_recorded_faults_are_played_as_they_were_and_the_script_is_not_asked() -> None:
    ran = []

    @external(mock=lambda n: ran.append(n))
    def pay(n: int) -> None:
        raise SystemError("real")

    text = "TimeoutError: pay did not answer in time; whether it was done is not known"
    recorded = [
        answer("pay", of={"n": 1}, error=text, fault="timeout", happened=True),
        answer("pay", of={"n": 2}, error="Bounced: ...", fault="bounce", happened=False),
        answer("pay", of={"n": 3}, result=None),
    ]
    with replay(*recorded, faults=(ScriptedFault("pay", "duplicate"),)) as events:
        with pytest.raises(TimeoutError):
            pay(1)
        with pytest.raises(Exception, match="could not deliver"):
            pay(2)
        assert pay(3) is None
    assert ran == [1, 3]
    assert [event.get("fault") for event in events.outbox] == ["timeout", "bounce", None]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    at: date


@dataclasses.dataclass
class Receipt:
    id: UUID
    cents: Decimal
    lines: list[date]


class Model(BaseModel):
    n: int
    at: datetime


THEN, NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)
ID, OTHER = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("text", None),
        ({"a": [1, {"b": 2.5}]}, {"a": [3, {"b": 4.0}]}),
        (THEN, NOW),
        (THEN.date(), NOW.date()),
        (time(3, 4), time(5)),
        (timedelta(seconds=90), timedelta(0)),
        (Decimal("9.90"), Decimal(1)),
        (ID, OTHER),
        (Colour.RED, Colour.BLUE),
        ((1, THEN), (2, NOW)),
        ([THEN, THEN], [NOW]),
        (frozenset({1, 2}), frozenset({3})),
        (Point(1, THEN.date()), Point(2, NOW.date())),
        (Receipt(ID, Decimal("1.5"), [THEN.date()]), Receipt(OTHER, Decimal(0), [NOW.date()])),
        (Model(n=1, at=THEN), Model(n=2, at=NOW)),
        ({"at": THEN, "note": "x"}, {"at": NOW}),
    ],
    ids=str,
)
def test_an_answer_comes_back_in_the_types_of_the_mock(then: Any, now: Any) -> None:
    @external(mock=lambda: now)
    def ask() -> Any:
        raise SystemError("real")

    with replay(answer("ask", of={}, result=to_json(then))):
        found = ask()
    assert (found, type(found)) == (then, type(then))


def test_an_object_stays_where_it_is_what_it_was_and_is_a_miss_where_it_cannot_be_made() -> None:
    class Client:
        """Has no JSON form."""

    client = Client()

    @external(mock=lambda: client)
    def connect() -> Any:
        raise SystemError("real")

    shown = to_json(client, strict=False)
    with replay(answer("connect", of={}, result=shown), answer("connect", of={}, result={"was": "plain"})):
        assert connect() is client
        with pytest.raises(AnswerNotRecorded, match="let the mock answer with plain data"):
            connect()


def test_what_is_no_answer_of_the_tool_s_stays_a_fault_of_ours() -> None:
    @external
    def unmocked() -> None:
        raise SystemError("real")

    def failing() -> None:
        raise EnvironmentFault("no database")

    @external(mock=failing)
    def pay() -> None:
        raise SystemError("real")

    with replay(answer("unmocked", of={}, result=1), answer("pay", of={}, result=1)):
        with pytest.raises(UnmockedExternalCall):
            unmocked()
        with pytest.raises(EnvironmentFault, match="no database"):
            pay()


@pytest.mark.parametrize("data", [{}, "x", [1], [{"name": "a"}], [{"name": "a", "arguments": {}, "more": 1}]])
def test_what_is_no_list_of_answers_is_refused(data: object) -> None:
    with pytest.raises(InvalidContext):
        Answers.from_json(data)


def test_arguments_are_compared_before_the_mock_may_change_them() -> None:
    change: Callable[[list[int]], None] = list.clear

    @external(mock=change)
    def send(numbers: list[int]) -> None:
        raise SystemError("real")

    with replay(answer("send", of={"numbers": [1]}, result=None)):
        send([1])
