"""`@tool` and `@external` are invisible in production, and complete in a recording."""

from __future__ import annotations

import asyncio
import inspect
import sys
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from support.sdk import Minter, armed, context_for

from redteam_sdk import external, tool
from redteam_sdk.context import bound
from redteam_sdk.errors import EnvironmentFault, NoContext, UnmockedExternalCall
from redteam_sdk.faults import cause_of, describe
from redteam_sdk.record import recording
from redteam_sdk.tool import InvalidArguments, invoke, is_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SENT: list[str] = []


class Events(list[dict[str, Any]]):
    """A recorder whose events are compared without their times."""

    def emit(self, event: dict[str, Any]) -> None:
        assert event.pop("at").endswith("Z")
        self.append(event)


@contextmanager
def recorded() -> Iterator[Events]:
    events = Events()
    with recording(events):
        yield events


@contextmanager
def redteam() -> Iterator[Events]:
    """A conversation is bound and recorded. Its fork does not exist, and nothing here asks for it."""
    with armed(Minter(), "/nowhere"), bound(context_for()), recorded() as events:
        yield events


@tool
async def book(patient_id: int, day: date, *, kind: str = "follow_up") -> dict[str, Any]:
    """Book."""
    if patient_id < 0:
        raise ValueError("no such patient")
    return {"patient": patient_id, "day": day}


@tool
def quote(minutes: int) -> int:
    """Price."""
    return 100 // minutes


