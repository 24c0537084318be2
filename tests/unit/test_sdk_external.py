"""`@external`: everything that can be marked, mocks with a memory, and faults that a case has them play.

Long because it is one decorator for every kind of callable, sync and async, in production and in redteam.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sdk import Minter, armed, context_for

from redteam_sdk import db, external, tool
from redteam_sdk.claims import from_claims, to_claims
from redteam_sdk.context import bind, bound
from redteam_sdk.errors import EnvironmentFault, InvalidContext, NoContext, UnmockedExternalCall
from redteam_sdk.external import external_tools
from redteam_sdk.marks import marked
from redteam_sdk.mocks import Bounced, Duplicate, per_conversation
from redteam_sdk.record import recording
from redteam_sdk.scripted import ScriptedFault, fault_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from redteam_sdk.claims import Context

MINTER = Minter()


class Events(list[dict[str, Any]]):
    def emit(self, event: dict[str, Any]) -> None:
        event.pop("at")
        self.append(event)

    def outbox(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in event.items() if name != "kind"}
            for event in self
            if event["kind"] == "external"
        ]


@contextmanager
def conversation(*faults: ScriptedFault, name: str = "c001") -> Iterator[Events]:
    """A conversation on a fork of its own, which nothing here asks for."""
    events = Events()
    fork = f"{name}_{secrets.token_hex(4)}"
    context = context_for(conversation=name, database=fork, user=fork, faults=faults)
    with armed(MINTER, "/nowhere"), bound(context), recording(events):
        yield events


class Terminal:
    """A mock with a memory: it knows what it charged."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.charged: list[int] = []

    def charge(self, cents: int) -> str:
        self.charged.append(cents)
        return f"charge {len(self.charged)}"

    async def refund(self, charge: str) -> int:
        return self.charged.pop(int(charge.split()[1]) - 1)


terminal = per_conversation(Terminal)


@external(mock=terminal.charge)
def charge_card(cents: int) -> str:
    raise AssertionError("the real terminal")


@external(mock=terminal.refund)
async def refund_card(charge: str) -> int:
    raise AssertionError("the real terminal")


class Undeliverable(Exception):
    """What production's own gateway raises."""


SENT: list[str] = []


@external(
    mock=lambda to, body: SENT.append(to),
    faults={"bounce": lambda: Undeliverable("550 no such user"), "full": Undeliverable},
)
async def send_mail(to: str, body: str) -> None:
    raise AssertionError("the real gateway")


# What can be marked -----------------------------------------------------------------------------------


async def test_methods_of_every_kind_are_mocked_and_recorded_without_self_and_cls() -> None:
    class Gateway:
        prefix = "real"

        @external(mock=lambda self, to: f"{self.prefix} pretended {to}")
        async def send(self, to: str) -> str:
            return f"sent {to}"

        @classmethod
        @external(mock=lambda cls, to: f"{cls.__name__} pretended {to}")
        def ping(cls, to: str) -> str:
            return f"pinged {to}"

        @staticmethod
        @external(mock=lambda to: f"pretended {to}")
        def trace(to: str) -> str:
            return f"traced {to}"

    async def calls() -> list[str]:
        return [await Gateway().send("a"), Gateway.ping("b"), Gateway().trace(to="c")]

    assert await calls() == ["sent a", "pinged b", "traced c"]
    with conversation() as events:
        assert await calls() == ["real pretended a", "Gateway pretended b", "pretended c"]
    assert [(one["name"], one["arguments"]) for one in events.outbox()] == [
        ("send", {"to": "a"}),
        ("ping", {"to": "b"}),
        ("trace", {"to": "c"}),
    ]


@contextmanager
def fake_session(host: str) -> Iterator[str]:
    SENT.append(f"open {host}")
    try:
        yield f"fake {host}"
    finally:
        SENT.append(f"close {host}")


@asynccontextmanager
async def fake_session_async(host: str) -> AsyncIterator[str]:
    with fake_session(host) as session:
        yield session


@external(mock=fake_session)
@contextmanager
def session(host: str) -> Iterator[str]:
    yield f"real {host}"


