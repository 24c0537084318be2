"""Only a whole, current, trusted token opens a fork, and no doubt ever falls through to production."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import traceback
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from support.sdk import AUDIENCE, ISSUER, KID, Minter, armed, context_for

from redteam_sdk import context as redteam
from redteam_sdk.claims import Context, from_claims, to_claims
from redteam_sdk.context import Trust, bind, bound, current, current_or_none, resolve, verify
from redteam_sdk.errors import (
    ContextError,
    ExpiredContext,
    ForbiddenHost,
    InvalidContext,
    NoContext,
    NotConfigured,
    UntrustedContext,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MINTER = Minter()
GIVEN = context_for(host="/run/forks")
TOKEN = MINTER.mint(GIVEN)
TRUST = MINTER.trust("/run/forks")
FACTS: dict[str, Any] = to_claims(GIVEN, issuer=ISSUER, audience=AUDIENCE)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_valid_token_grants_what_was_minted() -> None:
    assert verify(TOKEN, TRUST) == GIVEN


@given(at=st.integers(0, len(TOKEN) - 1), bit=st.integers(0, 6))
def test_token_with_a_flipped_bit_is_refused(at: int, bit: int) -> None:
    flipped = TOKEN[:at] + chr(ord(TOKEN[at]) ^ (1 << bit)) + TOKEN[at + 1 :]
    with pytest.raises(ContextError):
        verify(flipped, TRUST)


def test_every_flip_in_the_signature_is_refused_though_base64_ignores_some_bits() -> None:
    start = TOKEN.rindex(".") + 1
    for at in range(start, len(TOKEN)):
        for bit in range(7):
            with pytest.raises(ContextError):
                verify(TOKEN[:at] + chr(ord(TOKEN[at]) ^ (1 << bit)) + TOKEN[at + 1 :], TRUST)


def test_every_truncation_is_refused() -> None:
    for end in range(len(TOKEN)):
        with pytest.raises(InvalidContext):
            verify(TOKEN[:end], TRUST)


@given(at=st.integers(0, len(TOKEN)), extra=st.text(min_size=1, max_size=4))
def test_token_with_something_added_is_refused(at: int, extra: str) -> None:
    with pytest.raises(ContextError):
        verify(TOKEN[:at] + extra + TOKEN[at:], TRUST)


@given(
    st.one_of(st.text(max_size=300), st.none(), st.binary(max_size=50), st.integers(), st.lists(st.text()))
)
def test_garbage_is_refused(token: object) -> None:
    with pytest.raises(InvalidContext):
        verify(token, TRUST)


def hs256_with_the_public_key() -> str:
    header = b64(json.dumps({"alg": "HS256", "kid": KID, "typ": "JWT"}).encode())
    signed = f"{header}.{b64(json.dumps(FACTS).encode())}"
    mac = hmac.new(MINTER.public_pem().encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{b64(mac)}"


def with_header(**header: object) -> str:
    """Our claims under another header, signed by our key over exactly that header."""
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(FACTS).encode())}"
    return f"{signed}.{b64(MINTER.key.sign(signed.encode()))}"


def unsigned() -> str:
    return f"{b64(json.dumps({'alg': 'none', 'kid': KID}).encode())}.{b64(json.dumps(FACTS).encode())}."


def other_key() -> str:
    return Minter().mint(GIVEN)


@pytest.mark.parametrize(
    ("token", "error"),
    [
        pytest.param(unsigned, InvalidContext, id="alg-none"),
        pytest.param(lambda: with_header(alg="none", kid=KID), InvalidContext, id="alg-none-signed"),
        pytest.param(lambda: with_header(alg="None", kid=KID), InvalidContext, id="alg-None"),
        pytest.param(lambda: with_header(alg="HS256", kid=KID), InvalidContext, id="alg-hs256-signed-by-us"),
        pytest.param(lambda: with_header(alg="eddsa", kid=KID), InvalidContext, id="alg-lower-case"),
        pytest.param(lambda: with_header(alg=["EdDSA"], kid=KID), InvalidContext, id="alg-list"),
        pytest.param(lambda: with_header(kid=KID), InvalidContext, id="alg-absent"),
        pytest.param(hs256_with_the_public_key, InvalidContext, id="hs256-keyed-with-our-public-key"),
        pytest.param(other_key, UntrustedContext, id="signed-by-another-key"),
        pytest.param(lambda: with_header(alg="EdDSA", kid="key-2"), UntrustedContext, id="unknown-kid"),
        pytest.param(lambda: with_header(alg="EdDSA"), UntrustedContext, id="no-kid"),
        pytest.param(lambda: with_header(alg="EdDSA", kid=[KID]), UntrustedContext, id="kid-list"),
        pytest.param(lambda: with_header(alg="EdDSA", kid=KID, typ="at+jwt"), InvalidContext, id="other-typ"),
        pytest.param(lambda: with_header(alg="EdDSA", kid=KID, jku="http://x"), InvalidContext, id="jku"),
        pytest.param(
            lambda: with_header(alg="EdDSA", kid=KID, crit=["b64"], b64=False), InvalidContext, id="detached"
        ),
        pytest.param(lambda: f"{b64(b'[' * 3000)}.e30.{'A' * 86}", InvalidContext, id="deep-header"),
        pytest.param(lambda: "", InvalidContext, id="empty"),
        pytest.param(lambda: f" {TOKEN}", InvalidContext, id="leading-space"),
        pytest.param(lambda: f"{TOKEN}\n", InvalidContext, id="trailing-newline"),
        pytest.param(lambda: f"Bearer {TOKEN}", InvalidContext, id="bearer"),
        pytest.param(lambda: f"{TOKEN}==", InvalidContext, id="padding"),
        pytest.param(lambda: f"{TOKEN}, {TOKEN}", InvalidContext, id="two-headers-joined"),
        pytest.param(lambda: TOKEN + "A" * 9000, InvalidContext, id="huge"),
    ],
)
def test_token_of_another_make_is_refused(token: Callable[[], str], error: type[ContextError]) -> None:
    with pytest.raises(error):
        verify(token(), TRUST)


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        pytest.param({"aud": "billing"}, UntrustedContext, id="other-audience"),
        pytest.param({"aud": [AUDIENCE]}, UntrustedContext, id="audience-list"),
        pytest.param({"aud": [AUDIENCE, "billing"]}, UntrustedContext, id="several-audiences"),
        pytest.param({"iss": "somebody"}, UntrustedContext, id="other-issuer"),
        pytest.param({"iss": [ISSUER]}, ContextError, id="issuer-list"),
        pytest.param({"exp": FACTS["nbf"] - 60, "nbf": FACTS["nbf"] - 120}, ExpiredContext, id="expired"),
        pytest.param({"nbf": FACTS["exp"] - 1}, ExpiredContext, id="not-begun"),
        pytest.param({"exp": None}, InvalidContext, id="no-exp"),
        pytest.param({"nbf": None}, InvalidContext, id="no-nbf"),
        pytest.param({"jti": None}, InvalidContext, id="no-jti"),
        pytest.param({"iss": None}, InvalidContext, id="no-iss"),
        pytest.param({"aud": None}, InvalidContext, id="no-aud"),
        pytest.param({"exp": str(FACTS["exp"])}, InvalidContext, id="exp-text"),
        pytest.param({"exp": FACTS["exp"] + 0.5}, InvalidContext, id="exp-fraction"),
        pytest.param({"exp": 10**400}, InvalidContext, id="exp-beyond-time"),
        pytest.param({"nbf": True}, InvalidContext, id="nbf-bool"),
        pytest.param({"jti": 7}, InvalidContext, id="jti-number"),
        pytest.param({"redteam": None}, InvalidContext, id="no-facts"),
        pytest.param({"redteam": []}, InvalidContext, id="facts-list"),
        *(
            pytest.param(
                {"redteam": {**FACTS["redteam"], name: value}}, InvalidContext, id=f"{name}-{value!r}"[:30]
            )
            for name, value in [
                ("port", "5432"),
                ("port", 0),
                ("port", 65536),
                ("port", True),
                ("port", 5432.0),
                ("version", 2),
                ("version", True),
                ("host", "good,evil"),
                ("host", "good host"),
                ("host", "user@host"),
                ("host", ""),
                ("database", "a" * 64),
                ("database", None),
                ("database", "a\0b"),
                ("user", ["u"]),
                ("user", "é" * 32),
                ("password", ""),
                ("password", 7),
                ("tenant", {"t": 1}),
                ("conversation", "c\n1"),
                ("extra", "x"),
            ]
        ),
    ],
)
def test_token_with_odd_claims_is_refused(claims: dict[str, Any], error: type[ContextError]) -> None:
    token = MINTER.mint(GIVEN, **claims)
    with pytest.raises(error):
        verify(token, TRUST)


@pytest.mark.parametrize("name", sorted(FACTS["redteam"]))
def test_token_without_one_of_its_facts_is_refused(name: str) -> None:
    facts = {key: value for key, value in FACTS["redteam"].items() if key != name}
    with pytest.raises(InvalidContext):
        verify(MINTER.mint(GIVEN, redteam=facts), TRUST)


def test_fork_host_off_the_allow_list_is_refused() -> None:
    for hosts in [(), ("/run/forks/",), ("/run",), ("/run/forks,evil",)]:
        with pytest.raises(ForbiddenHost):
            verify(TOKEN, MINTER.trust(*hosts))


def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    late = MINTER.mint(context_for(host="/run/forks", not_before=now - timedelta(hours=1), expires_at=now))
    assert verify(late, dataclasses.replace(TRUST, leeway_s=60.0)).expires_at == now
    with pytest.raises(ExpiredContext):
        verify(late, dataclasses.replace(TRUST, leeway_s=0.0))


def test_several_keys_are_trusted_while_they_are_rotated() -> None:
    new = Minter()
    both = dataclasses.replace(TRUST, keys={**TRUST.keys, "key-2": new.public_pem()})
    assert verify(TOKEN, both) == GIVEN
    assert verify(new.mint(GIVEN, headers={"kid": "key-2"}), both) == GIVEN
    with pytest.raises(UntrustedContext):
        verify(new.mint(GIVEN), both)  # the new key under the old key's id


@given(
    context=st.builds(
        context_for,
        **{
            name: st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=63)
            for name in ("tenant", "run", "conversation", "host", "database", "user", "password", "token_id")
        },
        port=st.integers(1, 65535),
    )
)
def test_claims_carry_every_context_unchanged(context: Context) -> None:
    assert from_claims(json.loads(json.dumps(to_claims(context, issuer="i", audience="a")))) == context


def test_context_that_would_be_refused_is_never_minted() -> None:
    with pytest.raises(InvalidContext):
        to_claims(context_for(conversation=""), issuer=ISSUER, audience=AUDIENCE)


def test_dsn_quotes_what_has_a_meaning_in_an_address() -> None:
    assert (
        context_for(host="db.test", port=6000, user="a@b", password="p:/w", database="d?x").dsn()
        == "postgresql://a%40b:p%3A%2Fw@db.test:6000/d%3Fx"
    )
    assert (
        context_for(host="/run/pg", user="u", password="p", database="d").dsn()
        == "postgresql://u:p@/d?host=/run/pg&port=5432"
    )
    assert (
        context_for(host="::1", user="u", password="p", database="d").dsn() == "postgresql://u:p@[::1]:5432/d"
    )


def test_secret_is_in_no_repr_and_no_error() -> None:
    assert GIVEN.password not in repr(GIVEN)
    assert GIVEN.password not in str(GIVEN)
    payload = TOKEN.split(".")[1]
    broken = [
        MINTER.mint(GIVEN, aud="billing"),
        MINTER.mint(GIVEN, redteam={**FACTS["redteam"], "port": "x"}),
        TOKEN[:-1],
        other_key(),
        MINTER.mint(context_for(host="elsewhere", password=GIVEN.password)),
    ]
    for token in broken:
        with pytest.raises(ContextError) as caught:
            verify(token, TRUST)
        text = "".join(traceback.format_exception(caught.value))
        assert GIVEN.password not in text
        assert payload not in text
        assert caught.value.__context__ is None  # nothing of the parsing hangs on it, whoever prints it


@pytest.mark.parametrize(
    "change",
    [
        {"keys": {}},
        {"keys": {KID: "no PEM"}},
        {"keys": {KID: ""}},
        {"issuer": ""},
        {"audience": ""},
        {"leeway_s": -1.0},
        {"leeway_s": 3600.0},
        {"leeway_s": float("nan")},
    ],
    ids=repr,
)
def test_trust_that_could_not_hold_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        dataclasses.replace(TRUST, **change)


def test_trust_takes_ed25519_public_keys_only() -> None:
    ed448 = (
        Ed448PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(UsageError, match="'old' of the trust is not an Ed25519 public key"):
        dataclasses.replace(TRUST, keys={KID: MINTER.public_pem(), "old": ed448.decode()})


def test_trust_survives_json() -> None:
    assert Trust.from_json(json.loads(json.dumps(TRUST.to_json()))) == TRUST


@pytest.mark.parametrize(
    "change",
    [{"keys": []}, {"hosts": "x"}, {"issuer": 7}, {"leeway_s": "5"}, {"leeway_s": True}, {"more": 1}],
    ids=repr,
)
def test_trust_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Trust.from_json({**TRUST.to_json(), **change})
    with pytest.raises(UsageError):
        Trust.from_json(None)


def test_token_in_a_process_that_is_not_armed_is_refused_and_not_ignored() -> None:
    with pytest.raises(NotConfigured), bind(TOKEN):
        pytest.fail("the block ran")
    with pytest.raises(NotConfigured), bound(GIVEN):
        pytest.fail("the block ran")


def test_process_that_is_not_armed_and_has_no_token_is_production() -> None:
    assert not redteam.is_armed()
    assert resolve() is None


def test_armed_process_without_a_context_has_no_database() -> None:
    with armed(MINTER, "/run/forks"):
        assert current_or_none() is None
        with pytest.raises(NoContext, match=r"redteam_sdk\.carry"):
            resolve()
        with pytest.raises(NoContext):
            current()


def test_context_is_bound_for_the_block_only() -> None:
    with armed(MINTER, "/run/forks"):
        with bind(TOKEN) as context:
            assert context == GIVEN == current() == resolve()
        with pytest.raises(NoContext):
            resolve()


def test_refused_token_binds_nothing() -> None:
    with armed(MINTER, "/run/forks"):
        with pytest.raises(InvalidContext), bind(TOKEN[:-1]):
            pytest.fail("the block ran")
        assert current_or_none() is None


def test_one_conversation_cannot_become_another() -> None:
    with armed(MINTER, "/run/forks"), bind(TOKEN):
        with pytest.raises(InvalidContext), bind(MINTER.mint(context_for(host="/run/forks"))):
            pytest.fail("the block ran")
        assert current() == GIVEN


def test_context_that_expires_while_it_is_bound_opens_nothing_more() -> None:
    over = context_for(expires_at=GIVEN.not_before - timedelta(minutes=10))
    with armed(MINTER, "/run/forks"), bound(over), pytest.raises(ExpiredContext):
        resolve()
