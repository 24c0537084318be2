"""How a process comes to be armed, what it hands on, and that anything short of that is not production."""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import json
import os
import pickle
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.sdk import KID, Minter, armed, context_for

from redteam_sdk import carry, db, external
from redteam_sdk import context as redteam
from redteam_sdk.carry import ContextExecutor
from redteam_sdk.context import Trust, bind, bound, resolve, verify
from redteam_sdk.errors import (
    ContextError,
    InvalidContext,
    NoContext,
    NotConfigured,
    UntrustedContext,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINTER = Minter()
GIVEN = context_for(host="/run/forks")
TOKEN = MINTER.mint(GIVEN)
TRUST = MINTER.trust("/run/forks")


@contextmanager
def as_started(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[None]:
    """This process as if it had just started with these variables; afterwards as it was."""
    redteam.disarm()
    with monkeypatch.context() as environment:
        for name in (redteam.TRUST_VARIABLE, redteam.CONTEXT_VARIABLE):
            environment.delenv(name, raising=False)
        for name, value in variables.items():
            environment.setenv(name, value)
        try:
            yield
        finally:
            redteam.disarm()


def written(folder: Path, trust: Trust = TRUST) -> Path:
    path = folder / "trust.json"
    path.write_text(json.dumps(trust.to_json()))
    path.chmod(0o644)
    return path


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    with as_started(monkeypatch):
        assert not redteam.arm_from_env()
        assert redteam.adopt() is None
        assert redteam.handover() == {}
        assert resolve() is None


@pytest.mark.parametrize("form", ["file", "text"])
def test_variable_with_a_trust_arms_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    value = str(written(tmp_path)) if form == "file" else json.dumps(TRUST.to_json())
    with as_started(monkeypatch, REDTEAM_TRUST=value):
        assert redteam.arm_from_env()
        with pytest.raises(NoContext):
            resolve()
        with bind(TOKEN):
            assert resolve() == GIVEN
    assert "has no way to production" in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[]", "a trust holds exactly"),
        (json.dumps({**TRUST.to_json(), "keys": {KID: "no PEM"}}), "not an Ed25519 public key"),
        (" " * 70_000, "longer than"),
    ],
)
def test_service_whose_trust_cannot_be_used_does_not_start_and_is_never_production(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, says: str
) -> None:
    path = written(tmp_path)
    path.write_text(text)
    with as_started(monkeypatch, REDTEAM_TRUST=str(path)):
        with pytest.raises(UsageError, match=says):
            redteam.arm_from_env()
        with pytest.raises(NoContext, match="REDTEAM_TRUST is set"):
            resolve()


def test_trust_that_is_missing_or_that_others_may_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        as_started(monkeypatch, REDTEAM_TRUST=str(tmp_path / "gone")),
        pytest.raises(UsageError, match="read"),
    ):
        redteam.arm_from_env()
    for mode in (0o666, 0o664, 0o646):
        path = written(tmp_path)
        path.chmod(mode)
        with as_started(monkeypatch, REDTEAM_TRUST=str(path)), pytest.raises(UsageError, match="chmod go-w"):
            redteam.arm_from_env()