@external(mock=fake_session_async)
@asynccontextmanager
async def session_async(host: str) -> AsyncIterator[str]:
    yield f"real {host}"


@external(mock=fake_session)
@asynccontextmanager
async def session_plainly_mocked(host: str) -> AsyncIterator[str]:
    yield f"real {host}"


async def entered(make: Callable[[str], Any], fail: bool = False) -> str:
    async def inside(value: str) -> str:
        if fail:
            raise ZeroDivisionError
        return value

    if make is session:
        with make("h") as value:
            return await inside(value)
    async with make("h") as value:
        return await inside(value)


@pytest.mark.parametrize("make", [session, session_async, session_plainly_mocked])
async def test_context_manager_is_its_mock_from_beginning_to_end_and_is_recorded_once(make: Any) -> None:
    SENT.clear()
    assert await entered(make) == "real h"
    with conversation() as events:
        assert await entered(make) == "fake h"
        with pytest.raises(ZeroDivisionError):
            await entered(make, fail=True)
    assert SENT == ["open h", "close h"] * 2
    assert events.outbox() == [{"name": make.__name__, "arguments": {"host": "h"}, "result": "fake h"}] * 2


@pytest.mark.parametrize("make", [session, session_async])
async def test_context_manager_that_fails_after_it_was_entered_is_closed_all_the_same(make: Any) -> None:
    SENT.clear()
    with conversation(ScriptedFault(make.__name__, "timeout")) as events, pytest.raises(TimeoutError):
        await entered(make)
    assert SENT == ["open h", "close h"]
    assert [(one["fault"], one["error"].partition(":")[0]) for one in events.outbox()] == [
        ("timeout", "TimeoutError")
    ]


async def test_context_manager_without_a_mock_is_refused_when_it_is_entered() -> None:
    @external
    @contextmanager
    def bare() -> Iterator[None]:
        SENT.append("the real thing")
        yield

    with conversation() as events, pytest.raises(UnmockedExternalCall), bare():
        pytest.fail("the block ran")
    assert [event["kind"] for event in events] == ["fault", "external"]


def test_context_manager_without_a_context_in_an_armed_process_is_refused() -> None:
    with armed(MINTER, "/nowhere"), pytest.raises(NoContext):
        session("h")


# Mocks with a memory ----------------------------------------------------------------------------------


async def test_mock_remembers_within_a_conversation_and_shares_nothing_with_another() -> None:
    for name in ("c001", "c002"):
        with conversation(name=name):
            assert charge_card(5) == "charge 1"
            assert charge_card(7) == "charge 2"
            assert await refund_card("charge 1") == 5
            assert terminal.here().charged == [7]


async def test_memory_is_dropped_with_its_conversation_and_takes_no_late_call() -> None:
    context = context_for(conversation="c009", database="c009", user="c009")
    with armed(MINTER, "/nowhere"), bound(context):
        charge_card(5)
        held = len(terminal._made)
        await db.close_context(context)
        assert len(terminal._made) == held - 1
        with pytest.raises(NoContext, match="is over"):
            charge_card(5)
    with pytest.raises(NoContext):
        terminal.here()


def test_threads_of_one_conversation_share_one_mock() -> None:
    before = Terminal.made
    with conversation(name="c010"):
        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(charge_card, 1)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(terminal.here().charged) == 20
    assert Terminal.made == before + 1


async def test_tasks_of_different_conversations_at_once_see_their_own_mocks_only() -> None:
    async def run(context: Context) -> list[int]:
        with bound(context):
            for cents in range(10):
                charge_card(cents if context.conversation == "a" else -cents)
                await asyncio.sleep(0)
            return terminal.here().charged

    with armed(MINTER, "/nowhere"):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(run(context_for(conversation=name, database=name, user=name)))
                for name in ("a", "b")
            ]
    assert [sum(task.result()) for task in tasks] == [45, -45]


def test_misspelt_method_of_a_mock_shows_itself_at_the_mark() -> None:
    with pytest.raises(AttributeError, match="chrage"):
        external(mock=terminal.chrage)


