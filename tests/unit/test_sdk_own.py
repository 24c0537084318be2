"""A process that belongs to one conversation: its context is bound in every thread, no other anywhere."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.sdk import Minter, armed, context_for

from redteam_sdk import context, db, record
from redteam_sdk.errors import InvalidContext, NoContext, NotConfigured, UntrustedContext

if TYPE_CHECKING:
    from collections.abc import Iterator

MINTER = Minter()
GIVEN = context_for(host="/run/forks")
OTHER = context_for(host="/run/forks", conversation="c999", token_id="another")


@pytest.fixture
def owned() -> Iterator[None]:
    with armed(MINTER, "/run/forks"):
        context.own(MINTER.mint(GIVEN))
        yield


def in_thread(call: Any) -> Any:
    """What a call answers in a thread that was given nothing."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(call).result()


@pytest.mark.usefixtures("owned")
def test_threads_that_know_nothing_of_contexts_are_on_the_conversations_fork() -> None:
    assert in_thread(context.resolve) == context.resolve() == GIVEN
    assert in_thread(db.dsn) == GIVEN.dsn()


@pytest.mark.usefixtures("owned")
def test_no_other_conversation_is_let_in() -> None:
    with pytest.raises(InvalidContext), context.bind(MINTER.mint(OTHER)):
        pass
    with pytest.raises(InvalidContext):
        context.own(MINTER.mint(OTHER))
    with context.bind(MINTER.mint(GIVEN)) as bound:  # the same one, as each turn does
        assert bound == GIVEN
    assert context.resolve() == GIVEN


def test_a_process_that_is_not_armed_belongs_to_nobody() -> None:
    with pytest.raises(NotConfigured):
        context.own(MINTER.mint(GIVEN))
    assert context.current_or_none() is None


def test_a_token_that_is_refused_leaves_the_process_without_a_database() -> None:
    with armed(MINTER, "/run/forks"):
        with pytest.raises(UntrustedContext):
            context.own(Minter().mint(GIVEN))
        with pytest.raises(NoContext):
            in_thread(context.resolve)


def test_disarming_ends_it() -> None:
    with armed(MINTER, "/run/forks"):
        context.own(MINTER.mint(GIVEN))
    assert context.current_or_none() is None


class _Events:
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def emit(self, event: dict[str, Any]) -> None:
        self.kinds.append(event["kind"])


def test_events_of_threads_without_a_context_are_recorded_where_all_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "_everywhere", None)
    everywhere, here = _Events(), _Events()
    with record.recording(everywhere, everywhere=True):
        pass
    thread = threading.Thread(target=record.emit, args=("external",))
    with record.recording(here):
        record.emit("tool_call")
        thread.start()
        thread.join()
    assert (everywhere.kinds, here.kinds) == (["external"], ["tool_call"])
