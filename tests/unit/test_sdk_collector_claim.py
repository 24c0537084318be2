"""A token may name a collector; where it leads is decided by the trust alone."""

from __future__ import annotations

import pytest
from support.sdk import Minter, context_for

from redteam_sdk import handoff, record
from redteam_sdk.claims import is_origin
from redteam_sdk.context import Trust, verify
from redteam_sdk.errors import ForbiddenHost, InvalidContext, UsageError

MINTER = Minter()


def trusting(*collectors: str) -> Trust:
    return Trust.from_json({**MINTER.trust("/nowhere").to_json(), "collectors": list(collectors)})


def test_a_collector_is_read_from_the_token_and_a_token_without_one_has_none() -> None:
    token = MINTER.mint(context_for(collector="https://harness.example:8443"))
    trust = trusting("https://harness.example:8443")
    assert verify(token, trust).collector == "https://harness.example:8443"
    assert verify(MINTER.mint(context_for()), trust).collector is None
    assert Trust.from_json(trust.to_json()) == trust


@pytest.mark.parametrize(
    ("allowed", "named", "accepted"),
    [
        ((), "http://127.0.0.1:4318", False),
        (("http://127.0.0.1",), "http://127.0.0.1:4318", True),
        (("http://127.0.0.1",), "http://127.0.0.1", True),
        (("http://127.0.0.1",), "https://127.0.0.1:4318", False),
        (("http://127.0.0.1",), "http://127.0.0.10:4318", False),
        (("http://127.0.0.1",), "http://127.0.0.1.example:4318", False),
        (("https://h.example:8443",), "https://h.example:8443", True),
        (("https://h.example:8443",), "https://h.example:8444", False),
        (("https://h.example:8443",), "https://h.example", False),
        (("http://[::1]",), "http://[::1]:4318", True),
        (("http://[::1]",), "http://[::2]:4318", False),
    ],
)
def test_a_token_reports_only_where_the_trust_lets_it(
    allowed: tuple[str, ...], named: str, accepted: bool
) -> None:
    token = MINTER.mint(context_for(collector=named))
    if accepted:
        assert verify(token, trusting(*allowed)).collector == named
    else:
        with pytest.raises(ForbiddenHost, match="collector"):
            verify(token, trusting(*allowed))


NO_ORIGINS = [
    "",
    "harness.example",
    "ftp://harness.example",
    "http://",
    "http://harness.example/",
    "http://harness.example/path",
    "http://harness.example?x",
    "http://harness.example#x",
    "http://user@harness.example",
    "http://user:pw@harness.example:80",
    "http://harness.example:0",
    "http://harness.example:065",
    "http://harness.example:65536",
    "http://harness.example:80:80",
    "http://Harness.example",
    "http://harness.example\n",
    "http://harness\u2024example",
    "http://harness.example:\u0668\u0660",
    "http://[::1",
]


@pytest.mark.parametrize("text", NO_ORIGINS)
def test_what_is_no_plain_origin_is_neither_trusted_nor_minted_nor_accepted(text: str) -> None:
    assert not is_origin(text)
    with pytest.raises(UsageError, match="collector"):
        trusting(text)
    with pytest.raises(InvalidContext, match="collector"):
        MINTER.mint(context_for(collector=text))


@pytest.mark.parametrize("odd", [None, 7, [], {}, ["http://127.0.0.1"], True])
def test_a_claim_of_another_type_refuses_the_token(odd: object) -> None:
    facts = MINTER.mint(context_for(collector="http://127.0.0.1"))
    assert verify(facts, trusting("http://127.0.0.1")).collector == "http://127.0.0.1"
    from redteam_sdk.claims import to_claims

    claims = to_claims(context_for(), issuer="redteam-harness", audience="clinic")["redteam"]
    token = MINTER.mint(context_for(), redteam={**claims, "collector": odd})
    with pytest.raises(InvalidContext, match="collector"):
        verify(token, trusting("http://127.0.0.1"))


def test_a_trusts_collectors_are_a_list_of_texts() -> None:
    for odd in ("http://127.0.0.1", {"http://127.0.0.1": 1}, [7]):
        with pytest.raises(UsageError, match="collectors"):
            Trust.from_json({**MINTER.trust("/nowhere").to_json(), "collectors": odd})


def test_a_handoff_is_a_swap_where_it_is_recorded_and_nothing_in_production() -> None:
    class Events(list[dict[str, object]]):
        def emit(self, event: dict[str, object]) -> None:
            self.append({name: value for name, value in event.items() if name != "at"})

    events = Events()
    handoff("billing")
    with record.recording(events):
        handoff("billing", by="triage")
        handoff("desk")
    assert events == [
        {"kind": "swap", "from": "triage", "to": "billing"},
        {"kind": "swap", "from": None, "to": "desk"},
    ]