@pytest.mark.parametrize("name", ["REDTEAM_TRUST", "REDTEAM_CONTEXT"])
def test_process_that_belongs_to_redteam_and_was_not_armed_has_no_production(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    @external
    def charge() -> None:
        pytest.fail("a real charge")

    # As a child of an armed process that was started with its environment and knows nothing of redteam.
    with as_started(monkeypatch, **{name: "x", "DATABASE_URL": "postgresql://production.invalid/production"}):
        for use in (resolve, db.dsn, charge):
            with pytest.raises(NoContext, match=f"{name} is set"):
                use()


def test_arming_marks_the_environment_for_children_and_takes_out_what_bends_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with as_started(monkeypatch, PGHOSTADDR="203.0.113.1", PGSERVICE="production", PGUSER="u"):
        redteam.arm(TRUST)
        assert Trust.from_json(json.loads(os.environ["REDTEAM_TRUST"])) == TRUST
        assert "PGHOSTADDR" not in os.environ
        assert "PGSERVICE" not in os.environ
        assert os.environ["PGUSER"] == "u"


def test_arming_late_ends_production_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with as_started(monkeypatch):
        assert resolve() is None
        redteam.arm(TRUST)
        with pytest.raises(NoContext):
            resolve()


def test_context_is_handed_over_by_token_and_taken_out_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with armed(MINTER, "/run/forks"), bind(TOKEN):
        assert redteam.serialise() == TOKEN
        given = redteam.handover()
    assert sorted(given) == ["REDTEAM_CONTEXT", "REDTEAM_TRUST"]

    def child() -> None:
        assert redteam.adopt() == GIVEN
        assert resolve() == GIVEN
        assert "REDTEAM_CONTEXT" not in os.environ
        assert redteam.adopt() is None  # nothing is left to adopt

    with as_started(monkeypatch, **given):
        contextvars.copy_context().run(child)


@pytest.mark.parametrize("change", ["forged", "no trust", "garbled"])
def test_context_that_was_handed_over_and_is_refused_leaves_no_production(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    given = {"REDTEAM_TRUST": json.dumps(TRUST.to_json()), "REDTEAM_CONTEXT": TOKEN}
    if change == "forged":
        given["REDTEAM_CONTEXT"] = Minter().mint(GIVEN)
    elif change == "garbled":
        given["REDTEAM_CONTEXT"] = TOKEN[:-3]
    else:
        del given["REDTEAM_TRUST"]
    with as_started(monkeypatch):
        assert resolve() is None  # also where it was looked at earlier
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ContextError) as caught:
            redteam.adopt()
        assert isinstance(caught.value, UntrustedContext | InvalidContext | NotConfigured)
        with pytest.raises(NoContext):
            resolve()


def test_nothing_is_handed_over_where_nothing_is_bound() -> None:
    with armed(MINTER, "/run/forks"):
        for hand in (redteam.handover, redteam.serialise):
            with pytest.raises(NoContext):
                hand()
        with bound(GIVEN), pytest.raises(InvalidContext, match="not made from a token"):
            redteam.serialise()


def test_key_that_is_retired_is_refused_from_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    new = Minter()
    keys = {**TRUST.keys, "key-2": new.public_pem()}
    over = dataclasses.replace(TRUST, keys=keys, retired={KID: now - timedelta(seconds=1)})
    soon = dataclasses.replace(TRUST, keys=keys, retired={KID: now + timedelta(hours=1)})
    with pytest.raises(UntrustedContext, match="retired"):
        verify(TOKEN, over)
    assert verify(TOKEN, soon) == GIVEN
    assert verify(new.mint(GIVEN, headers={"kid": "key-2"}), over) == GIVEN
    assert Trust.from_json(json.loads(json.dumps(soon.to_json()))) == soon


@pytest.mark.parametrize(
    "change",
    [
        {"retired": {"unknown": datetime.now(UTC)}},
        {"retired": {KID: datetime(2026, 1, 1)}},  # noqa: DTZ001 - the point
        {"hosts": "/run/forks"},
    ],
    ids=["unknown-key", "no-zone", "hosts-text"],
)
def test_trust_that_could_be_misread_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        dataclasses.replace(TRUST, **change)


def test_trust_cannot_be_changed_by_who_made_it() -> None:
    keys = dict(TRUST.keys)
    trust = dataclasses.replace(TRUST, keys=keys)
    keys["more"] = Minter().public_pem()
    assert trust.keys == TRUST.keys


def test_rearming_rotates_the_keys() -> None:
    new = Minter()
    with armed(MINTER, "/run/forks"):
        redteam.arm(dataclasses.replace(TRUST, keys={"key-2": new.public_pem()}))
        with pytest.raises(UntrustedContext), bind(TOKEN):
            pytest.fail("the block ran")
        with bind(new.mint(GIVEN, headers={"kid": "key-2"})):
            assert resolve() == GIVEN


def test_secret_is_in_no_repr_no_pickle_and_no_frame_of_a_refusal() -> None:
    context = verify(TOKEN, TRUST)
    for text in (repr(context), str(context), f"{context}"):
        assert context.password not in text
        assert TOKEN not in text
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="serialise"):
            pickle.dumps(context, protocol)
    assert copy.copy(context) is copy.deepcopy(context) is context
    forged = Minter().mint(GIVEN)

    def attempt() -> None:
        with bind(forged):
            pytest.fail("the block ran")

    for use in (attempt, lambda: verify(forged, TRUST)):
        with armed(MINTER, "/run/forks"), pytest.raises(ContextError) as caught:
            use()
        ours = [
            frame
            for frame, _ in traceback.walk_tb(caught.value.__traceback__)
            if "redteam_sdk" in frame.f_code.co_filename
        ]
        assert ours
        assert forged not in str([frame.f_locals for frame in ours])


def test_carry_and_the_executor_are_nothing_in_production() -> None:
    def work() -> int:
        return 7

    assert carry(work) is work
    with ContextExecutor(1) as pool:
        assert pool.submit(work).result() == 7


def test_carry_takes_no_generator() -> None:
    def steps() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        carry(steps)


def test_carried_function_does_not_run_inside_another_conversation() -> None:
    other = MINTER.mint(context_for(host="/run/forks"))
    with armed(MINTER, "/run/forks"):
        with bind(TOKEN):
            carried = carry(resolve)
        assert carried() == GIVEN
        assert redteam.current_or_none() is None
        with bind(other), pytest.raises(InvalidContext):
            carried()
