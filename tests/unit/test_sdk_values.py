"""Whatever a tool takes or returns becomes JSON, or is named by its type; never its repr, never a secret."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from support.sdk import context_for

from redteam_sdk.values import Unserialisable, to_json


class Kind(Enum):
    NEW = "new_patient"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Visit:
    kind: Kind
    fee: Decimal
    secret: str = field(default="hush", repr=False)


class Slot(BaseModel):
    starts_at: datetime


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (1.5, 1.5),
        ("é", "é"),
        (Decimal("1.50"), "1.50"),
        (Decimal("NaN"), "NaN"),
        (datetime(2026, 11, 30, 9, 15, tzinfo=UTC), "2026-11-30T09:15:00+00:00"),
        (date(2026, 11, 30), "2026-11-30"),
        (time(9, 15), "09:15:00"),
        (timedelta(minutes=1), 60.0),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (IPv4Address("10.0.0.1"), "10.0.0.1"),
        (PurePosixPath("/a"), "/a"),
        (Kind.NEW, "new_patient"),
        (Level.HIGH, 3),
        ((1, (2, 3)), [1, [2, 3]]),
        ({Kind.NEW: {1: date(2026, 1, 1)}}, {"new_patient": {"1": "2026-01-01"}}),
        (Visit(Kind.NEW, Decimal("9.90")), {"kind": "new_patient", "fee": "9.90"}),
        (Slot(starts_at=datetime(2026, 1, 1)), {"starts_at": "2026-01-01T00:00:00"}),  # noqa: DTZ001 - as given
    ],
    ids=repr,
)
def test_value_becomes_its_json(value: object, expected: object) -> None:
    assert to_json(value) == expected


@pytest.mark.parametrize(
    "value",
    [object(), float("nan"), float("inf"), b"bytes", "\ud800", lambda: None, {(1, 2): 3}, [{"a": object()}]],
    ids=["object", "nan", "inf", "bytes", "half-a-pair", "function", "tuple-key", "nested"],
)
def test_value_without_json_is_refused_when_strict_and_named_by_type_in_a_trace(value: object) -> None:
    with pytest.raises(Unserialisable):
        to_json(value)
    json.dumps(to_json(value, strict=False), allow_nan=False).encode()


def test_refusal_says_where_and_of_which_type_but_not_what() -> None:
    with pytest.raises(Unserialisable, match=r"value\.rows\[1\] is a bytes") as caught:
        to_json({"rows": [1, b"Ada Lovelace"]})
    assert "Lovelace" not in str(caught.value)


def test_set_is_shown_in_one_order() -> None:
    assert to_json({"b", "a", "c"}) == ["a", "b", "c"]


def test_value_in_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Unserialisable, match="nested deeper"):
        to_json(loop)
    assert "<list>" in json.dumps(to_json(loop, strict=False))


def test_field_hidden_from_repr_is_hidden_from_evidence() -> None:
    context = context_for()
    assert context.password not in json.dumps(to_json({"context": context}))


_ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.binary(),
        st.dates(),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.binary()), inner),
        st.tuples(inner),
    ),
)


@given(_ANYTHING)
def test_trace_form_of_anything_is_valid_json(value: object) -> None:
    shown = to_json(value, strict=False)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