async def in_thread(run: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(run)


async def test_tool_in_production_is_the_function_itself_and_says_nothing() -> None:
    assert await book(1, date(2026, 1, 1)) == {"patient": 1, "day": date(2026, 1, 1)}
    assert quote(7) == 14
    with pytest.raises(ZeroDivisionError):
        quote(0)


def test_tool_keeps_name_signature_docstring_and_kind() -> None:
    assert (book.__name__, book.__doc__) == ("book", "Book.")
    assert str(inspect.signature(book)).startswith("(patient_id: 'int', day: 'date', *, kind")
    assert inspect.iscoroutinefunction(book)
    assert not inspect.iscoroutinefunction(quote)
    assert is_tool(book)
    assert not is_tool(inspect.unwrap(book))


async def test_recorded_call_shows_arguments_by_name_with_defaults_and_its_result() -> None:
    with recorded() as events:
        result = await book(3, day=date(2026, 1, 1))
        quote(10)
    assert result == {"patient": 3, "day": date(2026, 1, 1)}  # the agent gets the value, the trace its JSON
    shown = {"patient_id": 3, "day": "2026-01-01", "kind": "follow_up"}
    assert events == [
        {"kind": "tool_call", "call": "call-1", "name": "book", "arguments": shown, "xid": None},
        {
            "kind": "tool_result",
            "call": "call-1",
            "name": "book",
            "value": {"patient": 3, "day": "2026-01-01"},
            "xid": None,
        },
        {"kind": "tool_call", "call": "call-2", "name": "quote", "arguments": {"minutes": 10}, "xid": None},
        {"kind": "tool_result", "call": "call-2", "name": "quote", "value": 10, "xid": None},
    ]


async def test_recorded_error_passes_through_as_it_is() -> None:
    with recorded() as events:
        with pytest.raises(ValueError, match="no such patient"):
            await book(-1, date(2026, 1, 1))
        with pytest.raises(ZeroDivisionError):
            quote(0)
        with pytest.raises(TypeError):
            quote()  # type: ignore[call-arg]
    assert [(e["name"], e["type"]) for e in events if e["kind"] == "tool_error"] == [
        ("book", "ValueError"),
        ("quote", "ZeroDivisionError"),
        ("quote", "TypeError"),
    ]
    assert not [e for e in events if e["kind"] == "fault"]


async def test_cancelled_tool_is_recorded_and_stays_cancelled() -> None:
    started = anyio.Event()

    @tool
    async def wait() -> None:
        started.set()
        await anyio.sleep_forever()

    with recorded() as events:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await started.wait()
            group.cancel_scope.cancel()
    assert [(e["kind"], e.get("type")) for e in events] == [
        ("tool_call", None),
        ("tool_error", "CancelledError"),
    ]


@pytest.mark.parametrize("waits_at", [1, 2], ids=["before it runs", "after it ran"])
@pytest.mark.parametrize("arguments", [{"n": 1}, {"m": 1}, {"n": -1}], ids=["fine", "misnamed", "failing"])
async def test_call_that_is_cancelled_while_its_transaction_id_is_asked_for_begins_and_ends_once(
    monkeypatch: pytest.MonkeyPatch, waits_at: int, arguments: dict[str, int]
) -> None:
    asked = 0
    waiting = anyio.Event()

    async def slow() -> int:
        nonlocal asked
        asked += 1
        if asked == waits_at:
            waiting.set()
            await anyio.sleep_forever()
        return asked

    @tool
    async def halve(n: int) -> int:
        if n < 0:
            raise ValueError("less than nothing")
        return n // 2

    async def call() -> None:
        await invoke(halve, arguments, call="c1", in_thread=anyio.to_thread.run_sync)

    # The package's `tool` is the function; the module of that name is found by its name only.
    monkeypatch.setattr(sys.modules["redteam_sdk.tool"], "next_xid_async", slow)
    with recorded() as events:
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await waiting.wait()
            group.cancel_scope.cancel()
    assert [(event["kind"], event["call"]) for event in events][:1] == [("tool_call", "c1")]
    (end,) = events[1:]
    assert (end["kind"] in ("tool_result", "tool_error"), end["call"]) == (True, "c1")


async def test_arguments_are_recorded_as_they_were_when_the_call_began() -> None:
    @tool
    async def append(items: list[int]) -> None:
        items.append(2)

    with recorded() as events:
        await append([1])
    assert events[0]["arguments"] == {"items": [1]}


async def test_unfit_values_never_break_a_recorded_tool() -> None:
    @tool
    async def echo(connection: object) -> object:
        return connection

    with recorded() as events:
        thing = object()
        assert await echo(thing) is thing
    assert events[0]["arguments"] == {"connection": "<object>"}
    assert events[1]["value"] == "<object>"


async def test_method_is_recorded_without_itself() -> None:
    class Desk:
        @tool
        async def greet(self, name: str) -> str:
            return f"hello {name}"

    with recorded() as events:
        assert await Desk().greet("Ada") == "hello Ada"
    assert events[0]["arguments"] == {"name": "Ada"}


@pytest.mark.parametrize(
    "make", [lambda: (yield), staticmethod(lambda: None), int, 3], ids=["generator", "static", "class", "3"]
)
def test_what_is_no_function_that_returns_one_value_is_no_tool(make: Any) -> None:
    with pytest.raises(TypeError):
        tool(make)
    with pytest.raises(TypeError):
        external(make)


async def test_invoked_tool_gets_its_types_and_the_models_call_id() -> None:
    with recorded() as events:
        value = await invoke(book, {"patient_id": 1, "day": "2026-01-01"}, call="tu_1", in_thread=in_thread)
        assert await invoke(quote, {"minutes": 4}, call="tu_2", in_thread=in_thread) == 25
    assert value == {"patient": 1, "day": date(2026, 1, 1)}
    assert [e["call"] for e in events] == ["tu_1", "tu_1", "tu_2", "tu_2"]


async def test_invoked_tool_with_bad_arguments_is_a_recorded_error_and_does_not_run() -> None:
    with recorded() as events, pytest.raises(InvalidArguments, match="day is 'soon'"):
        await invoke(book, {"patient_id": 1, "day": "soon"}, call="tu_1", in_thread=in_thread)
    assert [(e["kind"], e["call"]) for e in events] == [("tool_call", "tu_1"), ("tool_error", "tu_1")]
    assert events[0]["arguments"] == {"patient_id": 1, "day": "soon"}


def fake_charge(cents: int) -> str:
    return f"pretended {cents}"


async def send(to: str, body: str) -> str:
    SENT.append(to)
    return "really sent"


def fake_send(to: str, body: str) -> str:
    return f"pretended to {to}"


async def fake_send_async(to: str, body: str) -> str:
    return fake_send(to, body)


def charge(cents: int) -> str:
    SENT.append(str(cents))
    return "really charged"


async def test_external_call_in_production_is_the_real_one() -> None:
    SENT.clear()
    assert await external(mock=fake_send)(send)("+1", "hi") == "really sent"
    assert external(charge)(5) == "really charged"
    assert SENT == ["+1", "5"]


@pytest.mark.parametrize("mock", [fake_send, fake_send_async])
async def test_external_call_in_a_conversation_is_its_mock_and_is_recorded(mock: Callable[..., Any]) -> None:
    SENT.clear()
    with redteam() as events:
        assert await external(mock=mock)(send)("+1", body="hi") == "pretended to +1"
    assert SENT == []
    assert events == [
        {
            "kind": "external",
            "name": "send",
            "arguments": {"to": "+1", "body": "hi"},
            "result": "pretended to +1",
        }
    ]


async def test_external_call_without_a_mock_is_refused_and_cannot_be_swallowed() -> None:
    SENT.clear()
    with redteam() as events:
        with pytest.raises(UnmockedExternalCall, match="charge was called in redteam and has no mock"):
            external(charge)(5)
        with pytest.raises(UnmockedExternalCall):
            await external(mock=None)(send)("+1", "hi")
    assert SENT == []
    assert [(e["kind"], e.get("cause")) for e in events] == [("fault", "unmocked"), ("external", None)] * 2


async def test_external_call_without_a_context_in_an_armed_process_is_refused() -> None:
    SENT.clear()
    with armed(Minter(), "/nowhere"):
        with pytest.raises(NoContext):
            await external(mock=fake_send)(send)("+1", "hi")
        with pytest.raises(NoContext):
            external(mock=fake_charge)(charge)(5)
    assert SENT == []


async def test_mock_that_fails_is_recorded_and_fails_the_call() -> None:
    def bounce(to: str, body: str) -> str:
        raise ConnectionError("bounced")

    with redteam() as events, pytest.raises(ConnectionError):
        await external(mock=bounce)(send)("+1", "hi")
    assert events[-1]["error"] == "ConnectionError: bounced"


@pytest.mark.parametrize(
    "stacked",
    [external(mock=fake_send)(tool(send)), tool(external(mock=fake_send)(send))],
    ids=["external-on-top", "tool-on-top"],
)
async def test_external_holds_in_whichever_order_it_is_stacked_with_tool(stacked: Callable[..., Any]) -> None:
    SENT.clear()
    assert is_tool(stacked)
    # Not bound to a database: bookkeeping gives up at once on a fork that does not exist.
    with redteam() as events:
        assert (
            await invoke(stacked, {"to": "+1", "body": "x"}, call="tu_1", in_thread=in_thread)
            == "pretended to +1"
        )
    assert SENT == []
    assert "external" in [e["kind"] for e in events]


def test_plain_function_refuses_an_async_mock() -> None:
    with pytest.raises(TypeError, match="needs a plain mock"):
        external(mock=fake_send_async)(charge)


def test_fault_of_ours_is_found_wherever_it_hides() -> None:
    unmocked = UnmockedExternalCall("x")
    wrapped = RuntimeError("tool failed")
    wrapped.__cause__ = unmocked
    assert cause_of(wrapped) == "unmocked"
    assert cause_of(ExceptionGroup("tools", [ValueError(), wrapped])) == "unmocked"
    handled = KeyError("x")
    handled.__context__ = EnvironmentFault("gone")
    assert cause_of(handled) == "environment"
    handled.__suppress_context__ = True
    assert cause_of(handled) is None
    assert cause_of(NoContext("x")) == "context"
    loop = ValueError()
    loop.__cause__ = loop
    assert cause_of(loop) is None
    assert cause_of(asyncio.CancelledError()) is None


def test_error_whose_text_fails_is_still_described() -> None:
    class Bad(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    assert describe(Bad()) == "Bad: (its message cannot be shown: ZeroDivisionError)"