def test_stateful_mock_keeps_the_kind_of_its_method() -> None:
    assert terminal.charge.__name__ == "charge"
    with pytest.raises(TypeError, match="needs a plain mock"):
        external(mock=terminal.refund)(lambda charge: None)


def test_function_that_makes_a_function_is_a_stateful_mock_too() -> None:
    def counting() -> Callable[[], int]:
        seen: list[None] = []
        return lambda: (seen.append(None), len(seen))[1]  # type: ignore[func-returns-value]

    @external(mock=per_conversation(counting))
    def count() -> int:
        raise AssertionError

    for name in ("c011", "c012"):
        with conversation(name=name):
            assert [count(), count()] == [1, 2]


# Faults -----------------------------------------------------------------------------------------------


async def test_time_out_with_unknown_outcome_happens_and_raises() -> None:
    with conversation(ScriptedFault("charge_card", "timeout", call=2)) as events:
        charge_card(1)
        with pytest.raises(TimeoutError, match="whether it was done is not known"):
            charge_card(2)
        assert terminal.here().charged[-2:] == [1, 2]  # it was done
        charge_card(3)
    first, second, third = events.outbox()
    assert first["result"]
    assert "fault" not in first
    assert (second["fault"], second["happened"], second["arguments"]) == ("timeout", True, {"cents": 2})
    assert second["error"].startswith("TimeoutError: charge_card did not answer")
    assert "result" not in second
    assert third["result"]
    assert not [event for event in events if event["kind"] == "fault"]  # the agent has to cope with it


async def test_time_out_may_also_not_have_happened() -> None:
    SENT.clear()
    never = ScriptedFault("send_mail", "timeout", happened=False)
    with conversation(never) as events, pytest.raises(TimeoutError):
        await send_mail("a", "b")
    assert SENT == []
    assert events.outbox()[0]["happened"] is False


@pytest.mark.parametrize(
    ("fault", "error"),
    [("bounce", Undeliverable), ("full", Undeliverable), ("duplicate", Duplicate), ("timeout", TimeoutError)],
)
async def test_fault_raises_what_production_would_where_the_mark_says_so(fault: str, error: type) -> None:
    with conversation(ScriptedFault("send_mail", fault)) as events:
        for _ in range(2):
            with pytest.raises(error):
                await send_mail("a", "b")
    assert [one["fault"] for one in events.outbox()] == [fault, fault]


def test_fault_that_nobody_named_an_exception_for_has_ours() -> None:
    with conversation(ScriptedFault("charge_card", "bounce")), pytest.raises(Bounced):
        charge_card(5)


def test_fault_that_the_mark_does_not_know_is_our_fault_and_not_the_agents() -> None:
    unknown = ScriptedFault("charge_card", "declined")
    says = "it has bounce, duplicate, timeout"
    with conversation(unknown) as events, pytest.raises(EnvironmentFault, match=says):
        charge_card(5)
    assert [event["kind"] for event in events] == ["fault", "external"]


def test_fault_of_another_tool_or_in_production_is_not_played() -> None:
    with conversation(ScriptedFault("send_mail", "bounce"), name="c020"):
        assert charge_card(5) == "charge 1"


def test_first_fault_that_fits_a_call_is_played() -> None:
    faults = (ScriptedFault("a", "timeout", call=2), ScriptedFault("a", "bounce"))
    played = [fault_for(faults, "a", "c001", number) for number in (1, 2, 3)]
    assert [one.fault for one in played if one is not None] == ["bounce", "timeout", "bounce"]


def test_share_of_calls_fails_the_same_calls_every_time_and_others_elsewhere() -> None:
    fault = ScriptedFault("a", "bounce", share=0.3)
    drawn = {name: [fault.strikes(name, number) for number in range(1, 1001)] for name in ("c001", "c002")}
    again = [fault.strikes("c001", number) for number in range(1, 1001)]
    assert drawn["c001"] == again
    assert drawn["c001"] != drawn["c002"]
    for struck in drawn.values():
        assert 240 < Counter(struck)[True] < 360


FAULTS = st.builds(
    ScriptedFault,
    external=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True),
    fault=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True),
    call=st.none() | st.integers(1, 10_000),
    share=st.floats(0.001, 1),
    happened=st.none() | st.booleans(),
)


@given(st.lists(FAULTS, max_size=32))
def test_faults_travel_in_the_token(faults: list[ScriptedFault]) -> None:
    context = context_for(faults=tuple(faults))
    claims = to_claims(context, issuer="i", audience="a")
    assert from_claims(claims).faults == tuple(faults)


def test_faults_are_read_back_from_a_signed_token() -> None:
    fault = ScriptedFault("charge_card", "bounce", call=1)
    with armed(MINTER, "/nowhere"), bind(MINTER.mint(context_for(faults=(fault,)))) as context:
        assert context.faults == (fault,)
        with pytest.raises(Bounced):
            charge_card(1)


@pytest.mark.parametrize(
    "claim",
    [
        *([], {}, "x", None, [["a", "b"]], [["a", "b", 0, 1.0, None]], [["a", "b", True, 1.0, None]]),
        *([["a", "b", None, 0, None]], [["a", "b", None, 1.1, None]], [["a", "b", None, 1.0, 1]]),
        *([["a b", "b", None, 1.0, None]], [["a", "", None, 1.0, None]], [["a", "b", None, 1.0, None]] * 33),
        *([["a", "b", None, float("nan"), None]], [["a", "b", None, True, None]], [[1, "b", None, 1, None]]),
    ],
)
def test_token_whose_faults_are_odd_is_refused(claim: Any) -> None:
    claims = to_claims(context_for(), issuer="i", audience="a")
    claims["redteam"]["faults"] = claim
    with pytest.raises(InvalidContext, match="'faults'"):
        from_claims(claims)


def test_process_knows_its_external_tools_and_what_they_can_play() -> None:
    assert external_tools()["send_mail"] == ["bounce", "duplicate", "full", "timeout"]
    assert external_tools()["charge_card"] == ["bounce", "duplicate", "timeout"]


def test_process_knows_what_is_marked_where_and_what_mocks_do_not_do() -> None:
    @external(mock=lambda: None, gap="The real one charges.")
    def buy() -> None: ...

    @external
    def sell() -> None: ...

    @tool
    def look() -> None: ...

    found = {one["name"]: one for kind in marked().values() for one in kind}
    line = buy.__wrapped__.__code__.co_firstlineno  # type: ignore[attr-defined]
    place = {"file": __file__, "line": line}
    assert found["buy"] == {"name": "buy", "mocked": True, "gap": "The real one charges.", **place}
    assert (found["sell"]["mocked"], found["sell"]["gap"]) == (False, None)
    assert [one["name"] for one in marked()["tools"] if one["file"] == __file__].count("look") == 1


def test_gap_without_a_mock_or_without_words_is_refused() -> None:
    with pytest.raises(TypeError, match="'buy' has a gap and no mock"):

        @external(gap="The real one charges.")
        def buy() -> None: ...

    with pytest.raises(ValueError, match="the gap of external 'sell' is blank"):

        @external(mock=lambda: None, gap=" ")
        def sell() -> None: ...


async def test_outbox_has_every_call_in_order_with_its_arguments_as_they_were_given() -> None:
    @external(mock=lambda items: items.clear())
    def post(items: list[int]) -> None:
        raise AssertionError

    with conversation(ScriptedFault("send_mail", "full", call=2)) as events:
        post([1, 2])
        await send_mail("a", "b")
        with pytest.raises(Undeliverable):
            await send_mail("c", "d")
        with pytest.raises(TypeError):
            post()  # type: ignore[call-arg]
    assert [(one["name"], one["arguments"]) for one in events.outbox()] == [
        ("post", {"items": [1, 2]}),
        ("send_mail", {"to": "a", "body": "b"}),
        ("send_mail", {"to": "c", "body": "d"}),
        ("post", {}),
    ]
